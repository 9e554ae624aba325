"""Makes an answer of what a plugin's function returned or printed.

Entities become their ids, numbers become integers; anything else is refused with a sentence
that says what was expected (contract 5.2, 5.3). Which hosts and VMs were given is not known here.
"""

from __future__ import annotations

import ast
import contextlib
import math
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Callable, Optional, Union

from ovirt_scheduler.model.aggregate import whole_cost
from ovirt_scheduler.model.results import Migration
from ovirt_scheduler.model.tasks import Function, Returns
from ovirt_scheduler.model.values.text import NOT_IN_XML, one_line
from ovirt_scheduler.processes.protocol.packed_answers import MOST_CHARACTERS, MOST_VALUES

# Larger than any cost that counts (contract 3.6), and still a number that JSON carries.
_HUGE = 10**18

_NO_LITERAL = object()
# A list of ids as print() writes it. Python's parser takes forty times as long to read it.
_LIST_OF_IDS = re.compile(r"\['[^'\\\x00-\x1f]*'(?:, '[^'\\\x00-\x1f]*')*\]")
_SHOWN = 80  # characters of what was returned, in a message
_MOST_LEVELS = 16  # arrays and structs within each other


class BadAnswer(Exception):
    """The plugin returned something that its function must not return."""


class Yielded(list[object]):
    """What a function yielded; ``returned`` is what it returned besides."""

    returned: object = None

    def __init__(self, generator: Generator[object, None, object]) -> None:
        """Go through the generator to its end."""
        super().__init__(self._until_end(generator))

    def _until_end(self, generator: Generator[object, None, object]) -> Iterator[object]:
        self.returned = yield from generator


def accepted_hosts(value: object) -> tuple[str, ...]:
    """The ids of the hosts that a filter keeps."""
    return tuple(map(entity_id, items(value, "the hosts to keep")))


def costs(value: object) -> dict[str, int]:
    """The cost of each host, as a cost function returned it."""
    expected = "(host, cost) pairs or a dict of them"
    pairs = value.items() if isinstance(value, Mapping) else items(value, expected)
    costs_by_host: dict[str, int] = {}
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise BadAnswer(f"returned {_shown(pair)} among the costs; expected {expected}")
        host = entity_id(pair[0])
        try:
            cost = whole_cost(pair[1])
        except ValueError as error:
            raise BadAnswer(f"returned a bad cost for host {host}: {error}") from None
        costs_by_host[host] = cost if -_HUGE < cost < _HUGE else max(-_HUGE, min(_HUGE, cost))
    return costs_by_host


def migration(value: object) -> Optional[Migration]:
    """The VM and the hosts that a balance returned; None if there is nothing to do."""
    expected = "a VM and the hosts it may go to, or None"
    if value is None:
        return None
    if isinstance(value, Mapping):  # {vm: hosts}
        parts = [part for item in value.items() for part in item]
    else:
        parts = items(value, expected)
    if not parts or (len(parts) == 2 and parts[0] in (None, "")):
        return None
    if len(parts) != 2 or parts[1] is None:
        raise BadAnswer(f"returned {_shown(value)}; expected {expected}")
    vm, hosts = parts
    return Migration(entity_id(vm), tuple(map(entity_id, items(hosts, expected))))


def selection(value: object) -> tuple[str, ...]:
    """The ids of one host, or of several with the best first; empty for None."""
    if value is None:
        return ()
    if isinstance(value, str) or hasattr(value, "id"):
        return (entity_id(value),)
    return _ids(value, "hosts, the best first")


def truth(value: object) -> bool:
    """The bool that was returned."""
    if not isinstance(value, bool):
        raise BadAnswer(f"returned {_shown(value)}; expected True or False")
    return value


