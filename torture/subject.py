"""The daemon under torture, started as a user starts it, and what it serves."""

from __future__ import annotations

import os
import re
import shutil
import signal
import ssl
import subprocess
import time
from pathlib import Path

from bench import servers
from bench.client import Address

MISBEHAVING = servers.PROJECT / "tests" / "data" / "plugins"
MOST_BYTES = 1 << 20  # of a request
SECONDS = 4.0  # for a handshake, and for a request to arrive
PLUGIN_SECONDS = 1.0
REQUEST_SECONDS = 8.0
_GDB_SECONDS = 30.0
_SAID_SECONDS = 0.5  # until what the daemon said has been read

# Of the folder of those that misbehave; the rest keeps all, or fails.
_WELL_BEHAVED = {"keeps_all", "keeps_first", "keeps_none"}

_GOOD = '''\
"""Keeps every other host, costs a number in its id, moves the VM that it is told."""


def do_filter(hosts, vm, properties):
    return hosts[::2]


def do_score(hosts, vm, properties):
    return [(host, int(host.id[-4:], 16)) for host in hosts]


def do_balance(hosts, properties):
    return properties["vm"], hosts[1:]
'''

_PRINTS = '''\
class Printed:
    """As the released proxy's plugins do it: gets ids and prints its answer."""

    def do_filter(self, hosts_ids, vm_id, args_map):
        print(hosts_ids[::2])
'''

_SETTINGS = """\
listening_port = 0
listening_address = 127.0.0.1
log_file = {state}/log
log_level = {level}
plugins_conf_path = {state}/plugins.d
plugin_timeout = {plugin}
request_timeout = {request}
connection_timeout = {connection}
max_connections = {connections}
max_parallel_calls = 8
max_waiting = 64
max_request_size = {size}
memory_limit = 64 MiB
pages = loopback
cpu_limit = 1
{more}
"""

_RECORD = re.compile(r"^(?=\d{4}-\d\d-\d\d )", re.MULTILINE)


class Followed:
    """What is written to a log file from now on, also when the file is rotated away."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        self._file.seek(0, os.SEEK_END)
        self._begun = b""  # a line that is not at its end yet

    def says(self, words: str) -> bool:
        """Whether the words stand in a line that has come since the last look."""
        try:
            moved = not os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:  # the next one is about to be made
            moved = False
        new = self._begun + self._file.read()
        if moved:  # before it was read, so that was all of it
            self.close()
            self._file = self._path.open("rb")
            new += self._file.read()
        lines, _, self._begun = new.rpartition(b"\n")
        return words.encode() in lines

    def close(self) -> None:
        self._file.close()


def _is_of_a_plugin(record: str) -> bool:
    head, _, traceback = record.partition("\n")
    has_no_answer = " timed out after " in head or " killed after " in head
    return " raised after " in head or (has_no_answer and "ovirt_scheduler/" not in traceback)


class Subject:
    """A running daemon in a folder of its own.

    Attributes:
        plugins: the folder of the plugins; ``conf`` that of their conf files.
        misbehaving: names of filters that keep every host, or fail in some way.
    """

    def __init__(self, folder: Path, clients: int) -> None:
        self._state = folder / "state"
        self.plugins = folder / "plugins"
        self.conf = self._state / "plugins.d"
        self._connections = max(8, clients * 3 // 4)  # not for all of them
        shutil.copytree(MISBEHAVING, self.plugins, ignore=shutil.ignore_patterns("__pycache__"))
        self.misbehaving = sorted(
            path.stem for path in self.plugins.glob("*.py") if path.stem not in _WELL_BEHAVED
        )
        (self.plugins / "Half.py").write_text(_GOOD, "utf-8")
        (self.plugins / "Printing.py").write_text(_PRINTS, "utf-8")
        self.conf.mkdir(parents=True)
        self._settings = folder / "scheduler.conf"
        self.configure()
        options = ["--config", str(self._settings), "--plugins", str(self.plugins)]
        self._server = servers.Server(
            ["-m", "ovirt_scheduler", "serve", *options], {"STATE_DIRECTORY": str(self._state)}
        )
        self.pid = self._server.pid
        self.address: Address = self._server.address

    def configure(self, level: str = "info", more: str = "") -> None:
        """Write scheduler.conf.

        Args:
            level: of the log.
            more: further lines, which may be wrong.
        """
        text = _SETTINGS.format(
            state=self._state,
            level=level,
            plugin=PLUGIN_SECONDS,
            request=REQUEST_SECONDS,
            connection=SECONDS,
            connections=self._connections,
            size=MOST_BYTES,
            more=more,
        )
        self._settings.write_text(text, "utf-8")

    def reload(self) -> None:
        os.kill(self.pid, signal.SIGHUP)

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(servers.certificate(self._state)))

    @property
    def alive(self) -> bool:
        return self._server.running

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def threads(self) -> str:
        """Where each thread of the daemon is, in Python's lines; empty without gdb.

        gdb has the interpreter write them to standard error, as faulthandler does; no lock is
        taken for it.
        """
        gdb = shutil.which("gdb")
        if gdb is None or not self.alive:
            return ""
        before = len(self._server.said)
        call = "call (void *) _Py_DumpTracebackThreads(2, 0, 0)"
        command = [gdb, "--batch", "--nx", "--pid", str(self.pid), "-ex", call]
        subprocess.run(command, capture_output=True, timeout=_GDB_SECONDS, check=False)
        time.sleep(_SAID_SECONDS)
        return self._server.said[before:]

    def follow(self) -> Followed:
        """The lines of the log from now on."""
        return Followed(self._state / "log")

    def log(self) -> str:
        """All of the log, the files that were rotated away included, the oldest first."""
        files = sorted(self._state.glob("log.*"), reverse=True)
        return "".join(path.read_text("utf-8", "replace") for path in (*files, self._state / "log"))

    def unforeseen(self) -> list[str]:
        """What stands in the log, or on standard error, that nobody has foreseen.

        A plugin's traceback, which is told with its failure, is foreseen; that of a call without an
        answer has no line of ours.
        """
        records = [record for record in _RECORD.split(self.log()) if "Traceback" in record]
        found = [record for record in records if not _is_of_a_plugin(record)]
        if "Traceback" in self._server.said:
            found.append(self._server.said)
        return found

    def __enter__(self) -> Subject:
        self._server.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.__exit__(*exception)
