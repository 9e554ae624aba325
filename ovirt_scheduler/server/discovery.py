"""The answer to ``discover``: a document in the design form, structs in the engine form.

``docs/policy-units.xsd`` is the document's XML Schema (contract 2.1). The layout is that of the
contract's sample: a group whose units have no properties stands on one line.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.model.values import properties
from ovirt_scheduler.model.values.text import writable

# In the document's order: the kind, the group's element and the unit's.
_GROUPS = (
    (Kind.FILTER, "Filters", "Filter"),
    (Kind.COST_FUNCTION, "CostFunctions", "CostFunction"),
    (Kind.BALANCE, "Balances", "Balance"),
)

_STRUCTS = {Kind.FILTER: "filters", Kind.COST_FUNCTION: "scores", Kind.BALANCE: "balance"}


def document(units: Iterable[PolicyUnit]) -> str:
    """The units as XML, sorted by name in each group.

    Characters that XML cannot write become U+FFFD.
    """
    by_name = sorted(units, key=lambda unit: unit.name)
    lines = ["<PolicyUnits>"]
    for kind, group, element in _GROUPS:
        lines += _group(group, element, [unit for unit in by_name if unit.kind is kind])
    lines.append("</PolicyUnits>")
    return "\n".join(lines)


def structs(units: Iterable[PolicyUnit]) -> dict[str, object]:
    """The units for the engine.

    Exactly three keys, each a struct of name to [description, properties]; anything else makes
    the engine drop all units.
    """
    groups: dict[str, dict[str, list[str]]] = {name: {} for name in _STRUCTS.values()}
    for unit in units:
        syntax = "" if unit.properties is None else properties.engine_syntax(unit.properties)
        groups[_STRUCTS[unit.kind]][unit.name] = [unit.description, syntax]
    return dict(groups)


def _group(group: str, element: str, units: list[PolicyUnit]) -> list[str]:
    if not units:
        return [f"  <{group}/>"]
    inside = [_unit(element, unit) for unit in units]
    if all(len(lines) == 1 for lines in inside):
        return [f"  <{group}>{''.join(lines[0] for lines in inside)}</{group}>"]
    return [f"  <{group}>", *(f"    {line}" for lines in inside for line in lines), f"  </{group}>"]


def _unit(element: str, unit: PolicyUnit) -> list[str]:
    beyond = f"description={_attribute(unit.description)} checksum={_attribute(unit.checksum)}"
    if unit.properties is None:
        return [f"<{element} name={_attribute(unit.name)} {beyond}/>"]
    custom, defaults = properties.render(unit.properties)
    return [
        f"<{element} {beyond}>",
        f"  <name>{_text(unit.name)}</name>",
        "  <Properties>",
        f"    <name>{_text(unit.properties.name)}</name>",
        f"    <CustomProperties>{_text(custom)}</CustomProperties>",
        f"    <default_values>{_text(defaults)}</default_values>",
        "  </Properties>",
        f"</{element}>",
    ]


def _attribute(value: str) -> str:
    return quoteattr(writable(value))


def _text(value: str) -> str:
    return escape(writable(value), {"\r": "&#13;"})
