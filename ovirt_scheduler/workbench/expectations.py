"""Expectations of a replay or a simulation: tests of a policy, for a site's own CI.

::

    'migrations <= 6', [expect] ──► Expectation ──┐
    a report's fields ──► figures by name ────────┴─► Finding ──► lines, JSON, a file of JUnit

A figure has the name that it has in the report's JSON: ``after.imbalance.used``. Of a list or of
names with reasons, such as ``unplaced``, it is the number of entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional
from xml.etree import ElementTree

from ovirt_scheduler.errors import BadUsage
from ovirt_scheduler.log.format import printable
from ovirt_scheduler.model.values import spelling
from ovirt_scheduler.settings.conf_file import Section
from ovirt_scheduler.workbench import reports
from ovirt_scheduler.workbench.comparison import Comparison
from ovirt_scheduler.workbench.simulation import ClusterMoment, SimulationResult

_CONDITION = re.compile(r"\s*([\w.]+)\s*(<=|>=|=)\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*")
_WITH_OPERATOR = re.compile("<=|>=|=")
_FORM = "expected FIGURE = VALUE, FIGURE <= VALUE or FIGURE >= VALUE, maybe with %"
_NESTED = ("before", "between", "after", "imbalance", "milliseconds")  # members with figures
# Numbers of VMs or decisions: they have a percentage.
_COUNTED = ("differ", "uncertain", "unplaced", "migrations", "moves", "left_out")
_WHOLES = {"used": 100, "cpu": 100, "memory": 100, "same": 1}  # of figures that are shares


class Figure(NamedTuple):
    """A number of a report; None where the report has none, such as the median of nothing.

    Attributes:
        whole: that is 100 %; None: there is no percentage of it.
    """

    value: Optional[float]
    whole: Optional[float]


class Finding(NamedTuple):
    """What became of an expectation."""

    text: str
    value: Optional[float]  # in percent, where the expectation is
    difference: float  # by which it does not hold; 0: it holds
    holds: bool

    def line(self) -> str:
        """The finding, for a person."""
        if self.holds:
            return f"as expected: {self.text} (it is {self.value:g})"
        if self.value is None:
            return f"NOT as expected: {self.text}: there is no such number, as nothing was counted"
        way = "high" if self.difference > 0 else "low"
        by = f"too {way} by {abs(self.difference):g}"
        return f"NOT as expected: {self.text}: it is {self.value:g}, {by}"


class Expectation(NamedTuple):
    """That a figure is equal to a number, at most it or at least it."""

    figure: str
    operator: str
    bound: float
    is_percentage: bool

    def finding(self, figures: Mapping[str, Figure]) -> Finding:
        """Look whether it holds."""
        value, whole = figures[self.figure]
        text = f"{self.figure} {self.operator} {self.bound:g}{' %' * self.is_percentage}"
        if self.is_percentage and value is not None:
            value = 100 * value / whole if whole else 0.0
        if value is None:
            return Finding(text, None, 0.0, holds=False)
        value = round(value, 6)
        difference = round(value - self.bound, 6)
        if (self.operator == "<=" and difference < 0) or (self.operator == ">=" and difference > 0):
            difference = 0.0
        return Finding(text, value, difference, holds=not difference)


def parse(text: str, figures: Mapping[str, Figure]) -> Expectation:
    """Read ``FIGURE OP VALUE``.

    Args:
        figures: by their names, with any values.

    Raises:
        ValueError: it is none; says why.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise ValueError(_FORM)
    figure, operator, value, percent = match.groups()
    if figure not in figures:
        hint = spelling.hint(figure, figures) or f"; there are {', '.join(sorted(figures))}"
        raise ValueError(f"there is no figure {figure}{hint}")
    if percent and figures[figure].whole is None:
        raise ValueError(f"there is no percentage of {figure}; leave out the %")
    return Expectation(figure, operator, float(value), bool(percent))


