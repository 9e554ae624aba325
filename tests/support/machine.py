"""A machine of its own for tests: systemd as process 1, in namespaces and on a tree of its own.

The tree is in memory and is gone with the machine. The project is put into it as ``setup.py``
says, with the interpreter that runs the tests; see ``machine.sh`` for what is whose.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, Optional

from tests.support.command import executed
from tests.support.paths import PROJECT

_SCRIPT = Path(__file__).with_name("machine.sh")
_TOOLS = ("mount", "nsenter", "setpriv", "unshare")
_SYSTEMD = Path("/lib/systemd/systemd")
_LONG = 60.0  # seconds; what is awaited comes within two

# Where things are within. /root and /home, where an interpreter may lie, are closed to the daemon.
_ENVIRONMENT = "/opt/ovirt-scheduler"
_INTERPRETER = "/opt/python"
PYTHON = f"{_ENVIRONMENT}/bin/python"

UNIT = "ovirt-scheduler.service"
CONF = "etc/ovirt/scheduler/scheduler.conf"

# What a machine has before anything is installed on it.
_BASE = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/machine-id": f"{1:032x}\n",
    # The interpreter's own library before one of the same version under /usr.
    "etc/ld.so.conf": f"{_INTERPRETER}/lib\ninclude /etc/ld.so.conf.d/*.conf\n",
}

# Prints what setup.py hands to setuptools, which need not be here.
_DECLARED = """
import json, pathlib, runpy, sys, types
folders = sorted(path.parent for path in pathlib.Path("ovirt_scheduler").rglob("__init__.py"))
sys.modules["setuptools"] = types.SimpleNamespace(
    setup=lambda **said: print(json.dumps(said)),
    find_packages=lambda include: [".".join(folder.parts) for folder in folders],
)
runpy.run_path("setup.py")
"""


def missing() -> Optional[str]:
    """Why no machine can be made here; None where it can."""
    if os.getuid() != 0:
        return "needs root"
    for tool in (*map(shutil.which, _TOOLS), _SYSTEMD.exists()):
        if not tool:
            return f"needs systemd, {', '.join(_TOOLS)}"
    tried = executed(
        "unshare", "--mount", "--pid", "--fork", "--ipc", "--uts", "--net", "--cgroup", "true"
    )
    if tried.returncode != 0:
        return f"no namespaces are to be had: {tried.stderr.strip()}"
    return None


class Machine:
    """A booted machine with the project installed; ``end`` takes it away."""

    def __init__(self, folder: Path) -> None:
        files = folder / "files"
        pid_file = folder / "pid"
        tree = folder / "tree"
        tree.mkdir(parents=True)
        shown = _install(files)
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", "unshare", "--mount",
                 "--propagation", "private", "sh", str(_SCRIPT), str(tree), str(files),
                 str(pid_file), *(word for pair in shown.items() for word in pair)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._pid = 0
        try:
            self.wait_for(lambda: pid_file.exists() and pid_file.read_text() != "", "a process 1")
            self._pid = int(pid_file.read_text())
            comm = Path(f"/proc/{self._pid}/comm")
            self.wait_for(lambda: comm.read_text() == "systemd\n", "systemd")
            self.wait_for((self.root / "run/systemd/private").exists, "systemctl")
            self.run("systemctl", "is-system-running", "--wait")
        except BaseException:
            self.end()
            raise

    @property
    def root(self) -> Path:
        """The machine's tree, as the tests' own process reaches it."""
        return Path(f"/proc/{self._pid}/root")

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command on the machine as its root; what it wrote to both outputs."""
        ended = subprocess.run(
            self.inside(*command),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=_LONG, check=False,
        )  # fmt: skip
        assert not check or ended.returncode == 0, f"{' '.join(command)}: {ended.stdout}"
        return ended.stdout.strip()

    def inside(self, *command: str) -> list[str]:
        """The command that runs this one on the machine."""
        return ["nsenter", "--target", str(self._pid), "--all", "env", "-i", "LANG=C.UTF-8",
                "PATH=/usr/bin:/usr/sbin", *command]  # fmt: skip

    def wait_for(self, holds: Callable[[], bool], what: str) -> None:
        """Until it holds; fails when the machine ends or it takes too long."""
        give_up = time.monotonic() + _LONG
        while not holds():
            problem = "the machine has ended" if self._process.poll() is not None else ""
            if time.monotonic() > give_up:
                problem = "it took too long"
            assert not problem, f"{what}: {problem}\n{self._log.read_text('utf-8')}"
            select.select([], [], [], 0.01)

    def end(self) -> None:
        """Kill process 1, and with it everything on the machine."""
        if self._pid and self._process.poll() is None:
            os.kill(self._pid, signal.SIGKILL)
        elif not self._pid:
            self._process.kill()
        self._process.wait(timeout=_LONG)


def show(machine: Machine, name: str, unit: str = UNIT) -> str:
    """What systemd knows of a unit."""
    return machine.run("systemctl", "show", "--value", "--property", name, unit)


def processes(machine: Machine) -> list[int]:
    """Pids, outside the machine, of the daemon and all below it; the daemon first."""
    group = machine.root / f"sys/fs/cgroup/system.slice/{UNIT}/cgroup.procs"
    try:
        return sorted(map(int, group.read_text().split()))
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def drop_in(machine: Machine, text: str) -> Iterator[None]:
    """Settings of the unit as an administrator overrides them."""
    folder = machine.root / f"etc/systemd/system/{UNIT}.d"
    folder.mkdir(parents=True)
    (folder / "test.conf").write_text(f"[Service]\n{text}\n")
    machine.run("systemctl", "daemon-reload")
    try:
        yield
    finally:
        (folder / "test.conf").unlink()
        folder.rmdir()
        machine.run("systemctl", "daemon-reload")


def _install(files: Path) -> dict[str, str]:
    """Lay out the project and its interpreter under ``files``.

    Returns:
        Folders to show, and where.
    """
    for name, text in _BASE.items():
        _write(files / name, text)
    declared = json.loads(
        subprocess.run(
            [sys.executable, "-c", _DECLARED],
            cwd=PROJECT, stdout=subprocess.PIPE, text=True, timeout=_LONG, check=True,
        ).stdout
    )  # fmt: skip

    home = Path(sys.base_prefix)
    shown = {}
    if home != Path("/usr"):
        shown[str(home)] = _INTERPRETER
        home = Path(_INTERPRETER)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library = f"{_ENVIRONMENT}/lib/{version}"
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    shown.update((folder, f"{library}/{n}") for n, folder in enumerate(dependencies))
    packages = files / f".{library}/site-packages"
    _write(
        packages / "dependencies.pth", "".join(f"{library}/{n}\n" for n in range(len(dependencies)))
    )
    _write(files / f".{_ENVIRONMENT}/pyvenv.cfg", f"home = {home}/bin\n")
    (files / f".{_ENVIRONMENT}/bin").mkdir()
    (files / f".{PYTHON}").symlink_to(home / "bin" / version)

    for package in declared["packages"]:
        place = package.replace(".", "/")
        source = PROJECT / declared["package_dir"].get(package, place)
        for pattern in ("*.py", *declared["package_data"].get(package, [])):
            for file in source.glob(pattern):
                target = packages / place / file.relative_to(source)
                _write(target, file.read_text("utf-8"))
    for script in declared["entry_points"]["console_scripts"]:
        name, module, function = re.split(r" = |:", script)
        text = f"#!{PYTHON}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        _write(files / "usr/bin" / name, text, mode=0o755)
    return shown


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(mode)
