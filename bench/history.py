"""How large the history of a million decisions is, and how long a search in it takes.

``python -m bench.history [--decisions 1000000]`` writes decisions of 50 hosts and 5 units on
10,000 VMs into a file, as the daemon does but for the time that a record's making takes: 500 made
records are written again and again, each time with an id, a time and a VM of its own. Then it asks
as the commands ask, and prints medians. Nothing is kept.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ovirt_scheduler.command import tables
from ovirt_scheduler.history import ranking, schema
from ovirt_scheduler.history.database import Database
from ovirt_scheduler.history.query import Query, written
from ovirt_scheduler.history.record import Cost, Host, Record, UnitRecord, Verdict
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.schema import Row

_HOSTS, _UNITS, _VMS = 50, 5, 10_000
_MADE = 500  # records of which all others are copies
_TOGETHER = 5000  # that are written in one transaction
_TIMES = 21  # that each query is asked
_SECONDS = 2.5  # between two decisions: a million of them are 30 days


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--decisions", type=int, default=1_000_000)
    count = parser.parse_args().decisions
    chance = random.Random(1)  # noqa: S311  the same figures each time
    with tempfile.TemporaryDirectory(prefix="bench-history-") as folder:
        file = Path(folder) / "history.sqlite"
        began = time.monotonic()
        rows = [schema.pack(_record(chance)) for _ in range(_MADE)]
        database = Database(file)
        for first in range(0, count, _TOGETHER):
            last = min(first + _TOGETHER, count)
            database.write([(row, None) for row in _copies(rows, first, last, chance)])
        database.close()
        size = sum(part.stat().st_size for part in Path(folder).iterdir())
        print(f"{count:,} decisions of {_HOSTS} hosts and {_UNITS} units, {_VMS:,} VMs")
        print(f"written in {time.monotonic() - began:.0f} s")
        print(f"{size / (1 << 20):,.0f} MiB; {size / count:,.0f} bytes for each\n")
        reader = RecordReader(file)
        until = count * _SECONDS
        asked = {
            "why VM (its last 20)": Query(vm="vm-77", limit=20),
            "the last 100 on a VM": Query(vm="vm-77"),
            "a VM that there is not": Query(vm="nobody"),
            "the last 100": Query(),
            "the last 100 about a host": Query(host="host-7"),
            "the last 100 in which a unit failed": Query(unit="Function1", outcomes=("raised",)),
            "100 of an hour in the middle": Query(since=until / 2, until=until / 2 + 3600),
        }
        told = [(what, *_measured(reader, query)) for what, query in asked.items()]
        print(tables.table(("query", "found", "median, ms", "slowest, ms"), told))


def _measured(reader: RecordReader, query: Query) -> list[str]:
    taken = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        found = reader.decisions(query)
        taken.append(1000 * (time.perf_counter() - began))
    return [str(len(found)), f"{statistics.median(taken):.1f}", f"{max(taken):.1f}"]


def _copies(rows: list[Row], first: int, last: int, chance: random.Random) -> Iterator[Row]:
    for number in range(first, last):
        vm = chance.randrange(_VMS)
        named = (f"00000000-0000-4000-9000-{vm:012}", f"vm-{vm}")
        yield {
            **rows[number % len(rows)],
            "id": f"{chance.getrandbits(64):016x}",
            "time": round(number * _SECONDS * 1000),
            "vm": named,
            "vms": (named,),
        }


def _record(chance: random.Random) -> Record:
    """A call of three filters or of three cost functions, as ``history.conversion`` makes them."""
    filters = chance.random() < 0.5
    kind, name = ("filter", "Filter") if filters else ("cost function", "Function")
    units: list[UnitRecord] = []
    for number in range(_UNITS):
        unit: UnitRecord = {
            "name": f"{name}{number}", "kind": kind, "mode": "live",
            "checksum": f"sha256:{number:064x}", "milliseconds": round(chance.uniform(0.2, 9), 2),
            "outcome": "raised" if number == 1 and chance.random() < 0.01 else "ok",
        }  # fmt: skip
        if not filters:
            unit["factor"] = number + 1
        units.append(unit)
    hosts = [_host(number, units, chance) for number in range(_HOSTS)]
    ranking.put_totals({"units": units, "hosts": hosts})
    return {
        "id": f"{chance.getrandbits(64):016x}", "time": written(0),
        "method": "runFilters" if filters else "runCostFunctions",
        "milliseconds": round(chance.uniform(2, 30), 2), "caller": "127.0.0.1:40312",
        "form": "engine", "vm": {"id": "vm", "name": "vm"},
        "properties": {"maximum_vm_count": "10", "threshold": "75"}, "units": units,
        "hosts": hosts, "answer": [host["id"] for host in hosts if "costs" in host],
    }  # fmt: skip


def _host(number: int, units: list[UnitRecord], chance: random.Random) -> Host:
    host: Host = {"id": f"00000000-0000-4000-8000-{number:012}", "name": f"host-{number}"}
    live = True
    for unit in units:
        if unit["outcome"] != "ok":
            continue
        if "factor" in unit:
            cost = chance.randrange(100)
            entry: Cost = {"unit": unit["name"], "cost": cost, "factor": unit["factor"]}
            entry["weighted"] = cost * unit["factor"]
            host.setdefault("costs", []).append(entry)
            continue
        word = "never asked" if not live else "removed" if chance.random() < 0.1 else "passed"
        verdict: Verdict = {"unit": unit["name"], "verdict": word}
        if word == "removed":
            live = False
            verdict["reason"] = f"runs {chance.randrange(10, 40)} VMs, maximum_vm_count is 10"
        host["verdicts"] = (*host.get("verdicts", ()), verdict)
    return host


if __name__ == "__main__":
    main()
