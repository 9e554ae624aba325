"""Reads a conf file, and checks it against its table of settings (contract 5.8, 6).

Checked are known keys and typed values; each has its line. Configobj reads the lines, without
interpolation and without list values. This module adds:

- Every value has the number of its line, for messages.
- Quotes of either kind around a whole value are removed. Triple quotes are refused, because every
  value is one line.
- A ``#`` begins a comment only after white space. ``regex = a#b`` is refused, because configobj
  would keep only ``a``; ``regex = 'a#b'`` is read whole. ``,``, ``;`` and ``=`` are plain
  characters of a value, quoted or not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

import configobj

from ovirt_scheduler.errors import FileMistake
from ovirt_scheduler.model.values import spelling
from ovirt_scheduler.security import trust
from ovirt_scheduler.settings.value_types import Key

ErrorType = type[FileMistake]  # what to raise about the file

_LARGEST = 1 << 20  # bytes of a file
_LONGEST = 4096  # characters of a line; configobj takes time with the square of it
_LONGEST_NAME = 128  # characters of a key, or of a section's name
_DEEPEST = 2  # levels of sections
_MOST_UNREADABLE = 10  # lines that are told; after each, the others are read anew
_MOST_TOLD = 10  # mistakes of a file
_SHOWN = 60  # characters of a file's text that a message repeats
# Of text that may hold one, as a URL with an @ may, no message repeats the value.
_PASSWORD = re.compile("(?i)password|@")
# A key of this form is repeated. Any other may be a part of a value that stands on its own line.
_KEY = re.compile(r"[A-Za-z_]+(?:[ .-][A-Za-z_]+)*")


class Entry(NamedTuple):
    """One ``key = value`` of a file, or the header of a section, which has no key and no value.

    Attributes:
        section: empty above the first section.
        value: without the quotes around it.
        line: its number, from 1.
        subsection: the section in ``section``; empty: the entry stands in none.
    """

    section: str
    key: str
    value: str
    line: int
    subsection: str = ""


def content(path: Path, error_type: ErrorType, trusted: bool = False) -> bytes:
    """Read a conf file, or another file that somebody edits.

    Args:
        path: of the file.
        error_type: what to raise about it.
        trusted: whether to refuse what other users could change or remove.

    Raises:
        FileNotFoundError: there is no such file.
        error_type: it is no plain file, a link to nothing, too long, unreadable, or not trusted.
    """
    try:
        problem = trust.tampering(path.absolute()) if trusted else None  # also of one that is gone
        if path.exists() and not path.is_file():
            problem = "is not a plain file; put one in its place"
        if not problem:
            with open(path, "rb", opener=_open_at_once) as file:
                data = file.read(_LARGEST + 1)
            if len(data) <= _LARGEST:
                return data
            problem = f"is longer than {_LARGEST >> 10} KiB; make it shorter"
    except FileNotFoundError:
        if not path.is_symlink():
            raise
        problem = "links to nothing; mend the link, or remove it"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}; see its owner and mode"
    raise error_type(problem, str(path))


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting, even if it is a pipe by now."""
    return os.open(path, flags | os.O_NONBLOCK)


class Mistakes:
    """The mistakes of one file.

    Args:
        path: where the file is, for messages.
        error_type: of each of them.
    """

    def __init__(self, path: Path, error_type: ErrorType) -> None:
        self._path, self._error_type = str(path), error_type
        self._noted: list[FileMistake] = []

    def exception(self, problem: str, line: Optional[int] = None) -> FileMistake:
        """The exception to raise about a line; None: about the file."""
        return self._error_type(problem, self._path, line)

    def note(self, problem: str, line: Optional[int] = None) -> None:
        """Note a mistake, to be raised with the others."""
        self._noted.append(self.exception(problem, line))

    def has(self, words: str) -> bool:
        """Whether one of them is told in these words."""
        return any(words in mistake.message for mistake in self._noted)

    def check(self) -> None:
        """Check that there are none.

        Raises:
            FileMistake: the file's ``error_type``, with all of them.
        """
        mistakes = sorted(self._noted, key=lambda mistake: mistake.line or 0)
        more = len(mistakes) - _MOST_TOLD
        if more > 0:
            mistakes[_MOST_TOLD:] = [self.exception(f"{more} more mistakes follow")]
        if mistakes:
            raise self._error_type.together(mistakes)


