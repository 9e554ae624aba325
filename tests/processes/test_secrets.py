"""What a plugin finds of the daemon's secrets: nothing, whatever it opens."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import pytest
from cryptography.hazmat.primitives import serialization

from tests.support.command import executed, script
from tests.support.daemon import Daemon
from tests.support.processes import STRANGER, as_stranger, offspring
from tests.support.waiting import LONG, wait_until

PASSWORD = "correct horse battery staple"
ENVIRONMENT_SECRET = "secret-of-the-environment"

LOOKS = """
import ctypes, json, os, pathlib, subprocess, time

libc = ctypes.CDLL(None, use_errno=True)
SEIZE, DETACH = 0x4206, 17  # ptrace(2)
PIDFD_OPEN, PIDFD_GETFD = 434, 438  # on every architecture

def attempts(pid):
    for name, way in (("mem", open), ("environ", open), ("maps", open), ("fd", os.listdir)):
        try:
            way(f"/proc/{pid}/{name}")
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue
        yield f"{pid} {name}"
    if libc.ptrace(SEIZE, pid, None, None) == 0:
        libc.ptrace(DETACH, pid, None, None)
        yield f"{pid} ptrace"
    if libc.syscall(PIDFD_GETFD, libc.syscall(PIDFD_OPEN, pid, 0), 2, 0) >= 0:
        yield f"{pid} pidfd_getfd"
    word = ctypes.create_string_buffer(8)
    place = (ctypes.c_size_t * 2)(ctypes.addressof(word), 8)
    if libc.process_vm_readv(pid, place, 1, place, 1, 0) >= 0 or ctypes.get_errno() == 14:  # EFAULT
        yield f"{pid} process_vm_readv"

def stat(pid):
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2:].split()

def parent(pid):
    return int(stat(pid)[1])

def has_memory(pid):  # one that is ending has none, and files of it can be opened that hold nothing
    try:
        return not int(stat(pid)[6]) & 4  # PF_EXITING
    except (FileNotFoundError, ProcessLookupError):
        return False

def parents():
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                yield int(name), parent(name)
            except (FileNotFoundError, ProcessLookupError):
                pass

