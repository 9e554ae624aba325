"""The command: tortures two daemons behind HAProxy; exit status 1: something broke.

::

    good clients ──► HAProxy ──► daemon a ◄── an operator kills them, and restarts them, one at
    bad clients  ──►    of the manual ──► daemon b      a time, while systemd's part is played

``make torture TWINS=1`` (a minute), or with ``DURATION=300 SEED=7``.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Callable

from tests.support.processes import offspring
from tests.support.twins import CLIENTS, HAPROXY, PORT, Callers, Outcome, Twins
from torture.attacks import ATTACKS, Attacker
from torture.run import Crowd, say
from torture.tally import Tally

_SETTINGS = "drain_time = 5\nconnection_timeout = 4"
_BAD = 2 * len(ATTACKS)
_PAUSE = 2.0  # seconds, at most, between two deeds of the operator
_GONE = 5.0  # seconds, at most, until a killed one is started: HAProxy may notice, or not
_WITHIN = (
    60.0  # seconds for a daemon to be used again, and for the end of what was below a killed one
)


class Operator:
    """Kills one of the daemons, or has it stop, and starts it again, as systemd does."""

    def __init__(self, twins: Twins, tally: Tally, chosen: random.Random) -> None:
        self._twins, self._tally, self._chosen = twins, tally, chosen
        self.kills: list[tuple[float, float]] = []  # begin and end of each

    def run(self, stop: threading.Event) -> None:
        try:
            while not stop.wait(self._chosen.random() * _PAUSE):
                self._act()
        except Exception as error:  # noqa: BLE001  nobody else would tell
            self._tally.find(f"the operator failed: {error!r}")

    def _act(self) -> None:
        name = self._chosen.choice("ab")
        if self._chosen.random() < 0.5:
            self._kill(name)
            time.sleep(self._chosen.random() * _GONE)
        else:
            status = self._twins.daemons[name].stop()
            self._tally.count("restarts")
            if status != 0:
                self._tally.find(f"{name} ended with status {status}")
        self._twins.start(name)
        self._await(f"{name} is not used again", lambda: self._twins.is_up(name))

    def _kill(self, name: str) -> None:
        daemon = self._twins.daemons[name]
        below = offspring(daemon.pid)
        begun = time.monotonic()
        daemon.stop(signal.SIGKILL)
        self.kills.append((begun, time.monotonic()))
        self._tally.count("kills")
        self._await(
            f"processes of {name} live on",
            lambda: not any(Path(f"/proc/{pid}").exists() for pid in below),
        )

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        give_up = time.monotonic() + _WITHIN
        while not condition():
            if time.monotonic() > give_up:
                self._tally.find(what)
                return
            time.sleep(0.05)


class Front:
    """What an attacker needs to know of HAProxy."""

    def __init__(self, twins: Twins) -> None:
        self.address = twins.address(" "), PORT
        self.trust = twins.trust


def torture(seed: int, duration: float, folder: Path) -> Tally:
    """Torture two daemons in this folder; it takes at most a minute more."""
    tally = Tally()
    with contextlib.closing(Twins(folder, _SETTINGS, keeps=True)) as twins:
        operator = Operator(twins, tally, random.Random(f"{seed} operator"))
        while not (twins.is_up("a") and twins.is_up("b")):
            time.sleep(0.05)
        crowd, front = Crowd(tally), Front(twins)
        with Callers(twins) as callers:
            for number in range(_BAD):
                attack = ATTACKS[number % len(ATTACKS)]
                chosen = random.Random(f"{seed} bad {number}")
                crowd.play(Attacker(attack, front, tally, chosen).run, attack.__name__)
            stop = threading.Event()
            working = threading.Thread(target=operator.run, args=(stop,))
            working.start()
            say(f"{CLIENTS} good clients and {_BAD} bad ones for {duration:g} s")
            time.sleep(duration)
            stop.set()
            working.join()  # what was begun is ended, which takes a while
            crowd.end()
        judge(callers.outcomes, operator.kills, tally)
        for name, daemon in twins.daemons.items():
            if "Traceback" in daemon.log:
                tally.find(f"unforeseen in the log of {name}")
    return tally


def judge(outcomes: Sequence[Outcome], kills: Sequence[tuple[float, float]], tally: Tally) -> None:
    """Only a call that was under way when a daemon was killed may fail."""
    for each in outcomes:
        hit = any(each.begun <= end and each.ended >= begin for begin, end in kills)
        if each.daemon in ("a", "b"):
            tally.count(f"answered by {each.daemon}")
        elif hit:
            tally.count("failed: under way when a daemon was killed")
        else:
            tally.find(f"a call failed, and no daemon was killed meanwhile: {each}")
    answered = [each.ended - each.begun for each in outcomes if each.daemon]
    tally.count("longest call in milliseconds", round(1000 * max(answered, default=0.0)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m torture.twins", description=__doc__)
    parser.add_argument("--duration", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, help="of everything that is left to chance")
    options = parser.parse_args()
    if HAPROXY is None:
        parser.error("haproxy is not here: apt-get install haproxy")
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    with tempfile.TemporaryDirectory(prefix="torture-") as name:
        tally = torture(seed, options.duration, Path(name))
    print(f"seed {seed}\n")
    for what in sorted(tally.counts):
        print(f"{what:46} {tally.counts[what]:,}")
    print()
    for finding in tally.findings[:5]:
        print(f"did not hold: {finding}")
    if not tally.findings:
        print("Everything held.")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
