"""What is done to the daemon from its own machine: kills, edits, reloads.

Processes are killed and stopped in bouts with calm between them, in which every good call has to be
answered rightly.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
import xmlrpc.client
from pathlib import Path
from typing import cast

from bench import documents, usage
from torture.clients import IDS
from torture.subject import PLUGIN_SECONDS, REQUEST_SECONDS, Subject
from torture.tally import Tally

_BOUT, _CALM = 4.0, 5.0  # seconds
_AFTER_A_KILL = 2.0  # seconds in which a zygote is started anew
_SEEN_WITHIN = 12.0  # seconds for an edit to be seen, in calm
_SEEN_AT_LAST = 90.0  # and amid kills and reloads, each of which has every plugin loaded anew
_RELOADED_WITHIN = 40.0  # every plugin is loaded anew

_VERSION = """\
def do_score(hosts, vm, properties):
    return [(host, {}) for host in hosts]
"""
# Its analysis says what is not in the file, with the nonce of its task, and ends.
_FORGED = """\
import json, os, struct, sys
frame, nonce = sys._getframe(), None
while frame:
    nonce, frame = nonce or frame.f_locals.get("nonce"), frame.f_back
unit = {{"name": {name!r}, "kind": "filter", "description": "", "line": 1}}
answer = json.dumps({{"units": [unit]}})
os.write(3, struct.pack("!cQQ", b"a", nonce, len(answer)) + answer.encode())
os._exit(0)
"""
_BROKEN = (
    _FORGED.format(name="Forged") + _VERSION,
    _FORGED.format(name="no\nname") + _VERSION,
    "def do_score(hosts, vm, properties:\n",
    f"import no_such_module\n{_VERSION}",
    f"raise ValueError\n{_VERSION}",
)  # without the function they would be helpers, and the unit gone
_KINDS = {1: "zygotes", 2: "processes of plugins"}  # readers and spare ones too


class Killer:
    """Kills (SIGKILL) and stops (SIGSTOP, later SIGCONT) processes below the daemon at random."""

    def __init__(self, subject: Subject, tally: Tally, chosen: random.Random) -> None:
        self._pid = subject.pid
        self._tally = tally
        self._chosen = chosen

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            end = time.monotonic() + _BOUT
            while time.monotonic() < end and not stop.is_set():
                self._hit(stop)
                stop.wait(self._chosen.random() * 0.4)
            stop.wait(_CALM)

    def _hit(self, stop: threading.Event) -> None:
        depths = usage.depths(self._pid)
        depth = self._chosen.choice([1, 2, 2, 2, 2, 3])  # zygotes take the most with them
        victims = [pid for pid, its_depth in depths.items() if min(its_depth, 3) == depth]
        if not victims:
            return
        victim, kind = self._chosen.choice(victims), _KINDS.get(depth, "what plugins started")
        with contextlib.suppress(ProcessLookupError):
            if self._chosen.random() < 0.85:
                self._tally.harm(_AFTER_A_KILL + PLUGIN_SECONDS)
                os.kill(victim, signal.SIGKILL)
                self._tally.count(f"kills survived: {kind}")
            else:
                self._stop(victim, self._chosen.uniform(0.1, 2.0), stop)
                self._tally.count(f"stops survived: {kind}")

    def _stop(self, victim: int, seconds: float, stop: threading.Event) -> None:
        # What waits for a call may be stopped in the calm too, until that call's time is over.
        self._tally.harm(seconds + REQUEST_SECONDS)
        os.kill(victim, signal.SIGSTOP)
        stop.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGCONT)


class Editor:
    """Edits a plugin and its conf file, and looks whether calls follow."""

    def __init__(self, subject: Subject, tally: Tally, chosen: random.Random) -> None:
        self._subject = subject
        self._tally = tally
        self._chosen = chosen
        self._file = subject.plugins / "Edited.py"
        self._conf = subject.conf / "Edited.conf"
        self._trust = subject.trust()
        self._version = 0

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.once(stop)

    def once(self, stop: threading.Event) -> None:
        """Make each kind of edit, and wait until calls follow it."""
        self._version += 1
        self._write(self._file, _VERSION.format(self._version))
        self._await("a new version", self._version, stop)
        self._write(self._file, self._chosen.choice(_BROKEN))
        self._await("a broken one, and so the last good", self._version, stop)
        self._version += 1
        self._write(self._file, _VERSION.format(self._version))
        self._await("a mended one", self._version, stop)
        self._write(self._conf, "enabled = false\n")
        self._await("its conf, which switches it off", None, stop)
        self._conf.unlink()
        self._await("its conf taken away", self._version, stop)
        self._file.unlink()
        self._await("the file taken away", None, stop)

    def _write(self, path: Path, text: str) -> None:
        """As editors do it: in place, or a new file moved over the old one."""
        if self._chosen.random() < 0.5:
            path.write_text(text, "utf-8")
        else:
            new = path.with_suffix(".new")
            new.write_text(text, "utf-8")
            new.replace(path)

    def _await(self, what: str, version: int | None, stop: threading.Event) -> None:
        begin = time.monotonic()
        found: object = "nothing"
        while not stop.is_set():
            found = self._cost()
            if found == version:
                self._tally.count("edits seen")
                return
            now = time.monotonic()
            calm = not self._tally.harmed(now - _SEEN_WITHIN)
            if now > begin + (_SEEN_WITHIN if calm else _SEEN_AT_LAST):
                self._tally.find(f"edit: {what}: calls give {found!r}, not {version!r}")
                return
            stop.wait(0.1)

    def _cost(self) -> object:
        """What the plugin costs; None where there is none; else, in words, why it is not known."""
        _, port = self._subject.address
        server = xmlrpc.client.ServerProxy(f"https://localhost:{port}/design", context=self._trust)
        try:
            with server:
                server.discover()  # looks afresh, also at what did not load
                costs = server.runCostFunctions([["Edited", 1]], IDS[:1], documents.VM_ID, {})
        except xmlrpc.client.Fault as fault:
            return None if fault.faultCode == 101 else fault.faultString
        except (OSError, xmlrpc.client.Error) as error:
            return str(error)
        return next(iter(cast("dict[str, int]", costs).values()), "no cost")


class Reloader:
    """Sends SIGHUP with good settings and with bad ones."""

    def __init__(self, subject: Subject, tally: Tally, chosen: random.Random) -> None:
        self._subject = subject
        self._tally = tally
        self._chosen = chosen

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self._chosen.uniform(0.5, 2.0)):
            good = self._chosen.random() < 0.5
            if good:
                self._subject.configure(level=self._chosen.choice(["info", "debug"]))
            else:
                bad = ["no_such_key = 1", "plugin_timeout = never", "[", "ssl = false"]
                self._subject.configure(more=self._chosen.choice(bad))
            told = "are read again" if good else "the settings are refused"
            what = f"with {'good' if good else 'bad'} settings"
            with contextlib.closing(self._subject.follow()) as log:
                self._subject.reload()
                give_up = time.monotonic() + _RELOADED_WITHIN
                while not log.says(told) and not stop.wait(0.1):
                    if time.monotonic() > give_up:
                        self._tally.find(f"SIGHUP {what}: not told")
                        break
                else:
                    self._tally.count(f"SIGHUPs {what}")
        self._subject.configure()