class Section:
    """The settings of one section: ``section["key"]`` is a value.

    ``"key" in section`` says whether the file sets it, under any of its names.

    Attributes:
        mistakes: what is wrong in the file, all of it.
        keys: the table, by each name that a key has.
        values: each key with its typed value: the file's, or else the default.
        line: where it begins, if that is a line to show.
        lines: each key with its line, or the section's if the file does not set it.
    """

    def __init__(
        self, mistakes: Mistakes, table: Collection[Key], name: str = "", line: Optional[int] = None
    ) -> None:
        """Make a section that sets nothing yet.

        Args:
            mistakes: of the file; those of the section are added.
            name: as it stands in the file: ``[engine]``, or empty above the sections.
            line: where it begins, if that is a line to show.
        """
        self.mistakes = mistakes
        self.keys = {name: key for key in table for name in (key.name, *key.other_names)}
        self.values: dict[str, Any] = {key.name: key.default_value for key in table}
        self.line = line
        self.lines = dict.fromkeys(self.values, line)
        self._prefix = f"{name} ".lstrip()
        self._entries: dict[str, Entry] = {}

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def refuse(self, key: str, problem: str, line: Optional[int] = None) -> None:
        """Note a mistake about a key; ``mistakes.check`` raises it.

        Args:
            line: unless it is the key's own.
        """
        self.mistakes.note(f"{self._prefix}{key}: {problem}", line or self.lines[key])

    def add(self, entry: Entry) -> None:
        """Add an entry, whose key is in the table: its value is the one in use.

        A value that is not allowed, or other than the key has already, is a mistake.
        """
        key = self.keys[entry.key]
        before = self._entries.setdefault(key.name, entry)
        if before.value != entry.value:
            problem = f"is {before.key} by another name, which line {before.line} sets to "
            problem += f"{before.value:.60}; keep one of the two"
            self.refuse(entry.key, problem, entry.line)
            return
        self.lines[key.name] = entry.line
        try:
            self.values[key.name] = key.cast(entry.value)
        except ValueError:
            value = repr(entry.value[:60]) if entry.value else "nothing"
            actual = "" if _PASSWORD.search(f"{key.name} {entry.value}") else f", not {value}"
            self.refuse(key.name, f"expected {key.allowed}{actual}")


