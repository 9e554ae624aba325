"""XML-RPC parameters to a Request, and a Decision to what the caller gets. Pure.

What a value is, its type says (contract 1.4): hosts as one string are a document, as an array
they are ids; a VM that starts with ``<`` is a document, else an id.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Mapping, Sequence, Tuple, Union, cast

from ovirt_scheduler import properties
from ovirt_scheduler.config import EngineScores
from ovirt_scheduler.errors import BadParameters
from ovirt_scheduler.model import (
    Caller,
    Decision,
    Document,
    Hosts,
    Kind,
    Migration,
    PolicyUnit,
    Request,
    Vm,
    WantedUnit,
)

Parameters = Tuple[object, ...]

# Structs of the engine's discover.
_ENGINE_GROUPS = {Kind.FILTER: "filters", Kind.COST_FUNCTION: "scores", Kind.BALANCE: "balance"}

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

_FILTERS = ("filters", "hosts", "vm", "properties")
_COST_FUNCTIONS = ("cost functions", "hosts", "vm", "properties")
_BALANCE = ("balance", "hosts", "properties")


def discover_request(parameters: Parameters) -> None:
    """``discover()`` takes nothing (contract 2.1).

    Raises:
        BadParameters: there are parameters.
    """
    if parameters:
        raise BadParameters(f"discover takes no parameters, not {len(parameters)}")


def filters_request(caller: Caller, parameters: Parameters) -> Request:
    """``runFilters(names, hosts, vm, properties)`` (contract 2.2).

    Raises:
        BadParameters: which parameter, and what was expected.
    """
    names, hosts, vm, given = _counted("runFilters", _FILTERS, parameters)
    wanted = tuple(WantedUnit(name) for name in _strings("filters", names))
    return Request(caller, Kind.FILTER, wanted, _hosts(hosts), _vm(vm), _properties(given))


def cost_functions_request(caller: Caller, parameters: Parameters) -> Request:
    """``runCostFunctions([[name, factor], ...], hosts, vm, properties)`` (contract 2.3).

    Raises:
        BadParameters: which parameter, and what was expected.
    """
    functions, hosts, vm, given = _counted("runCostFunctions", _COST_FUNCTIONS, parameters)
    return Request(
        caller,
        Kind.COST_FUNCTION,
        _factors(functions),
        _hosts(hosts),
        _vm(vm),
        _properties(given),
    )


def balance_request(caller: Caller, parameters: Parameters) -> Request:
    """``runLoadBalancing(name, hosts, properties)`` (contract 2.4).

    Raises:
        BadParameters: which parameter, and what was expected.
    """
    name, hosts, given = _counted("runLoadBalancing", _BALANCE, parameters)
    wanted = (WantedUnit(_string("balance", name)),)
    return Request(caller, Kind.BALANCE, wanted, _hosts(hosts), None, _properties(given))


def design_answer(decision: Decision) -> object:
    """The answer in the design form (contract 2.2 to 2.4)."""
    answer = decision.answer
    if answer is None:
        return {}
    if isinstance(answer, Migration):
        return {answer.vm: list(answer.hosts)}
    return list(answer) if isinstance(answer, tuple) else dict(answer)


def engine_discovery(units: Iterable[PolicyUnit]) -> Dict[str, object]:
    """What ``discover`` answers in the engine form (contract 3.1).

    Exactly three keys, each a struct of name to [description, properties]; anything else makes
    the engine drop all units.
    """
    groups: Dict[str, Dict[str, List[str]]] = {name: {} for name in _ENGINE_GROUPS.values()}
    for unit in units:
        syntax = "" if unit.properties is None else properties.engine_syntax(unit.properties)
        groups[_ENGINE_GROUPS[unit.kind]][unit.name] = [unit.description, syntax]
    return dict(groups)


def engine_answer(decision: Decision, scores: EngineScores) -> Dict[str, object]:
    """The answer in the engine form: the envelope of contract 3.2 round a result of 3.3 to 3.5."""
    unit_errors = {name: list(messages) for name, messages in decision.unit_errors.items()}
    result: object
    if decision.request.kind is Kind.BALANCE:
        result = _engine_migration(decision, unit_errors)
    elif decision.request.kind is Kind.COST_FUNCTION and scores is EngineScores.PER_UNIT:
        result = [
            [host, cost, outcome.unit]
            for outcome in decision.results
            if outcome.ok
            for host, cost in cast("Mapping[str, int]", outcome.value).items()
        ]
    elif decision.request.kind is Kind.COST_FUNCTION:
        costs = cast("Mapping[str, int]", decision.answer)
        result = [[host, cost] for host, cost in costs.items()]
    else:
        result = list(cast("Tuple[str, ...]", decision.answer))
    envelope: Dict[str, object] = {"result_code": 0, "result": result}
    if unit_errors:
        envelope["plugin_errors"] = unit_errors
    if decision.errors:
        envelope["errors"] = list(decision.errors)
    # The engine reads the errors only where the code is not 0.
    envelope["result_code"] = int(len(envelope) > 2)
    return envelope


def _engine_migration(decision: Decision, unit_errors: Dict[str, List[str]]) -> List[object]:
    """``[vm, hosts]``; nothing to do is never ``[]``, which stops the engine's balancing (3.5)."""
    nothing: List[object] = ["", []]
    migration = decision.answer
    if not isinstance(migration, Migration):
        return nothing
    if not _UUID.fullmatch(migration.vm):
        (wanted,) = decision.request.wanted
        unit_errors.setdefault(wanted.name, []).append(
            f"answered with {migration.vm!r:.80}, which is not the id of a VM"
        )
        return nothing
    return [migration.vm, list(migration.hosts)]


