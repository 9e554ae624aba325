"""What several test modules need: real documents, real plugins, a real daemon."""

from __future__ import annotations

import os
import re
import select
import signal
import ssl
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Callable, Generator, Iterator, List, Optional, Sequence
from xmlrpc.client import Fault, ServerProxy

import pytest
from driven import Driven
from place import Place
from served import context, files, hasty, plain, running, secure, start  # noqa: F401  fixtures
from settled_calls import calls_of  # noqa: F401  a fixture

from ovirt_scheduler.model.plugins import Candidate, Limits, PluginCode, Source
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.security import trust

PROJECT = Path(__file__).resolve().parents[1]
PLUGINS = Path(__file__).resolve().parent / "plugins"
SHARED = PROJECT.parent / "shared" / "data"
LIMITS = Limits(timeout=10.0, memory=512 << 20, cpu=10, open_files=256)

_START_SECONDS = 30.0

# Else each of hundreds of daemons would compile the whole project anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_sessionstart() -> None:
    """The daemon loads no plugin that others could change: say so once, not in every test."""
    for path in (PROJECT / "plugins", PLUGINS, *PLUGINS.glob("*.py")):
        distrust = trust.tampering(path)
        if distrust:
            pytest.exit(f"the tests need a checkout of your own: {path}: {distrust}", 1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Reports go between processes as UTF-8, and some tests log what has no place in it."""
    report = yield
    report.sections = [
        (title, text.encode("utf-8", "backslashreplace").decode())
        for title, text in report.sections
    ]
    return report


@pytest.fixture
def place(tmp_path: Path, executor: Executor) -> Place:
    return Place(tmp_path, executor)


def refusal(code: int, call: Callable[..., object], *arguments: object) -> str:
    """What the fault with that code says, in which the call ends."""
    with pytest.raises(Fault) as refused:
        call(*arguments)
    assert refused.value.faultCode == code
    return refused.value.faultString


@pytest.fixture
def marker() -> str:
    """Seconds for sleep(1) that no other process on the machine sleeps for."""
    return f"{uuid.uuid4().int % 10**9 + 10**6}"


def processes_with(marker: str) -> List[int]:
    """Pids of the live processes that have the marker on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if marker.encode() in words:
                found.append(int(entry.name))
    return found


def offspring(pid: int) -> List[int]:
    """Pids of the live processes below this one, zombies included."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text("utf-8")
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(stat[stat.rindex(")") + 2 :].split()[1])
    below = [pid]
    for parent in below:
        below.extend(child for child, its_parent in parents.items() if its_parent == parent)
    return below[1:]


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    started = Executor(parallel=4, max_waiting=16)
    started.start()
    yield started
    started.close()


@pytest.fixture
def unit_named(executor: Executor) -> Callable[..., PolicyUnit]:
    """Gives a unit of the misbehaving plugins, analysed as the loader does."""

    def load(
        name: str, kind: Kind = Kind.FILTER, limits: Limits = LIMITS, folder: Path = PLUGINS
    ) -> PolicyUnit:
        path = folder / f"{name}.py"
        source = Source(name, str(path), path.read_bytes())
        analysis = executor.analyse(Candidate(source, str(folder), ()))
        assert analysis.fault is None
        (found,) = [unit for unit in analysis.units if unit.kind is kind]
        code = PluginCode(name, str(folder), analysis.modules)
        return PolicyUnit(found.name, kind, found.description, code, "sha256:", limits)

    return load


def for_all_users(*change: str) -> List[str]:
    """The beginning of a command, root's, in which other users can run this interpreter.

    One that lies in root's home is shown to them in a mount namespace.

    Args:
        change: further words of the beginning.
    """
    home = Path(sys.base_prefix)
    hidden = [folder for folder in (home, *home.parents) if not folder.stat().st_mode & 0o001]
    if not hidden:
        return [*change]
    script = (
        'd=$(mktemp -d) && mount --bind "$1" "$d" && mount -t tmpfs -o mode=755 none "$2" && '
        'mkdir -p "$1" && mount --move "$d" "$1" && rmdir "$d" && shift 2 && exec "$@"'
    )
    return ["unshare", "-m", "sh", "-c", script, "sh", str(home), str(hidden[-1]), *change]


class Daemon:
    """A daemon of its own for a test, started as an administrator starts it.

    Args:
        before: the beginning of a command line that runs the rest, and becomes it.
    """

    def __init__(
        self,
        folder: Path,
        plugins: Path,
        settings: str,
        options: List[str],
        before: Sequence[str] = (),
    ) -> None:
        self.state = folder / "state"
        self._log = folder / "log"
        config = folder / "scheduler.conf"
        config.write_text(f"listening_port = 0\n{settings}\n", "utf-8")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "ovirt_scheduler", "serve",
                 "--config", str(config), "--plugins", str(plugins), *options],
                cwd=PROJECT,
                env={**os.environ, "STATE_DIRECTORY": str(self.state)},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )  # fmt: skip
        self.pid = self.process.pid
        self.url = self._listening()

    def _listening(self) -> str:
        """The address that it prints when it is ready."""
        give_up = time.monotonic() + _START_SECONDS
        while time.monotonic() < give_up:
            found = re.search(r'(?:^|")listening on (\S+?)(?:"|$)', self.log, re.MULTILINE)
            if found:
                return found.group(1)
            if self.process.poll() is not None:
                break
            select.select([], [], [], 0.01)
        self.process.kill()
        self.process.wait()
        raise AssertionError(f"the daemon did not start:\n{self.log}")

    @property
    def zygote(self) -> int:
        """The pid of the daemon's one child, which forks the others."""
        return min(offspring(self.pid))

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8")

    @property
    def certificate(self) -> Path:
        return self.state / "certificate" / "certificate.pem"

    @property
    def trust(self) -> Optional[ssl.SSLContext]:
        if self.url.startswith("http:"):
            return None
        return ssl.create_default_context(cafile=str(self.certificate))

    def proxy(self, path: str = "/design") -> ServerProxy:
        return ServerProxy(self.url + path, context=self.trust, use_builtin_types=True)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send the signal and give the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=30)


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    made = Driven(tmp_path, Daemon)
    with made.open:
        yield made


StartDaemon = Callable[..., Daemon]


@pytest.fixture(scope="module")
def start_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartDaemon]:
    """Starts daemons; each is stopped when the module's tests are done."""
    started: List[Daemon] = []

    def run(
        plugins: Path = PLUGINS,
        settings: str = "",
        options: Optional[List[str]] = None,
        before: Sequence[str] = (),
        folder: Optional[Path] = None,
    ) -> Daemon:
        folder = folder or tmp_path_factory.mktemp("daemon")
        daemon = Daemon(folder, plugins, settings, options or [], before)
        started.append(daemon)
        return daemon

    yield run
    for daemon in started:
        try:
            daemon.stop()
        except subprocess.TimeoutExpired:
            daemon.process.kill()
            daemon.process.wait()
            raise
