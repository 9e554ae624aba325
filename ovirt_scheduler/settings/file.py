"""Checks a conf file against its table of settings: known keys, typed values, the line of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
        keys: the table, by name.
        values: each key with its typed value: the file's, or else the default.
        line: where it begins, if that is a line to show.
        lines: each key with its line, or the section's if the file does not set it.
    """

    def __init__(
        self,
        path: Path,
        error_type: ErrorType,
        table: Iterable[Key],
        name: str = "",
        line: Optional[int] = None,
    ) -> None:
        """Make a section that sets nothing yet.

        Args:
            name: as it stands in the file: ``[engine]``, or empty above the sections.
            line: where it begins, if that is a line to show.
        """
        self.keys = {key.name: key for key in table}
        self.values: dict[str, Any] = {
            name: None if key.default is None else key.cast(key.default)
            for name, key in self.keys.items()
        }
        self.line = line
        self.lines = dict.fromkeys(self.keys, line)
        self._path = path
        self._error_type = error_type
        self._prefix = f"{name} ".lstrip()
        self._by_every_name = {
            name: key for key in self.keys.values() for name in (key.name, *key.other_names)
        }
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

    def knows(self, name: str) -> bool:
        """Whether the table has a key of that name; a key may have several."""
        return name in self._by_every_name

    def read(self, entry: Entry) -> None:
        """Take the value of a key that the section knows.

        Raises:
            SchedulerError: the file's ``error_type``: the value is not allowed, or the key is set
                to another one already.
        """
        key = self._by_every_name[entry.key]
        before = self._entries.setdefault(key.name, entry)
        if before.value != entry.value:
            problem = f"is {before.key} by another name, which line {before.line} sets to "
            raise self.mistake(entry.key, f"{problem}{before.value:.60}", entry.line)
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
        table: Iterable[Key],
        subsection_tables: Mapping[str, Iterable[Key]] = MappingProxyType({}),
    ):
        """Read a file and check it.

        Args:
            data: what is in it.
            path: where it is, for messages.
            table: its keys, those of sections included.
            subsection_tables: a section to the keys of each section in it.

        Raises:
            error_type: at the first mistake, with the file, the line and the key; with what is
                allowed, or the nearest key.
        """
        by_section: dict[str, list[Key]] = {"": []}
        for key in table:
            by_section.setdefault(key.section, []).append(key)
        super().__init__(path, error_type, by_section.pop(""))
        self.sections = {
            name: Section(path, error_type, keys, f"[{name}]") for name, keys in by_section.items()
        }
        self.subsections: dict[str, dict[str, Section]] = {name: {} for name in subsection_tables}
        for entry in entries(data, path, error_type):
            if entry.key:
                self._section_of(entry).read(entry)
                continue
            name = f"[{entry.section}] [[{entry.subsection}]]"
            if entry.section not in subsection_tables:
                raise error_type(f"{name}: there is no such section", str(path), entry.line)
            self.subsections[entry.section][entry.subsection] = Section(
                path, error_type, subsection_tables[entry.section], name, entry.line
            )

    def _section_of(self, entry: Entry) -> Section:
        """The section that an entry is in, and that knows its key."""
        section: Optional[Section] = self
        if entry.subsection:
            section = self.subsections[entry.section][entry.subsection]
        elif entry.section:
            section = self.sections.get(entry.section)
        if section is None:
            words = f"[{entry.section}] {entry.key}: {self._not_a_section(entry.section)}"
            raise self._error_type(words, str(self._path), entry.line)
        if not section.knows(entry.key):
            raise section.mistake(entry.key, self._not_a_key(entry.key, section), entry.line)
        return section

    def _not_a_section(self, name: str) -> str:
        if name in self.subsections:
            return f"belongs in a section of its own there, [[name]] below [{name}]"
        known = [*self.sections, *self.subsections]
        return f"there is no such section{f'; {_nearest(name, known)}' if known else ''}"

    def _not_a_key(self, name: str, section: Section) -> str:
        if self.knows(name):
            return "belongs above the sections"
        for other, its_section in self.sections.items():
            if its_section.knows(name):
                return f"belongs in the section [{other}]"
        return f"there is no such key; {_nearest(name, section.keys)}"


def _nearest(word: str, names: Iterable[str]) -> str:
    meant = spelling.nearest(word, names)
    return f"known are {', '.join(names)}" if meant is None else f"did you mean {meant}?"
