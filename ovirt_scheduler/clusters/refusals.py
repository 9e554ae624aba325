"""Remembers what the engine refused, so that it is not asked for again and again.

::

    refused, or failed        the host is closed to the VM for ``refused_pause``; two such hosts
                              close the VM: it stays where it is
    not offered               the engine, asked before, would not take the VM there: the host is
                              closed for the same time. It is no refusal.
    others took the VM back   the VM is closed for an hour

A host that has refused a VM is doubtful for an hour: the VM goes to another one, if it can.

Pure: the time comes with each call, in seconds of any clock that is never set back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ovirt_scheduler.model.plans import Obstacle, Refusal, Step

_HOUR = 3600.0
_MOST_HOSTS = 2  # that may refuse a VM, before it is closed

ANY_HOST = ""
NOT_OFFERED = "the engine does not offer that host for it"
NO_HOST = "the engine offers no other host for it"


class Refusals:
    """The refusals of one cluster.

    Args:
        pause: seconds for which a host is closed.
        records: the refusals of the last hour; brought up to date here, to be saved elsewhere.
    """

    def __init__(self, pause: float, records: list[Refusal]) -> None:
        self._pause = pause
        self._records = records
        self._missing: dict[str, tuple[float, frozenset[str]]] = {}  # hosts by VM, and since when

    def add(self, step: Step, obstacle: Obstacle, reason: str, now: float) -> bool:
        """Close the target of a migration to its VM; without a target, close the VM.

        Args:
            reason: in the engine's words, where it has some.

        Returns:
            Whether it is news: it was not refused so within the hour.
        """
        key, recent = (step.vm, step.target), self._of_last_hour(now)
        former = next((refusal for refusal in recent if refusal.key == key), None)
        since = now if former is None else former.since
        names = step.vm_name, step.target_name
        latest = Refusal(step.vm, step.target, obstacle, reason, *names, since, now)
        self._records[:] = [*(refusal for refusal in recent if refusal is not former), latest]
        return former is None or (former.obstacle, former.reason) != (obstacle, reason)

    def note_offer(self, vm: str, missing: Iterable[str], now: float) -> None:
        """Close the hosts that the engine did not offer for a VM."""
        self._missing = {
            key: offer for key, offer in self._missing.items() if now < offer[0] + self._pause
        }
        self._missing[vm] = now, frozenset(missing)

    def current(self, now: float) -> list[Refusal]:
        """The refusals that close something now, the oldest first."""
        recent = self._of_last_hour(now)
        return [refusal for refusal in recent if now < refusal.latest + self._length(refusal)]

    def closed(self, now: float) -> dict[str, dict[str, str]]:
        """By VM the hosts that are closed to it, and why; ``ANY_HOST``: the VM is closed."""
        closed: dict[str, dict[str, str]] = {}
        for refusal in self.current(now):
            closed.setdefault(refusal.vm, {})[refusal.host] = refusal.words
        for hosts in closed.values():
            if len(hosts) >= _MOST_HOSTS:
                hosts.setdefault(ANY_HOST, "; ".join(hosts.values()))
        for vm, (since, missing) in self._missing.items():
            if now < since + self._pause:
                closed[vm] = {**dict.fromkeys(missing, NOT_OFFERED), **closed.get(vm, {})}
        return closed

    def doubtful(self, now: float) -> Mapping[str, frozenset[str]]:
        """By VM the hosts that have refused it within the hour."""
        doubtful: dict[str, frozenset[str]] = {}
        for refusal in self._of_last_hour(now):
            if refusal.host:
                hosts = doubtful.get(refusal.vm, frozenset())
                doubtful[refusal.vm] = hosts | {refusal.host}
        return doubtful

    def _length(self, refusal: Refusal) -> float:
        """For how many seconds it closes something."""
        return _HOUR if refusal.obstacle is Obstacle.TAKEN_BACK else self._pause

    def _of_last_hour(self, now: float) -> list[Refusal]:
        """The refusals of the last hour, or of the pause if that is longer."""
        longest = max(_HOUR, self._pause)
        return [refusal for refusal in self._records if now < refusal.latest + longest]