class ConfFile(Section):
    """A conf file. It is itself the section above the others.

    Attributes:
        sections: by their names, whether the file has them or not. One that holds sections, such
            as ``[clusters]``, has their keys, and sets none itself.
        subsections: the file's sections in a section, by the names of both.
    """

    def __init__(
        self,
        data: bytes,
        path: Path,
        error_type: ErrorType,
        table: Collection[Key],
        subsection_tables: Mapping[str, tuple[Key, ...]] = MappingProxyType({}),
    ):
        """Read a file and check it.

        Args:
            data: what is in it.
            path: where it is, for messages.
            table: its keys, those of sections included.
            subsection_tables: a section to the keys of each section in it.

        Raises:
            error_type: each mistake with the file, the line and the key; with what is allowed,
                where the key belongs, or the nearest one.
        """
        tables: dict[str, tuple[Key, ...]] = {"": (), **subsection_tables}
        for key in table:
            tables[key.section] = (*tables.get(key.section, ()), key)
        super().__init__(Mistakes(path, error_type), tables.pop(""))
        self.sections = {
            name: Section(self.mistakes, keys, f"[{name}]") for name, keys in tables.items()
        }
        self.subsections: dict[str, dict[str, Section]] = {name: {} for name in subsection_tables}
        self._subsection_tables = subsection_tables
        for entry in entries(data, self.mistakes):
            if entry.key:
                self._add(entry)
            else:
                self._open(entry)
        self.mistakes.check()

    def _open(self, header: Entry) -> None:
        """Begin a section, if the file may have it."""
        section, line = header.section, header.line
        names = self.subsections if header.subsection else self.sections
        shown = f"[{_section_words(section)}]"
        shown += f" [[{_section_words(header.subsection)}]]" if header.subsection else ""
        if section not in names:
            if not header.subsection or section in self.sections:  # else that has been told
                self.mistakes.note(f"{shown}: {_unknown('section', section, names)}", line)
        elif header.subsection:
            self.subsections[section][header.subsection] = Section(
                self.mistakes, self._subsection_tables[section], shown, line
            )

    def _add(self, entry: Entry) -> None:
        """Add an entry to its section; what stands in one that may not be there is passed over."""
        section = self.sections.get(entry.section) if entry.section else self
        if entry.subsection:
            section = self.subsections.get(entry.section, {}).get(entry.subsection)
        if section is None:
            return
        misplaced = entry.section in self.subsections and not entry.subsection
        if entry.key in section.keys and not misplaced:
            section.add(entry)
            return
        problem = self._place_of(entry.key) or _unknown("key", entry.key, section.values)
        if self.mistakes.has(problem):  # the long list, once
            problem = problem.partition(";")[0]
        section.refuse(_key_words(entry.key), problem, entry.line)

    def _place_of(self, key: str) -> str:
        """Where a key belongs; empty if there is none of that name."""
        if key in self.keys:
            return "belongs above the sections"
        name = next((name for name, each in self.sections.items() if key in each.keys), None)
        if name in self.subsections:
            return f"belongs in a section in [{name}]: [[name]]"
        return "" if name is None else f"belongs in the section [{name}]"


def _unknown(what: str, word: str, names: Collection[str]) -> str:
    """The message that a section or key does not exist, with the name that may be meant."""
    allowed = f"known are {', '.join(names)}" if names else f"this file takes no {what}"
    return f"there is no such {what}{spelling.hint(word, names) or f'; {allowed}'}"


def entries(data: bytes, mistakes: Mistakes) -> list[Entry]:
    """The entries of a conf file in their order, the headers of its sections too.

    A mistake is a control character, or an invisible one outside of comments, a line or name that
    is too long, a line that is neither ``key = value`` nor ``[section]`` nor a comment, a key or
    section that occurs twice, a section three levels down, quotes that do not match, or an
    ambiguous ``#``.

    Args:
        mistakes: those in lines that are no entries are added.

    Raises:
        FileMistake: it is no text that could be read line by line.
    """
    lines = text_lines(data, mistakes)
    return _located_entries(_parsed(lines, mistakes), lines, mistakes)


def _parsed(lines: list[str], mistakes: Mistakes) -> configobj.ConfigObj:
    """The lines that can be read. The others become empty; after a header none is read."""
    for _ in range(_MOST_UNREADABLE):
        try:
            # Ends at the first mistake: the lines that take longest to read are no good ones.
            return configobj.ConfigObj(
                lines, interpolation=False, list_values=False, encoding="utf-8", raise_errors=True
            )
        except configobj.ConfigObjError as error:
            index = error.line_number - 1
            is_header = lines[index].startswith("[")
            rest = "; what follows is not looked at" if is_header and lines[index + 1 :] else ""
            mistakes.note(f"{_unreadable(error)}{rest}", error.line_number)
            lines[index:] = [] if is_header else ["", *lines[index + 1 :]]
    return configobj.ConfigObj()


