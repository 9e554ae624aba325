"""The reasons that units and drivers give for their decisions about hosts (contract 8.2)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ovirt_scheduler.model.values.text import count_of

LONGEST = 200  # characters for each host
_SHOWN = 60  # characters of a host that is not known


class Reasons:
    """The reasons of one call, for its hosts."""

    def __init__(self) -> None:
        self.begin(())

    def begin(self, hosts: Sequence[str]) -> None:
        """For the process of a call: forget the reasons of the call before."""
        self._hosts: Collection[str] = hosts
        self.texts: dict[str, str] = {}
        self._cut: set[str] = set()
        self._strangers = 0
        self._first_stranger = ""
        self._no_texts = 0

    def add(self, host: object, text: object) -> None:
        """Keep the text for the host, or count it as one that cannot be kept; see ``reason``."""
        if not isinstance(self._hosts, frozenset):  # most calls give no reason
            self._hosts = frozenset(self._hosts)
        key = host if isinstance(host, str) else getattr(host, "id", None)
        if not isinstance(key, str) or key not in self._hosts:
            self._strangers += 1
            self._first_stranger = self._first_stranger or f"{key!r:.{_SHOWN}}"
        elif not isinstance(text, str):
            self._no_texts += 1
        else:
            self._keep(key, text)

    def _keep(self, host: str, text: str) -> None:
        line = "; ".join(filter(None, (self.texts.get(host), _readable(text))))
        if line:
            self.texts[host] = line[:LONGEST]
        if len(line) > LONGEST or len(text) > 2 * LONGEST:
            self._cut.add(host)

    @property
    def notes(self) -> tuple[str, ...]:
        """A message about the reasons that could not be kept."""
        notes: list[str] = []
        if self._strangers:
            notes.append(
                "gave reasons for hosts that it was not given "
                f"({self._strangers} dropped, the first for {self._first_stranger})"
            )
        if self._no_texts:
            notes.append(f"gave reasons that are no text ({self._no_texts} dropped)")
        if self._cut:
            notes.append(
                f"gave reasons of more than {LONGEST} characters for "
                f"{count_of(len(self._cut), 'host')}; the rest is dropped"
            )
        return tuple(notes)


of_call = Reasons()  # of the call that runs


def reason(host: object, text: str) -> None:
    """Say why a host is removed, kept, costs what it costs, or is chosen.

    ``ovirt-scheduler why`` shows it beside the unit's name. Several reasons for one host are
    joined. A reason never fails the call: if it cannot be kept, the log says so.

    Args:
        host: one of those that the call was given, or its id.
        text: a sentence without its unit's name, such as "runs 12 VMs, maximum_vm_count is 10"; at
            most 200 characters for each host.
    """
    of_call.add(host, text)


def _readable(text: str) -> str:
    """The text on one line, with U+FFFD for each invisible character."""
    line = " ".join(text[: 2 * LONGEST].split())
    if line.isprintable():
        return line
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)
