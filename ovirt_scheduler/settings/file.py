"""Checks a conf file against its table of settings: known keys, typed values, the line of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional

from ovirt_scheduler.errors import SchedulerError
from ovirt_scheduler.model import spelling
from ovirt_scheduler.settings.syntax import Entry, ErrorType, entries
from ovirt_scheduler.settings.values import Key


class Section:
    """The settings of one section: ``section["key"]`` is a value.

    ``"key" in section`` says whether the file sets it, under any of its names.

    Attributes:
        keys: the table, by each name that a key has.
        values: each key with its typed value: the file's, or else the default.
        line: where it begins, if that is a line to show.
        lines: each key with its line, or the section's if the file does not set it.
    """

    def __init__(
        self,
        path: Path,
        error_type: ErrorType,
        table: Collection[Key],
        name: str = "",
        line: Optional[int] = None,
    ) -> None:
        """Make a section that sets nothing yet.

        Args:
            name: as it stands in the file: ``[engine]``, or empty above the sections.
            line: where it begins, if that is a line to show.
        """
        self.keys = {name: key for key in table for name in (key.name, *key.other_names)}
        self.values: dict[str, Any] = {
            key.name: None if key.default is None else key.cast(key.default) for key in table
        }
        self.line = line
        self.lines = dict.fromkeys(self.values, line)
        self._path = path
        self._error_type = error_type
        self._prefix = f"{name} ".lstrip()
        self._entries: dict[str, Entry] = {}

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def mistake(self, key: str, problem: str, line: Optional[int] = None) -> SchedulerError:
        """The exception to raise about a key.

        Args:
            line: unless it is the key's own.
        """
        words = f"{self._prefix}{key}: {problem}"
        return self._error_type(words, str(self._path), line or self.lines[key])

    def read(self, entry: Entry) -> None:
        """Take the value of a key that is in the table.

        Raises:
            SchedulerError: the file's ``error_type``: the value is not allowed, or the key is set
                to another one already.
        """
        key = self.keys[entry.key]
        before = self._entries.setdefault(key.name, entry)
        if before.value != entry.value:
            problem = f"is {before.key} by another name, which line {before.line} sets to "
            problem += f"{before.value:.60}; keep one of the two"
            raise self.mistake(entry.key, problem, entry.line)
        self.lines[key.name] = entry.line
        try:
            self.values[key.name] = key.cast(entry.value)
        except ValueError:
            value = repr(entry.value[:60]) if entry.value else "nothing"
            raise self.mistake(key.name, f"expected {key.allowed}, not {value}") from None


class ConfFile(Section):
    """A conf file. It is itself the section above the others.

    Attributes:
        sections: the table's own sections by their names, whether the file has them or not.
        subsections: the file's sections in a section, such as those in ``[clusters]``, by the
            names of both.
    """

    def __init__(
        self,
        data: bytes,
        path: Path,
        error_type: ErrorType,
        table: Collection[Key],
        subsection_tables: Mapping[str, Collection[Key]] = MappingProxyType({}),
    ):
        """Read a file and check it.

        Args:
            data: what is in it.
            path: where it is, for messages.
            table: its keys, those of sections included.
            subsection_tables: a section to the keys of each section in it.

        Raises:
            error_type: at the first mistake, with the file, the line and the key; with what is
                allowed, where the key belongs, or the nearest one.
        """
        by_section: dict[str, list[Key]] = {"": []}
        for key in table:
            by_section.setdefault(key.section, []).append(key)
        super().__init__(path, error_type, by_section.pop(""))
        self.sections = {
            name: Section(path, error_type, keys, f"[{name}]") for name, keys in by_section.items()
        }
        self.subsections: dict[str, dict[str, Section]] = {name: {} for name in subsection_tables}
        # What a section in each of these may set; they themselves set nothing.
        self._outer = {
            name: Section(path, error_type, keys, f"[{name}]")
            for name, keys in subsection_tables.items()
        }
        for entry in entries(data, path, error_type):
            if entry.key:
                self._section_of(entry).read(entry)
                continue
            name = f"[{entry.section}] [[{entry.subsection}]]"
            if entry.section not in self._outer:
                hint = spelling.hint(entry.section, self._outer)
                raise error_type(f"{name}: there is no such section{hint}", str(path), entry.line)
            self.subsections[entry.section][entry.subsection] = Section(
                path, error_type, subsection_tables[entry.section], name, entry.line
            )

    def _section_of(self, entry: Entry) -> Section:
        """The section of an entry; its table has the entry's key."""
        known = {"": self, **self.sections, **self._outer}
        section = known.get(entry.section)
        if section is None:
            problem = _unknown("section", entry.section, list(known)[1:])
            words = f"[{entry.section}] {entry.key}: {problem}"
            raise self._error_type(words, str(self._path), entry.line)
        if entry.subsection:
            section = self.subsections[entry.section][entry.subsection]
        if entry.key not in section.keys or section in self._outer.values():
            problem = self._place_of(entry.key) or _unknown("key", entry.key, section.values)
            raise section.mistake(entry.key, problem, entry.line)
        return section

    def _place_of(self, key: str) -> str:
        """Where a key belongs; empty if there is none of that name."""
        places: dict[str, Section] = {"above the sections": self}
        places.update((f"in the section [{name}]", each) for name, each in self.sections.items())
        places.update(
            (f"in a section in [{name}]: [[name]]", each) for name, each in self._outer.items()
        )
        return next((f"belongs {place}" for place, each in places.items() if key in each.keys), "")


def _unknown(what: str, word: str, names: Collection[str]) -> str:
    """The message that a section or key does not exist, with the name that may be meant."""
    meant = spelling.nearest(word, names)
    known = f"known are {', '.join(names)}" if names else f"this file takes no {what}"
    return f"there is no such {what}; {known if meant is None else f'did you mean {meant}?'}"