def _counted(method: str, names: Sequence[str], parameters: Parameters) -> Parameters:
    if len(parameters) != len(names):
        raise BadParameters(
            f"{method} takes {len(names)} parameters ({', '.join(names)}), not {len(parameters)}"
        )
    return parameters


def _type(value: object) -> str:
    """A value's type in XML-RPC's words."""
    words: Mapping[type, str] = {
        str: "a string", bool: "a boolean", int: "an int", float: "a double", list: "an array",
        dict: "a struct", type(None): "nil", bytes: "a base64",
    }  # fmt: skip
    return words.get(type(value), "a dateTime")


def _expected(place: str, wanted: str, value: object) -> BadParameters:
    return BadParameters(f"{place}: expected {wanted}, not {_type(value)}")


def _string(place: str, value: object) -> str:
    if not isinstance(value, str):
        raise _expected(place, "a string", value)
    return value


def _strings(place: str, value: object) -> List[str]:
    if not isinstance(value, list):
        raise _expected(place, "an array of strings", value)
    return [_string(f"{place}[{position}]", item) for position, item in enumerate(value)]


def _factors(value: object) -> Tuple[WantedUnit, ...]:
    place = "cost functions"
    if isinstance(value, dict):
        value = [list(item) for item in value.items()]
    if not isinstance(value, list):
        raise _expected(place, "an array of [name, factor]", value)
    wanted = []
    for position, pair in enumerate(value):
        here = f"{place}[{position}]"
        if not isinstance(pair, list) or len(pair) != 2:
            raise BadParameters(f"{here}: expected [name, factor]")
        name = _string(f"{here}[0]", pair[0])
        factor = pair[1]
        if type(factor) is not int:
            raise _expected(f"{here}[1], the factor of {name:.80}", "an int", factor)
        if not -(2**31) <= factor < 2**31:
            raise BadParameters(f"{here}[1], the factor of {name:.80}: {factor} is beyond 32 bits")
        wanted.append(WantedUnit(name, factor))
    return tuple(wanted)


def _hosts(value: object) -> Hosts:
    if isinstance(value, (str, bytes)):
        return _document(value)
    if not isinstance(value, list):
        raise _expected("hosts", "an XML document as a string, or an array of ids", value)
    seen: Dict[str, int] = {}
    for position, host in enumerate(_strings("hosts", value)):
        if not host.strip():
            raise BadParameters(f"hosts[{position}]: an empty id")
        if host in seen:
            raise BadParameters(
                f"hosts[{position}]: {host!r:.80} is hosts[{seen[host]}] already; give it once"
            )
        seen[host] = position
    return tuple(seen)


def _vm(value: object) -> Vm:
    if isinstance(value, bytes) or (isinstance(value, str) and _starts_a_document(value)):
        return _document(value)
    if not isinstance(value, str):
        raise _expected("vm", "an XML document as a string, or an id", value)
    if not value.strip():
        raise BadParameters("vm: an empty id")
    return value


def _starts_a_document(text: str) -> bool:
    return text.lstrip("\ufeff \t\r\n").startswith("<")


def _document(value: Union[str, bytes]) -> Document:
    if isinstance(value, bytes):
        return Document(value)
    # An XML-RPC string was decoded with the call: what its declaration says is no longer so.
    return Document(value.encode("utf-8", "surrogatepass"), "utf-8")


def _properties(value: object) -> Mapping[str, str]:
    """Some callers send nil or the empty string for none, and nil for one not given (3.7)."""
    if value is None or value == "":
        return {}
    if not isinstance(value, dict):
        raise _expected("properties", "a struct of strings", value)
    return {
        key: _string(f"properties[{key!r:.80}]", item)
        for key, item in value.items()
        if item is not None
    }