def migrations(value: object) -> dict[str, tuple[str, ...]]:
    """The ids of VMs, each with the hosts that it may go to; empty for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadAnswer(f"returned {_shown(value)}; expected a dict of VM to hosts")
    hosts_by_vm: dict[str, tuple[str, ...]] = {}
    for vm, hosts in value.items():
        vm_id = entity_id(vm)
        if vm_id in hosts_by_vm:
            raise BadAnswer(f"returned the VM {vm_id} twice")
        hosts_by_vm[vm_id] = _ids(hosts, "the hosts that the VM may go to")
    return hosts_by_vm


def _ids(value: object, expected: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(entity_id, items(value, expected))))


def plain(value: object) -> object:
    """A copy of a value that XML-RPC carries.

    That is texts, booleans, ints of 32 bits, finite doubles, bytes, dates, and lists and dicts of
    these.
    """
    return _Plain().of(value, "", 0)


_READ: Mapping[Returns, Callable[[object], object]] = {
    Returns.HOSTS: accepted_hosts,
    Returns.COSTS: costs,
    Returns.MIGRATION: migration,
    Returns.SELECTION: selection,
    Returns.IDS: selection,
    Returns.TRUTH: truth,
    Returns.MIGRATIONS: migrations,
    Returns.VALUE: plain,
}


def read_returned(function: Function, value: object) -> object:
    """Read what a function returned as an answer of its kind.

    Raises:
        BadAnswer: it is something else; one sentence that names the function.
    """
    try:
        return _READ[function.returns](value)
    except BadAnswer as error:
        raise BadAnswer(f"{function.name} {error}") from None


def read_printed(function: Function, stdout: str, stderr: str) -> object:
    """Read a class unit's answer from what it printed: the whole of it, else its last line.

    Only in the plugin's process, as every reading of what a plugin made. Text that is no
    literal is a failure, for a balance too: it may be a migration that cannot be read.

    Raises:
        BadAnswer: there is none.
    """
    text, complaint = stdout.strip(), one_line(stderr)
    last = text.rpartition("\n")[2]
    nothing = not text
    for candidate in (text, last):
        value: object = _NO_LITERAL
        with contextlib.suppress(Exception):
            value = _literal(candidate)
        if value is None:
            nothing = True
        elif value is not _NO_LITERAL:
            return read_returned(function, value)
    if complaint:
        raise BadAnswer(complaint)
    if nothing and function.returns is Returns.MIGRATION:
        return None
    message = f"{function.name} returned nothing, and printed no answer"
    if text:
        message += f": {one_line(text)!r:.200}"
    if _is_statement_of_python_2(last):
        message += "; if this was Python 2's print (a, b), write return a, b, or print((a, b))"
    raise BadAnswer(message)


def _literal(written: str) -> object:
    """The value of a literal; raises what ``ast.literal_eval`` does."""
    if _LIST_OF_IDS.fullmatch(written):
        return written[2:-2].split("', '")
    return ast.literal_eval(written)


def _shown(value: object) -> str:
    return one_line(repr(value), _SHOWN)


def _is_statement_of_python_2(line: str) -> bool:
    """Whether ``print (a, b)`` may have made this line under Python 3, b being a list or so."""
    _, _, rest = line.partition(" ")
    with contextlib.suppress(Exception):
        return isinstance(ast.literal_eval(rest), (list, tuple, dict, set))
    return False


def items(value: object, expected: str) -> list[object]:
    """The members of a value that has to hold several; ``expected`` says which, for the message."""
    if value is None:
        raise BadAnswer(f"returned nothing; expected {expected}")
    if isinstance(value, Yielded) and value.returned:
        raise BadAnswer(
            "has a yield, so that what it returns besides is lost; in place of 'return hosts' "
            "write 'yield from hosts', then 'return'"
        )
    if isinstance(value, list):  # no need to ask what else it may be
        return value
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        one = isinstance(getattr(value, "id", None), str)
        shown = f"one {type(value).__name__}" if one else f"{_shown(value)}"
        raise BadAnswer(f"returned {shown}; expected {expected}")
    return list(value)


def entity_id(entity: object) -> str:
    """The id of an entity of the SDK, or the id itself."""
    text = entity if isinstance(entity, str) else getattr(entity, "id", None)
    if not isinstance(text, str):
        raise BadAnswer(
            f"returned {_shown(entity)}, which is neither an entity with an id nor an id"
        )
    if not text or (not text.isprintable() and NOT_IN_XML.search(text)):
        raise BadAnswer(f"returned {_shown(text)}, which cannot be an id")
    return text


class _Plain:
    """Copies a value, and counts what is in it."""

    def __init__(self) -> None:
        self._values = 0
        self._characters = 0

    def of(self, value: object, place: str, level: int) -> object:
        """A copy of a value; ``place`` says where it lies, for the message."""
        self._values += 1
        if self._values > MOST_VALUES:
            raise BadAnswer(f"returned more than {MOST_VALUES} values")
        if isinstance(value, (bool, datetime)):
            return value
        if isinstance(value, (int, float)):
            return _number(value, place)
        if isinstance(value, str):
            return self._text(value, place)
        if isinstance(value, (bytes, bytearray)):
            self._count(len(value))
            return bytes(value)
        if isinstance(value, (list, tuple, Mapping)):
            if level == _MOST_LEVELS:
                raise BadAnswer(f"returned lists and dicts of more than {_MOST_LEVELS} levels")
            return self._several(value, place, level + 1)
        if value is None:
            raise _refused(value, place, 'has no form in XML-RPC; return "" for nothing')
        carried = "str, bool, int, float, bytes, datetime, list and dict have one"
        raise _refused(value, place, f"has no form in XML-RPC; {carried}")

    def _several(
        self, value: Union[Sequence[object], Mapping[object, object]], place: str, level: int
    ) -> object:
        if not isinstance(value, Mapping):
            return [self.of(item, f"{place}[{at}]", level) for at, item in enumerate(value)]
        struct: dict[str, object] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise _refused(key, place, "is a key; a struct's keys are strings")
            struct[self._text(key, place)] = self.of(item, f"{place}[{key!r:.40}]", level)
        return struct

    def _text(self, value: str, place: str) -> str:
        text = str.__str__(value)
        try:
            self._count(len(text.encode("utf-16-le")) // 2)  # an answer has six bytes for each
        except UnicodeEncodeError:
            raise _refused(value, place, "holds half a character") from None
        return text

    def _count(self, characters: int) -> None:
        self._characters += characters
        if self._characters > MOST_CHARACTERS:
            raise BadAnswer(f"returned more than {MOST_CHARACTERS >> 20} MiB of texts and bytes")


def _number(value: Union[int, float], place: str) -> Union[int, float]:
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise _refused(value, place, "is beyond 32 bits; return it as a string")
        return int(value)
    if not math.isfinite(value):
        raise _refused(value, place, "is no finite number")
    return float(value)


def _refused(value: object, place: str, why: str) -> BadAnswer:
    where = f" at {place:.120}" if place else ""
    return BadAnswer(f"returned {_shown(value)}{where}, which {why}")
