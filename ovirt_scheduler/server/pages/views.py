"""The templates, and the values for those of decisions.

A decision is a record of the history (``history.record``).
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

from ovirt_scheduler.history import explanation, outcomes, placement_explanation, ranking
from ovirt_scheduler.history.record import Host, Record, UnitRecord
from ovirt_scheduler.log.format import printable
from ovirt_scheduler.server.pages import times

PageValues = dict[str, Any]

_COMMAND = re.compile("(?:sudo )?(?:ovirt-scheduler|systemctl|journalctl) [^;)]*")
_NUMBER = re.compile(r"\b[0-9a-fA-F-]*\d[0-9a-fA-F-]*\b")  # an id, too
_FEWEST_POINTS = 2


def templates(folder: Path) -> Any:
    """Jinja's environment of a folder; each value is escaped where it stands in a template.

    So are characters that cannot be seen, or that turn round what follows.

    Raises:
        ImportError: jinja2 is not installed.
    """
    jinja2 = importlib.import_module("jinja2")
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _shown(value: object) -> object:
    """A value of a template as it stands on the page; what a macro has made stays as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "\n".join(map(printable, value.expandtabs().split("\n")))


def as_json(record: Record, check: Callable[[], None]) -> str:
    """A record as JSON.

    Args:
        check: called for each host; may raise, which ends it.
    """
    # Each host by itself, so that many of them do not hold the interpreter.
    hosts = []
    for host in record.get("hosts", ()):
        check()
        hosts.append(json.dumps(host))
    rest = json.dumps({name: value for name, value in record.items() if name != "hosts"})
    return f'{rest[:-1]}, "hosts": [{", ".join(hosts)}]}}' if "hosts" in record else rest


def summaries(records: Iterable[Record]) -> list[PageValues]:
    """A row of a list for each decision, from the reader's summary."""
    return [*map(_summary, records)]


def decision(of: Record) -> PageValues:
    """All that the page of one decision shows."""
    columns, places = placement_explanation.columns(of), ranking.places(of)
    hosts, most = explanation.in_order(of), explanation.MOST_HOSTS
    return {
        **_summary({**of, **outcomes.summary(of)}),
        "ranked": bool(places),
        "columns": columns,
        "rows": [_row(host, columns, places.get(host["id"])) for host in hosts[:most]]
        if columns
        else (),
        "left_out": max(0, len(hosts) - most),
        "sentences": [
            line.text.strip() for line in itertools.islice(explanation.lines(of), 2, None)
        ],
    }


def _summary(of: Record) -> PageValues:
    return {
        **{name: value for name, value in of.items() if name not in ("hosts", "answer")},
        "moment": explanation.when(of["time"]),
        "vm": explanation.vm_name(of) if "vm" in of else "",
        "state": "bad" if of["is_bad"] else "good",
    }


def _row(host: Host, columns: Sequence[UnitRecord], place: Optional[int]) -> PageValues:
    """The row of a host in a table whose columns are units."""
    return {
        "host": host.get("name") or host["id"],
        "rank": place or "-",
        "total": host.get("total", "-"),
        "chosen": place == 1,
        "cells": [(unit, placement_explanation.entry_of(unit, host)) for unit in columns],
    }


def calls(records: Iterable[Record]) -> list[PageValues]:
    """The calls of one placement, for links between their pages."""
    return [
        {"id": of["id"], "method": of["method"], "moment": explanation.when(of["time"])}
        for of in records
    ]


def pieces(text: str) -> Iterator[tuple[bool, str]]:
    """Parts of a text that says what to do, each with whether it is a command to type."""
    end = 0
    for command in _COMMAND.finditer(text):
        yield False, text[end : command.start()]
        yield True, command[0]
        end = command.end()
    yield False, text[end:]


def course(points: Sequence[tuple[float, float]]) -> Optional[PageValues]:
    """A line over time, for a chart of 600 by 100; None where there is none to draw yet.

    Args:
        points: seconds since 1970, and percent.
    """
    if len(points) < _FEWEST_POINTS:
        return None
    began, ended = points[0][0], points[-1][0]
    top = max(10, math.ceil(max(part for _, part in points) / 10) * 10)
    width, height = 600 / max(1.0, ended - began), 100 / top
    line = " ".join(f"{(at - began) * width:.1f},{100 - part * height:.1f}" for at, part in points)
    return {"line": line, "top": top, "began": times.clock(began), "ended": times.clock(ended)}


def failures(summaries: Iterable[Record], name: str) -> list[PageValues]:
    """The failures of a unit, as its page and its JSON show them: the same one is one row.

    Args:
        summaries: of decisions in which it failed, the newest first.
    """
    rows: dict[str, PageValues] = {}  # by the message without its numbers
    for of in summaries:
        for message in (message for unit, message in of["failures"] if unit == name):
            row = rows.setdefault(_NUMBER.sub("", message), {
                "decision": of["id"], "time": of["time"], "moment": explanation.when(of["time"]),
                "message": message, "times": 0,
            })  # fmt: skip
            row["times"] += 1
            row["since"] = of["time"]
    return [*rows.values()]
