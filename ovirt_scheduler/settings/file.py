"""A conf file held to its table: known keys, good values, and whose line a mistake is on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from configobj import ConfigObj, flatten_errors

from ovirt_scheduler.errors import SchedulerError
from ovirt_scheduler.model import near
from ovirt_scheduler.settings.syntax import Entry, Mistake, entries
from ovirt_scheduler.settings.table import Key, configspec
from ovirt_scheduler.settings.values import check_functions

try:
    from configobj.validate import Validator
except ImportError:  # configobj 5.0.6, where it is a module of its own
    from validate import Validator


class ConfFile:
    """The values of one file, each checked by itself and typed; None where not set.

    ``conf["key"]`` is a value above the sections.
    """

    def __init__(
        self,
        data: bytes,
        path: Path,
        table: Tuple[Key, ...],
        mistake: Mistake,
        inner_tables: Mapping[str, Tuple[Key, ...]] = MappingProxyType({}),
    ):
        """Check a file against its tables.

        Args:
            inner_tables: for each section that holds sections, named as one likes, what is in
                each of those.

        Raises:
            mistake: with the file, the line and the key; what is allowed, or the nearest key.
        """
        found = entries(data, path, mistake)
        outer = [entry for entry in found if not entry.inner]
        self._sheet = _Sheet(outer, path, table, mistake, tuple(inner_tables))
        self._inner: Dict[str, Dict[str, _Sheet]] = {section: {} for section in inner_tables}
        for header in found:
            if not header.inner or header.key:
                continue
            if header.section not in inner_tables:
                place = f"[{header.section}] [[{header.inner}]]"
                raise mistake(f"{place}: there is no such section", str(path), header.line)
            own = [
                replace(entry, section="")
                for entry in found
                if entry.key and (entry.section, entry.inner) == (header.section, header.inner)
            ]
            self._inner[header.section][header.inner] = _Sheet(
                own, path, inner_tables[header.section], mistake, within=header
            )

    def __getitem__(self, name: str) -> Any:
        return self._sheet.values[name]

    def section(self, name: str) -> Dict[str, Any]:
        return dict(self._sheet.values[name])

    def inner(self, section: str) -> Dict[str, Dict[str, Any]]:
        """The values of each section in a section, by its name."""
        return {name: dict(sheet.values) for name, sheet in self._inner[section].items()}

    def line(self, name: str, section: str, inner: str) -> Optional[int]:
        """The line of a key of a section in a section; of that section, where it is not set."""
        return self._inner[section][inner].line(name)

    def has(self, name: str, section: str = "") -> bool:
        """Whether the file itself sets the key."""
        return self._sheet.entry(name, section) is not None

    def mistake(
        self, name: str, problem: str, section: str = "", inner: str = ""
    ) -> SchedulerError:
        """The exception to raise about a key, on its line where the file has it."""
        if inner:
            return self._inner[section][inner].mistake(name, problem)
        return self._sheet.mistake(name, problem, section)


class _Sheet:
    """Entries held to one table; those of an inner section have no section here."""

    def __init__(
        self,
        found: Sequence[Entry],
        path: Path,
        table: Tuple[Key, ...],
        mistake: Mistake,
        outer_sections: Tuple[str, ...] = (),
        within: Optional[Entry] = None,
    ) -> None:
        self._path = path
        self._mistake = mistake
        self._outer_sections = outer_sections
        self._within = within
        self._keys = {
            (name, key.section): key for key in table for name in (key.name, *key.other_names)
        }
        self._entries: Dict[Key, Entry] = {}
        for entry in found:
            self._take(entry)
        self.values = self._checked(configspec(table))

    def entry(self, name: str, section: str) -> Optional[Entry]:
        return self._entries.get(self._keys[name, section])

    def line(self, name: str, section: str = "") -> Optional[int]:
        entry = self.entry(name, section) or self._within
        return entry.line if entry else None

    def mistake(self, name: str, problem: str, section: str = "") -> SchedulerError:
        return self._at(self.line(name, section), self._shown(name, section), problem)

    def _at(self, line: Optional[int], shown: str, problem: str) -> SchedulerError:
        return self._mistake(f"{shown}: {problem}", str(self._path), line)

    def _shown(self, name: str, section: str) -> str:
        if self._within is not None:
            return f"[{self._within.section}] [[{self._within.inner}]] {name}"
        return f"[{section}] {name}" if section else name

    def _take(self, entry: Entry) -> None:
        key = self._keys.get((entry.key, entry.section))
        if key is None:
            shown = self._shown(entry.key, entry.section)
            raise self._at(entry.line, shown, self._unknown(entry))
        before = self._entries.setdefault(key, entry)
        if before.value != entry.value:
            raise self._at(
                entry.line,
                entry.key,
                f"is {before.key} by another name, which line {before.line} sets to "
                f"{before.value:.60}",
            )

    def _unknown(self, entry: Entry) -> str:
        if entry.section in self._outer_sections:
            return f"belongs in a section of its own there, [[name]] below [{entry.section}]"
        sections = {section for _, section in self._keys}
        if entry.section not in sections:
            names = [section for section in (*sections, *self._outer_sections) if section]
            known = f"; {_nearest(entry.section, names)}" if names else ""
            return f"there is no such section{known}"
        for section in sections:
            if (entry.key, section) in self._keys:
                return (
                    f"belongs {f'in the section [{section}]' if section else 'above the sections'}"
                )
        keys = [key.name for key in self._keys.values() if key.section == entry.section]
        return f"there is no such key; {_nearest(entry.key, list(dict.fromkeys(keys)))}"

    def _checked(self, spec: List[str]) -> ConfigObj:
        values: Dict[str, Any] = {}
        for key, entry in self._entries.items():
            (values.setdefault(key.section, {}) if key.section else values)[key.name] = entry.value
        config = ConfigObj(
            values, configspec=spec, interpolation=False, list_values=False, encoding="utf-8"
        )
        outcome = config.validate(Validator(check_functions()), preserve_errors=True)
        refused = {
            self._keys[name, "".join(sections)]
            for sections, name, _ in flatten_errors(config, outcome)
        }
        for key, entry in self._entries.items():
            if key in refused:
                value = repr(entry.value[:60]) if entry.value else "nothing"
                raise self.mistake(key.name, f"expected {key.allowed}, not {value}", key.section)
        return config


def _nearest(word: str, names: List[str]) -> str:
    meant = near.nearest(word, names)
    return f"known are {', '.join(names)}" if meant is None else f"did you mean {meant}?"