def do_filter(hosts, vm, properties):
    descriptors = []
    for number in os.listdir("/proc/self/fd"):
        try:
            descriptors.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            pass
    above, pid = [], os.getpid()
    while pid != int(properties["daemon"]):
        pid = parent(pid)
        above.append(pid)
    beside = [pid for pid, its_parent in parents() if its_parent in above[:-1]]
    beside = [pid for pid in beside if pid not in above and pid != os.getpid()]
    # A program of its own can be looked into, which shows that the attempts are good ones.
    command = ["sh", "-c", "echo started; read nothing"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as own:
        own.stdout.readline()
        show = [one.split()[1] for one in attempts(own.pid)]
        own.kill()
    found = {
        "pid": os.getpid(), "uid": os.getuid(), "environ": dict(os.environ), "above": above,
        "beside": beside, "descriptors": descriptors, "show": show,
        "status": pathlib.Path("/proc/self/status").read_text(),
        "opened": [one for pid in above + beside for one in attempts(pid) if has_memory(pid)],
    }
    out = pathlib.Path(properties["out"])
    out.with_suffix(".new").write_text(json.dumps(found))
    out.with_suffix(".new").rename(out)
    while out.exists():
        time.sleep(0.01)
    return hosts
"""


class Looked:
    """A daemon with secrets, and a plugin call that has looked around and waits."""

    def __init__(self, folder: Path, before: list[str]) -> None:
        (folder / "plugins").mkdir()
        (folder / "plugins" / "looks.py").write_text(LOOKS)
        (folder / "password").write_text(PASSWORD)
        (folder / "password").chmod(0o600)
        if before:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, STRANGER, STRANGER)
        settings = (
            f"[engine]\nurl = https://127.0.0.1:1/api\nusername = u\n"
            f"password_file = {folder}/password"
        )
        before = [*before, "env", f"A_SECRET={ENVIRONMENT_SECRET}", f"HOME={folder}"]
        self.daemon = Daemon(folder, folder / "plugins", settings, [], before)
        # The zygote, and processes beside that of the call that is to come.
        self._wait_for(lambda: len(offspring(self.daemon.pid)) >= 3)
        self._out = folder / "out"
        self._call = threading.Thread(target=self._run)
        self._call.start()
        self.found = json.loads(
            self._wait_for(lambda: self._out.exists() and self._out.read_text())
        )

    def _run(self) -> None:
        with self.daemon.proxy() as proxy:
            properties = {"out": str(self._out), "daemon": str(self.daemon.pid)}
            self.kept = proxy.runFilters(["looks"], ["host-1"], "vm-1", properties)

    def _wait_for(self, look: Callable[[], Any]) -> Any:
        return wait_until(look, lambda: self.daemon.log)

    def end(self) -> None:
        self._out.unlink()
        self._call.join(LONG)
        assert self.kept == ["host-1"]
        assert self.daemon.stop() == 0, self.daemon.log


@pytest.fixture(scope="module")
def looked() -> Iterator[Looked]:
    before = as_stranger() if os.geteuid() == 0 else []
    able: Optional[subprocess.CompletedProcess] = None
    if before:
        command = [*before, sys.executable, "-c", "import ovirt_scheduler.command.cli"]
        able = executed(*command)
        if able.returncode:
            pytest.skip(f"no other user can be had: {shlex.join(command)}: {able.stderr}")
    folder = Path(tempfile.mkdtemp(prefix="ovirt-scheduler-"))
    folder.chmod(0o755)
    running = Looked(folder, before)
    yield running
    running.end()
    shutil.rmtree(folder)


def test_the_plugin_ran_as_a_user_without_rights(looked: Looked) -> None:
    """Else the tests below would show nothing."""
    assert looked.found["uid"] != 0
    assert len(looked.found["above"]) == 2  # the zygote, the daemon


def test_no_descriptor_leads_to_a_secret(looked: Looked) -> None:
    """Nothing but what is the process's own: /dev/null, pipes, one socket, and its own /proc."""
    own = f"/proc/{looked.found['pid']}/"
    targets = [
        target for target in looked.found["descriptors"]
        if target != "/dev/null" and not target.startswith(("pipe:", own))
    ]  # fmt: skip
    assert len(looked.found["descriptors"]) >= 4
    assert len(targets) == 1
    assert targets[0].startswith("socket:")


def test_no_environment_variable_holds_a_secret(looked: Looked) -> None:
    """Only some names are passed on."""
    environ = looked.found["environ"]
    assert ENVIRONMENT_SECRET not in environ.values()
    assert {name for name in environ if not name.startswith("LC_")} <= {
        "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR",
    }  # fmt: skip


KEYRING = """
import ctypes, sys
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.model.plugins import Candidate, Source

libc = ctypes.CDLL(None)
libc.syscall(250, 1, None)  # keyctl: a session keyring of our own
if libc.syscall(248, b"user", b"secret", b"secret", 6, -3) < 0:  # add_key
    sys.exit("there are no keyrings here")
text = b'''
import ctypes
found = ctypes.CDLL(None).syscall(250, 10, -3, b"user", b"secret", 0)  # keyctl: search
raise Exception(found)
def do_filter(hosts, vm, properties): return hosts
'''
executor = Executor(parallel=1, max_waiting=1)
executor.start()
print(executor.analyse(Candidate(Source("plugin", "/plugin.py", text), "/", ())).fault.message)
executor.close()
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the calls have its numbers")
def test_no_keyring_holds_a_secret() -> None:
    """A login session's may hold tickets, and is inherited."""
    ended = script(KEYRING)
    if "no keyrings" in ended.stderr:
        pytest.skip(ended.stderr)
    assert "raised Exception: -1;" in ended.stdout, ended.stderr


def test_no_program_that_a_plugin_starts_gains_rights(looked: Looked) -> None:
    """By a set-user-ID bit, or capabilities of its own."""
    assert "\nNoNewPrivs:\t1\n" in looked.found["status"]


def test_no_process_above_or_beside_can_be_looked_into(looked: Looked) -> None:
    """Neither memory nor environment nor descriptors, though they are of the same user.

    So no call can write into the pipe of another one's answer.
    """
    assert len(looked.found["beside"]) >= 1  # spare processes
    assert {"environ", "fd"} <= set(looked.found["show"])
    assert looked.found["opened"] == []


def holds(pid: int, secrets: list[bytes]) -> bool:
    """Whether one of these stands in the memory of a process."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            addresses, permissions, *rest = line.split()
            if not permissions.startswith("rw") or rest[-1].startswith("[v"):
                continue
            begin, end = (int(address, 16) for address in addresses.split("-"))
            try:
                memory.seek(begin)
                data = memory.read(end - begin)
            except OSError:
                continue
            if any(secret in data for secret in secrets):
                return True
    return False


def sockets(pid: int) -> set[str]:
    """The numbers of the sockets that a process has open."""
    targets: set[str] = set()
    if Path(f"/proc/{pid}").exists():
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                targets.add(str(entry.readlink()))
    return {target for target in targets if target.startswith("socket:")}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may see their descriptors")
def test_no_process_below_has_a_socket_of_the_daemons(looked: Looked) -> None:
    """Of the port, of callers, of other requests; a zygote has one of its own."""
    *below, daemon = looked.found["above"]
    beside = looked.found["beside"]
    assert len(sockets(daemon)) >= 3  # the port, the caller, the zygote
    assert len(sockets(below[-1])) == 1
    for pid in (looked.found["pid"], *below, *beside):
        assert sockets(pid) & sockets(daemon) == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may see their descriptors")
def test_no_socket_between_the_processes_has_a_name(looked: Looked) -> None:
    """Nobody can connect to what has none; only the control socket has, in the state folder."""
    ours = {pid: sockets(pid) for pid in looked.found["above"]}
    numbers = {socket[len("socket:[") : -1] for found in ours.values() for socket in found}
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    named = {fields[6]: fields[7:] for fields in map(str.split, lines) if fields[6] in numbers}
    assert len(named) >= 3
    assert [name for name in named.values() if name and not name[0].endswith("/control")] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read their memory")
def test_no_memory_below_the_daemon_holds_the_key_or_the_password(looked: Looked) -> None:
    """The daemon's own does hold the key, which shows that the search finds it."""
    pem = looked.daemon.certificate.with_name("key.pem").read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    number = key.private_numbers().private_value  # type: ignore[union-attr]
    secrets = [number.to_bytes(32, "little"), number.to_bytes(32, "big"), PASSWORD.encode()]
    secrets.append(pem.splitlines()[1])
    *below, daemon = looked.found["above"]
    assert holds(daemon, secrets[:2])
    for pid in (looked.found["pid"], *below):
        assert not holds(pid, secrets)
