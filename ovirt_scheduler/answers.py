"""From what a plugin's function returned to what crosses the pipe.

Entities become their ids, numbers become integers; anything else is refused with a sentence
that says what was expected (contract 5.2). Which hosts were given is not known here.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from ovirt_scheduler.aggregate import whole_cost
from ovirt_scheduler.model import Answer, Kind, Migration
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
