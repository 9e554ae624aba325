"""The syntax of conf files: scheduler.conf and the plugins' (contract 5.8, 6).

configobj reads the lines, without interpolation and without list values. This module adds:

- Every value has the number of its line, for messages.
- Quotes of either kind around a whole value are removed. Triple quotes are refused, because every
  value is one line.
- A ``#`` begins a comment only after white space. ``regex = a#b`` is refused, because configobj
  would keep only ``a``; ``regex = 'a#b'`` is read whole. ``,``, ``;`` and ``=`` are plain
  characters of a value, quoted or not.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, NamedTuple, Optional, Union

from configobj import ConfigObj, ConfigObjError, DuplicateError, NestingError, Section

from ovirt_scheduler.errors import ConfigError, PluginError, ScenarioError, SchedulerError

ErrorType = Union[
    type[ConfigError], type[PluginError], type[ScenarioError]
]  # what to raise about the file

_Mistake = Callable[[str, Optional[int]], SchedulerError]  # of a problem and its line

LOOSE_LINK = "links to nothing; mend the link, or remove it"

_LARGEST = 1 << 20  # bytes of a conf file
_LONGEST = 4096  # characters of a line; configobj takes time with the square of it
_LONGEST_NAME = 128  # characters of a key, or of a section's name
_DEEPEST = 2  # levels of sections
_CONTROL = re.compile("[\x00-\x08\x0b\x0c-\x1f\x7f-\x9f\u2028\u2029]")
_SHOWN = 60  # characters of a file's text that a message repeats


class Entry(NamedTuple):
    """One ``key = value`` of a file.

    ``section`` is empty above the first section. The header of a section in a section,
    ``subsection``, is an entry without key and value.
    """

    section: str
    key: str
    value: str
    line: int
    subsection: str = ""


def content(path: Path, error_type: ErrorType) -> bytes:
    """Read the bytes of a conf file.

    Raises:
        FileNotFoundError: there is no such file.
        error_type: it is no regular file, a link to nothing, too large, or unreadable.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise error_type("is not a file", str(path))
        if status.st_size > _LARGEST:
            raise error_type(f"is larger than {_LARGEST} bytes", str(path))
        return path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise error_type(LOOSE_LINK, str(path)) from None
        raise
    except OSError as error:
        raise error_type(f"cannot be read: {error.strerror}", str(path)) from error


def entries(data: bytes, path: Path, error_type: ErrorType) -> tuple[Entry, ...]:
    """The entries of a conf file in their order. An empty section has none.

    Raises:
        error_type: it is not UTF-8; it has a control character, or an invisible one outside of
            comments, a line or name that is too long, a line that is neither ``key = value``
            nor ``[section]`` nor a comment, a key or section that occurs twice, a section three
            levels down, quotes that do not match, or an ambiguous ``#``.
    """

    def mistake(problem: str, line: Optional[int]) -> SchedulerError:
        return error_type(problem, str(path), line)

    lines = _lines(data, mistake)
    try:
        # Ends at the first mistake: the lines that take longest to read are no good ones.
        config = ConfigObj(
            lines, interpolation=False, list_values=False, encoding="utf-8", raise_errors=True
        )
    except ConfigObjError as error:
        raise mistake(_unreadable(error), error.line_number) from error
    return tuple(_walk(config, lines, mistake))


def _lines(data: bytes, mistake: _Mistake) -> list[str]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise mistake("is not UTF-8 text here", number) from error
    lines = [line.strip(" \t\r") for line in text.split("\n")]
    for number, line in enumerate(lines, 1):
        if len(line) > _LONGEST:
            raise mistake(f"is longer than {_LONGEST} characters", number)
        control = _CONTROL.search(line)
        if control:
            code = f"U+{ord(control[0]):04X}"
            raise mistake(f"holds the control character {code}", number)
        unseen = "" if line.startswith("#") else _unseen(line)
        if unseen:
            problem = f"holds the character U+{ord(unseen):04X}, which cannot be seen; take it out"
            raise mistake(problem, number)
    return lines


def _unseen(line: str) -> str:
    """The first invisible character of a line, which would hide what a value is."""
    return next((sign for sign in line if sign != "\t" and not sign.isprintable()), "")


def _unreadable(error: ConfigObjError) -> str:
    line = error.line.strip()[:_SHOWN]
    if isinstance(error, DuplicateError):
        return f"`{line}`: occurs twice; keep one of the two"
    if isinstance(error, NestingError):
        return f"`{line}`: a section stands in `[name]`, one in a section in `[[name]]`"
    key, equals, _ = line.partition("=")
    if equals and key.strip():
        return f"`{line}`: the quotes do not match, or text follows them"
    return f"`{line}`: expected `key = value`, `[section]`, or a comment that begins with #"


def _walk(config: ConfigObj, lines: list[str], mistake: _Mistake) -> Iterator[Entry]:
    """The entries with their lines, counted with the comment lines that configobj keeps."""
    number = len(config.initial_comment)
    for section, names in _sections(config):
        if section is not config:
            number += len(section.parent.comments[section.name]) + 1
            _check_name(section.name, number, mistake)
        if section.depth > _DEEPEST:
            problem = f"[[{section.parent.name}]]: holds another section, three levels down"
            raise mistake(problem, number)
        name, subsection = (*names, "", "")[:_DEEPEST]
        if subsection:
            yield Entry(name, "", "", number, subsection)
        for key in section.scalars:
            number += len(section.comments[key]) + 1
            _check_name(key, number, mistake)
            problem = _ambiguity(section, key, lines[number - 1])
            if problem:
                raise mistake(f"{key}: {problem}", number)
            yield Entry(name, key, _unquoted(section[key]), number, subsection)


def _check_name(name: str, number: int, mistake: _Mistake) -> None:
    if len(name) > _LONGEST_NAME:
        problem = f"`{name[:_SHOWN]}`: the name goes on for {len(name)} characters"
        raise mistake(f"{problem}; at most {_LONGEST_NAME}", number)


def _sections(section: Section, *names: str) -> Iterator[tuple[Section, tuple[str, ...]]]:
    """A section with its names, the outer one first, then the sections in it, in file order."""
    yield section, names
    for name in section.sections:
        yield from _sections(section[name], *names, name)


def _ambiguity(section: Section, key: str, line: str) -> str:
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
