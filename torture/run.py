"""The command: tortures a daemon for so many seconds, and reports; exit status 1: something broke.

``make torture`` (a minute), or ``make torture DURATION=300 SEED=7``.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

from torture.attacks import ATTACKS, Attacker
from torture.clients import PROPERTIES, GoodClient, calls
from torture.footing import Footing, settled
from torture.harm import Editor, Killer, Reloader
from torture.readers import Reader
from torture.report import Report
from torture.subject import Subject
from torture.tally import Tally

_WARM_SECONDS = 4.0  # of clients alone, before the footing is taken
_LATE_SECONDS = 27.0  # after the end, for all to be over: then the daemon is killed
_SLOW = 10  # calls in a hundred that go to plugins that misbehave
_DRAIN_SECONDS = 12.0  # for calls under way, at the end
_SETTLE_SECONDS = 8.0  # for processes and descriptors to be gone

Role = Callable[[threading.Event], None]


class Crowd:
    """Roles that are played at once, each in a thread, until they are told to stop."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def play(self, role: Role, name: str) -> None:
        thread = threading.Thread(target=self._guarded, args=(role, name), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guarded(self, role: Role, name: str) -> None:
        try:
            role(self._stop)
        except Exception as error:  # noqa: BLE001  nobody else would tell
            self._tally.find(f"{name} itself failed: {error!r}")

    def end(self) -> None:
        """Have them stop; who does not in time is a finding."""
        self._stop.set()
        give_up = time.monotonic() + _DRAIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, give_up - time.monotonic()))
        left = sum(thread.is_alive() for thread in self._threads)
        if left:
            self._tally.find(f"{left} clients still waited after {_DRAIN_SECONDS:g} s")


def torture(seed: int, duration: float, clients: int, folder: Path) -> Report:
    """Torture a daemon in this folder for so many seconds; it takes at most 30 more."""
    began = time.monotonic()
    tally = Tally()
    good = max(2, clients // 5)
    with Subject(folder, clients) as subject, bounded(subject, tally, duration):
        warm = Crowd(tally)
        admit(warm, subject, tally, good, clients - good, seed)
        watch(subject, tally, min(_WARM_SECONDS, duration / 4))
        warm.end()
        tally.counts.clear()
        before = settled(subject.pid, None, _SETTLE_SECONDS)
        say(f"warm: {before.processes} processes; now {clients} clients for {duration:g} s")
        crowd = Crowd(tally)
        admit(crowd, subject, tally, good, clients - good, seed)
        editor = Editor(subject, tally, random.Random(f"{seed} edits"))
        killer = Killer(subject, tally, random.Random(f"{seed} kills"))
        reloader = Reloader(subject, tally, random.Random(f"{seed} reloads"))
        for harmful in (killer, editor, reloader):
            crowd.play(harmful.run, type(harmful).__name__)
        crowd.play(Reader(subject, tally).run, "a reader of pages")
        threads = watch(subject, tally, began + duration - time.monotonic())
        crowd.end()
        after = aftermath(subject, tally, before, editor)
        kinds = {"good": good, "bad": clients - good}
        log = subject.unforeseen()
    for record in log[:5]:
        tally.find(f"unforeseen in the log:\n{record:.3000}")
    return Report(
        seed,
        time.monotonic() - began,
        kinds,
        dict(tally.counts),
        before,
        after,
        tally.findings,
        threads,
    )


def admit(crowd: Crowd, subject: Subject, tally: Tally, good: int, bad: int, seed: int) -> None:
    """Have so many good clients and so many bad ones begin."""
    for number in range(good):
        chosen = random.Random(f"{seed} good {number}")
        crowd.play(GoodClient(subject, tally, chosen, _SLOW).run, "a good client")
    for number in range(bad):
        attack = ATTACKS[number % len(ATTACKS)]
        chosen = random.Random(f"{seed} bad {number}")
        crowd.play(Attacker(attack, subject, tally, chosen).run, attack.__name__)


@contextlib.contextmanager
def bounded(subject: Subject, tally: Tally, duration: float) -> Iterator[None]:
    """See to it that all is over in time: who waits for a dead daemon waits no more."""

    def too_late() -> None:
        tally.find("it did not come to an end; the daemon was killed")
        subject.kill()

    timer = threading.Timer(duration + _LATE_SECONDS, too_late)
    timer.daemon = True
    timer.start()
    yield
    timer.cancel()


def watch(subject: Subject, tally: Tally, duration: float) -> str:
    """Wait for the time to be over, or the daemon.

    Returns:
        Where the daemon's threads were at the first finding; empty where there was none.
    """
    threads = ""
    end = time.monotonic() + duration
    while time.monotonic() < end and subject.alive:
        time.sleep(0.2)
        if tally.findings and not threads:
            threads = subject.threads()
    return threads


def aftermath(subject: Subject, tally: Tally, before: Footing, editor: Editor) -> Footing | None:
    """Calls and edits are as they were, and nothing is held that was not held before."""
    if not subject.alive:
        tally.find("the daemon has died")
        return None
    after = settled(subject.pid, before, _SETTLE_SECONDS)
    for wrong in before.regained(after):
        tally.find(f"not back where it began: {wrong}")
    if leftover(PROPERTIES["marker"]):
        tally.find("a process that a plugin started lives on")
    last = GoodClient(subject, tally, random.Random(0), slow=0)
    for call in calls(()):
        last.make(call)
        if tally.findings:
            break
    editor.once(threading.Event())
    return after


def leftover(marker: str) -> bool:
    """Whether a ``sleep`` runs that a plugin started."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0] == b"sleep" and marker.encode() in words:
            return True
    return False


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m torture.run", description=__doc__)
    parser.add_argument("--duration", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, help="of everything that is left to chance")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there as well")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        report = torture(seed, options.duration, options.clients, Path(name))
    if options.json is not None:
        options.json.write_text(report.as_json(), "utf-8")
    print(report.text())
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