def of_options(texts: Sequence[str], figures: Mapping[str, Figure]) -> list[Expectation]:
    """The expectations of ``--expect``.

    Raises:
        BadUsage: one cannot be read, or its figure does not exist.
    """
    expectations = []
    for text in texts:
        try:
            expectations.append(parse(text, figures))
        except ValueError as error:
            raise BadUsage(f"--expect {text!r}: {error}") from None
    return expectations


def of_section(section: Optional[Section], figures: Mapping[str, Figure]) -> list[Expectation]:
    """The expectations of ``[expect]``, whose keys are names of figures.

    A value without an operator is to be equal.

    Raises:
        FileMistake: each that cannot be read.
    """
    if section is None:
        return []
    values = {name: value for name, value in section.values.items() if value is not None}
    expectations = []
    for name in sorted(values, key=lambda name: section.lines[name] or 0):
        bound = values[name] if _WITH_OPERATOR.match(values[name]) else f"= {values[name]}"
        try:
            expectations.append(parse(f"{name} {bound}", figures))
        except ValueError as error:
            section.refuse(name, str(error))
    section.mistakes.check()
    return expectations


def of_replay(comparison: Comparison) -> dict[str, Figure]:
    """The figures of a replay; 100 % are all decisions."""
    differ = comparison.differ
    figures = dict(_figures(comparison.fields(), comparison.count))
    figures["differ.no_host"] = Figure(sum(each.no_host for each in differ), comparison.count)
    figures["differ.refused"] = Figure(sum(len(each.refused) for each in differ), None)
    return figures


def of_simulation(outcome: SimulationResult, vms: int) -> dict[str, Figure]:
    """The figures of a policy that was simulated.

    Args:
        vms: that were there or came: of counts these are 100 %.
    """
    (policy,) = reports.policy_fields({"": outcome})
    return dict(_figures(policy, vms))


def of_nothing() -> dict[str, Figure]:
    """The figures of a simulation of nothing, which are those of every simulation."""
    return of_simulation(SimulationResult([ClusterMoment(0.0, ())] * 3), 0)


def _figures(
    fields: Mapping[str, Any], whole: Optional[float], prefix: str = ""
) -> Iterator[tuple[str, Figure]]:
    for name, value in fields.items():
        if name in _NESTED and isinstance(value, Mapping):
            yield from _figures(value, None, f"{prefix}{name}.")
        elif isinstance(value, (Mapping, list, tuple)):
            yield prefix + name, Figure(len(value), whole if name in _COUNTED else None)
        elif value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
            counted = whole if name in _COUNTED else None
            yield prefix + name, Figure(value, _WHOLES.get(name, counted))


def write_junit(
    file: Path, command: str, findings: Sequence[Finding], problems: Sequence[str]
) -> None:
    """Write findings as a file of JUnit, with problems of the command itself as one more case.

    Raises:
        NotOverwritten: it cannot be written, or is a link.
    """
    failures = sum(not finding.holds for finding in findings)
    numbers = {"tests": len(findings) + 1, "failures": failures, "errors": bool(problems)}
    counts = {name: str(int(number)) for name, number in numbers.items()}
    suite = ElementTree.Element("testsuite", {"name": f"ovirt-scheduler {command}", **counts})
    for finding in findings:
        case = _case(suite, command, finding.text)
        if not finding.holds:
            ElementTree.SubElement(case, "failure", {"message": finding.line()})
    case = _case(suite, command, "no problem")
    if problems:
        message = "; ".join(map(printable, problems))
        ElementTree.SubElement(case, "error", {"message": message})
    reports.write_file(file, ElementTree.tostring(suite, "unicode") + "\n")


def _case(suite: ElementTree.Element, command: str, name: str) -> ElementTree.Element:
    attributes = {"classname": f"ovirt-scheduler.{command}", "name": name}
    return ElementTree.SubElement(suite, "testcase", attributes)
