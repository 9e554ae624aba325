"""From what a plugin's function returned to what crosses the pipe.

Entities become their ids, numbers become integers; anything else is refused with a sentence
that says what was expected (contract 5.2). Which hosts were given is not known here.
"""

from __future__ import annotations

import ast
import contextlib
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from ovirt_scheduler.aggregate import whole_cost
from ovirt_scheduler.model import Answer, CallResult, Kind, Migration, Outcome, PolicyUnit
from ovirt_scheduler.xml_text import NOT_IN_XML, writable

# Larger than any cost that counts (contract 3.6), and still a number that JSON carries.
_HUGE = 10**18

_MESSAGE_LIMIT = 500  # characters


def one_line(text: str, limit: int = _MESSAGE_LIMIT) -> str:
    """Text for a log and an answer: one line, not endless, and nothing that XML cannot carry."""
    line = writable(" ".join(text[: 2 * limit].split()))
    return line if len(line) <= limit else line[: limit - 1] + "\u2026"


class BadAnswer(Exception):
    """The plugin returned something else than its kind of unit returns."""


def accepted_hosts(value: object) -> Tuple[str, ...]:
    return tuple(entity_id(host) for host in items(value, "the hosts to keep"))


def costs(value: object) -> Dict[str, int]:
    wanted = "(host, cost) pairs or a dict of them"
    pairs = value.items() if isinstance(value, Mapping) else items(value, wanted)
    found: Dict[str, int] = {}
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise BadAnswer(f"returned {pair!r:.80} among the costs; expected {wanted}")
        host = entity_id(pair[0])
        try:
            cost = whole_cost(pair[1])
        except ValueError as error:
            raise BadAnswer(f"returned a bad cost for host {host}: {error}") from None
        found[host] = max(-_HUGE, min(_HUGE, cost))
    return found


def migration(value: object) -> Optional[Migration]:
    wanted = "a VM and the hosts it may go to, or None"
    if value is None:
        return None
    if isinstance(value, Mapping):  # {vm: hosts}
        parts = [part for item in value.items() for part in item]
    else:
        parts = items(value, wanted)
    if not parts or (len(parts) == 2 and parts[0] in (None, "")):
        return None
    if len(parts) != 2 or parts[1] is None:
        raise BadAnswer(f"returned {value!r:.80}; expected {wanted}")
    vm, hosts = parts
    return Migration(entity_id(vm), tuple(entity_id(host) for host in items(hosts, wanted)))


READERS: Mapping[Kind, Callable[[object], Answer]] = {
    Kind.FILTER: accepted_hosts,
    Kind.COST_FUNCTION: costs,
    Kind.BALANCE: migration,
}


def read_returned(unit: PolicyUnit, value: object) -> CallResult:
    """Make a unit's result of what its function returned."""
    try:
        return CallResult(unit.name, Outcome.OK, READERS[unit.kind](value))
    except BadAnswer as error:
        return _no_answer(unit, f"{unit.kind.function} {error}")


def read_printed(unit: PolicyUnit, stdout: str, stderr: str) -> CallResult:
    """Make a class unit's result of what it printed: the whole of it, else its last line.

    Only in the process of a call, as every reading of what a plugin made. Text that is no
    literal is a failure, for a balance too: it may be a migration that cannot be read.
    """
    text, complaint = stdout.strip(), one_line(stderr)
    last = text.rpartition("\n")[2]
    nothing = not text
    for candidate in (text, last):
        with contextlib.suppress(Exception):
            value = ast.literal_eval(candidate)
            if value is not None:
                return read_returned(unit, value)
            nothing = True
    if complaint:
        return _no_answer(unit, complaint)
    if nothing and unit.kind is Kind.BALANCE:
        return CallResult(unit.name, Outcome.OK)
    message = f"{unit.kind.function} returned nothing, and printed no answer"
    if text:
        message += f": {one_line(text)!r:.200}"
    if _is_statement_of_python_2(last):
        message += "; if this was Python 2's print (a, b), write return a, b, or print((a, b))"
    return _no_answer(unit, message)


def _is_statement_of_python_2(line: str) -> bool:
    """Whether ``print (a, b)`` may have made this line under Python 3, b being a list or so."""
    _, _, rest = line.partition(" ")
    with contextlib.suppress(Exception):
        return isinstance(ast.literal_eval(rest), (list, tuple, dict, set))
    return False


def _no_answer(unit: PolicyUnit, message: str) -> CallResult:
    return CallResult(unit.name, Outcome.BAD_ANSWER, message=one_line(message))


def items(value: object, wanted: str) -> List[object]:
    """The members of what is to hold several; ``wanted`` says what, for the message."""
    if value is None:
        raise BadAnswer(f"returned nothing; expected {wanted}")
    if isinstance(value, list):  # no need to ask what else it may be
        return value
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        one = isinstance(getattr(value, "id", None), str)
        shown = f"one {type(value).__name__}" if one else f"{value!r:.80}"
        raise BadAnswer(f"returned {shown}; expected {wanted}")
    return list(value)


def entity_id(entity: object) -> str:
    """The id of an entity of the SDK, or the id itself."""
    found = entity if isinstance(entity, str) else getattr(entity, "id", None)
    if not isinstance(found, str):
        raise BadAnswer(f"returned {entity!r:.80}, which is neither an entity with an id nor an id")
    if not found or (not found.isprintable() and NOT_IN_XML.search(found)):
        raise BadAnswer(f"returned {found!r:.80}, which cannot be an id")
    return found