def text_lines(data: bytes, mistakes: Mistakes) -> list[str]:
    """The lines of a conf file, without white space around them, whatever they say.

    Raises:
        FileMistake: it is not UTF-8, a line is too long, or holds a character that nobody sees.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise mistakes.exception("is not UTF-8 text here", number) from error
    lines = [line.strip(" \t\r") for line in text.split("\n")]
    for number, line in enumerate(lines, 1):
        if len(line) > _LONGEST:
            raise mistakes.exception(f"is longer than {_LONGEST} characters", number)
        hidden = _hidden(line)
        if hidden:
            problem = f"holds the character U+{ord(hidden):04X}, which is invisible; remove it"
            raise mistakes.exception(problem, number)
    return lines


def _hidden(line: str) -> str:
    """The first invisible character of a line; in a comment, only one that controls lines."""
    signs = (sign for sign in line if sign != "\t" and not sign.isprintable())
    if line.startswith("#"):
        signs = (sign for sign in signs if sign <= "\x9f" or sign in "\u2028\u2029")
    return next(signs, "")


def _unreadable(error: configobj.ConfigObjError) -> str:
    line = error.line.strip()
    key, equals, _ = line.partition("=")
    is_whole = line.startswith("[") or (equals and _KEY.fullmatch(key.strip()))
    if _PASSWORD.search(line) or not is_whole:
        word = key.partition(" ")[0]
        line = _key_words(word) if word == line else f"{word} …" if _KEY.fullmatch(word) else "…"
    line = line[:_SHOWN]
    if isinstance(error, configobj.DuplicateError):
        return f"`{line}`: occurs twice; keep one of the two"
    if isinstance(error, configobj.NestingError):
        return f"`{line}`: a section stands in `[name]`, one in a section in `[[name]]`"
    if equals and key.strip():
        return f"`{line}`: the quotes do not match, or text follows them"
    return f"`{line}`: expected `key = value`, `[section]`, or a comment that begins with #"


def _key_words(key: str) -> str:
    """What a message repeats of a key."""
    return key[:_SHOWN] if _KEY.fullmatch(key) else "…"


def _section_words(name: str) -> str:
    """What a message repeats of a section's name."""
    return "…" if _PASSWORD.search(name) else name


def _located_entries(
    config: configobj.ConfigObj, lines: list[str], mistakes: Mistakes
) -> list[Entry]:
    """The entries with their lines, counted with the comment lines that configobj keeps."""
    located: list[Entry] = []
    number = len(config.initial_comment)

    def visit(section: configobj.Section, name: str) -> None:
        """Add the entry of a key, or of a section's header; they come in the order of the file."""
        nonlocal number
        number += len(section.comments[name]) + 1
        outer, inner = section.name or "", ""
        if section.depth == _DEEPEST:
            outer, inner = section.parent.name, section.name
        if len(name) > _LONGEST_NAME:
            problem = f"`{_key_words(name)}`: the name goes on for {len(name)} characters"
            mistakes.note(f"{problem}; at most {_LONGEST_NAME}", number)
        elif section.depth > _DEEPEST:  # that has been told
            pass
        elif name in section.scalars:
            problem = _ambiguity(section, name, lines[number - 1])
            if problem:
                mistakes.note(f"{_key_words(name)}: {problem}", number)
            else:
                located.append(Entry(outer, name, _unquoted(section[name]), number, inner))
        elif inner:
            mistakes.note(
                f"[[{_section_words(inner)}]]: holds another section, three levels down", number
            )
        elif outer:
            located.append(Entry(outer, "", "", number, name))
        else:
            located.append(Entry(name, "", "", number))

    config.walk(visit, call_on_sections=True)
    return located


def _ambiguity(section: configobj.Section, key: str, line: str) -> str:
    """Why a value is ambiguous; empty if it is not."""
    value = line.partition("=")[2].strip()
    comment = section.inline_comments[key]
    if value.startswith(('"""', "'''")):
        return "triple quotes are not read here; a value is one line, in single quotes or none"
    if comment and not line[: -len(comment)][-1].isspace():
        return "a # in a value needs quotes around the value; a comment needs a space before it"
    inner = _unquoted(section[key])
    if inner != section[key] and section[key][0] in inner:
        return "the value holds the quotes that it stands in; use the other kind around it"
    return ""


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value
