"""The command: measures, prints tables, writes JSON, and the figures into the documentation.

``make bench`` (at most ten minutes, with ``BEFORE`` fifteen), or ``make bench QUICK=1`` (at most
one, and the documentation stays as it is).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Optional

from bench import goals, limits, plot, report, stages
from bench.effort import FULL, QUICK, SMALLEST
from bench.measurement import Row
from bench.scenarios import Benchmark
from bench.servers import PROJECT

_BLUE, _LIGHT_BLUE, _NAVY = "#2b7bba", "#7fb6de", "#123f66"
_GREEN, _DARK_GREEN = "#3a9a4b", "#1c5c2a"
_RED, _DARK_RED, _GREY = "#d1495b", "#8c1c2c", "#777777"

_WITH_BEFORE = 1.5  # times the bound: the version before runs beside this one


def main() -> int:
    options = _options()
    started = time.monotonic()
    effort, only = options.effort, re.compile(options.only)
    _say(f"ovirt-scheduler, Python {platform.python_version()}, {os.cpu_count()} processors")
    bound = effort.bound * (1 if options.before is None else _WITH_BEFORE)
    bare = limits.measure(effort.rounds, effort.hosts)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        with Benchmark(effort, bare, folder, options.before) as benchmark:
            for scenario in benchmark.scenarios():
                if not only.search(scenario.name):
                    continue
                spent = time.monotonic() - started
                late = spent > bound
                _say(f"{spent:4.0f} s  {scenario.name}{': left out, it is late' if late else ''}")
                if not late:
                    rows.append(scenario.measure())
        calls = stages.measure(folder / "stages", effort.stages)
    judged = goals.judge(rows)
    tables = {
        "goals": report.goals(judged),
        "scenarios": report.scenarios(rows),
        "bare limits": report.bare_limits(bare),
        "stages": stages.table(calls),
    }
    for table in tables.values():
        print(f"\n{table}")
    if options.before is not None:
        print(f"\n{report.before_and_now(rows)}")
    machine = _machine()
    options.json.write_text(
        json.dumps(
            {
                "machine": machine,
                "seconds": time.monotonic() - started,
                "limits": asdict(bare),
                "scenarios": [row.as_json() for row in rows],
                "goals": [{**asdict(goal), "verdict": goal.verdict} for goal in judged],
                "stages": calls,
            },
            indent=1,
        ),
        "utf-8",
    )
    if options.docs is not None:
        _document(options.docs, rows, {**tables, "machine": machine + "."})
    _say(f"{time.monotonic() - started:.0f} s in all; {options.json} has every figure")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.set_defaults(effort=FULL)
    for name, effort, meaning in (
        ("--quick", QUICK, "fewer sizes, fewer calls: a minute"),
        ("--smallest", SMALLEST, "one scenario, to try the benchmark itself"),
    ):
        parser.add_argument(name, action="store_const", const=effort, dest="effort", help=meaning)
    parser.add_argument("--only", default="", help="scenarios whose name holds this expression")
    parser.add_argument(
        "--before", type=Path, help="a checkout of the version before, measured beside this one"
    )
    parser.add_argument("--json", type=Path, default=PROJECT / "bench" / "results.json")
    parser.add_argument(
        "--docs", type=Path, help="folder with benchmarks.md, to be brought up to date"
    )
    options = parser.parse_args()
    if options.before is not None and not (options.before / "ovirt_scheduler").is_dir():
        parser.error(f"--before {options.before}: there is no ovirt_scheduler in it")
    return options


def _machine() -> str:
    """Where and when the figures were taken."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    today = datetime.datetime.now(tz=datetime.timezone.utc).date()
    return (
        f"{os.cpu_count()} × {model}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, {today}"
    )


def _document(docs: Path, rows: Sequence[Row], parts: dict[str, str]) -> None:
    for name, text in parts.items():
        report.put(docs / "benchmarks.md", name, text)
    (docs / "latency.svg").write_text(_latency(rows), "utf-8")
    (docs / "throughput.svg").write_text(_throughput(rows), "utf-8")


def _latency(rows: Sequence[Row]) -> str:
    def line(
        name: str, group: str, units: int, colour: str, of: str = "daemon", *, dashed: bool = False
    ) -> plot.Line:
        points = []
        for row in rows:
            median = _median(row, of)
            if row.group == group and row.units == units and median is not None:
                points.append((row.hosts, median * 1000))
        return plot.Line(name, points, colour, dashed)

    return plot.chart(
        "Time of one call", "hosts", "median, ms",
        [
            line("1 filter, ids", "ids", 1, _LIGHT_BLUE),
            line("5 filters, ids", "ids", 5, _BLUE),
            line("20 filters, ids", "ids", 20, _NAVY),
            line("1 filter, XML", "filter", 1, _GREEN),
            line("5 filters, XML", "filter", 5, _DARK_GREEN),
            line("fresh process, 1 filter, ids", "ids", 1, _RED, "fresh"),
            line("fresh processes, 5 filters, ids", "ids", 5, _DARK_RED, "fresh"),
            line("limit: no-op call with ids", "ids", 1, _GREY, "floor", dashed=True),
            line("limit: decoding and reading XML", "filter", 1, _GREY, "floor", dashed=True),
        ],
    )  # fmt: skip


def _median(row: Row, of: str) -> Optional[float]:
    figures = {"daemon": row.daemon, "floor": row.floor, "fresh": row.fresh}[of]
    return figures.median if figures else None


def _throughput(rows: Sequence[Row]) -> str:
    at_once = [row for row in rows if row.group == "clients"]
    lines = []
    for name, of, colour in (
        ("ovirt-scheduler", "daemon", _BLUE),
        ("a fresh process for each call", "fresh", _RED),
        ("limit: no-op call", "floor", _GREY),
    ):
        points = [
            (row.clients, figures.throughput)
            for row in at_once
            for figures in [getattr(row, of)]
            if figures and figures.throughput
        ]
        lines.append(plot.Line(name, points, colour, dashed=of == "floor"))
    title = "Throughput: 1 filter that imports the SDK, 10 ids"
    return plot.chart(title, "clients at once", "calls a second", lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
