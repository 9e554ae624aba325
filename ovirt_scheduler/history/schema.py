"""The tables of ``history.sqlite``, and a record as it is written there.

::

    names ◄── host_set_members ──► host_sets ◄─┐
      ▲                                        decisions ──► unit_sets ◄── unit_set_members
      └───── vm_decisions ─────────────────────┘    body: what no column has
                                                  │
    elements ◄── document_elements ──► documents ◄── recorded_documents, recordings

The same hosts are asked about again and again, and the same units: each is written once, and a
decision names the set. So one host's decisions are found without a row for each host of each
decision. docs/decisions.md has the schema for those who read it with other programs.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Callable, NamedTuple, Optional

from ovirt_scheduler.history import explanation, ranking
from ovirt_scheduler.history.record import REMOVED, Record, entity

VERSION = 3

SUMMARY = "decisions.id, time, milliseconds, method, summary, is_bad, failures"

TABLES = """
CREATE TABLE names (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (id, name));
CREATE INDEX names_by_name ON names (name);
CREATE TABLE host_sets (number INTEGER PRIMARY KEY, hosts TEXT NOT NULL UNIQUE);
CREATE TABLE host_set_members (
    host INTEGER, host_set INTEGER, PRIMARY KEY (host, host_set)) WITHOUT ROWID;
CREATE TABLE unit_sets (number INTEGER PRIMARY KEY, units TEXT NOT NULL UNIQUE);
CREATE TABLE unit_set_members (
    unit TEXT, outcome TEXT, unit_set INTEGER,
    PRIMARY KEY (unit, outcome, unit_set)) WITHOUT ROWID;
CREATE TABLE decisions (
    number INTEGER PRIMARY KEY, id INTEGER NOT NULL, time INTEGER NOT NULL, method TEXT NOT NULL,
    vm INTEGER, cluster TEXT, host_set INTEGER NOT NULL, unit_set INTEGER NOT NULL,
    milliseconds REAL NOT NULL, summary TEXT NOT NULL, is_bad INTEGER NOT NULL, failures TEXT,
    size INTEGER NOT NULL, body BLOB NOT NULL);  -- last, as what is behind it is read slowly
CREATE INDEX decisions_by_id ON decisions (id);
CREATE INDEX decisions_by_cluster ON decisions (cluster, number) WHERE cluster IS NOT NULL;
CREATE INDEX newest ON decisions (number, time, method, host_set, unit_set);
CREATE TABLE vm_decisions (
    vm INTEGER, decision INTEGER, PRIMARY KEY (vm, decision)) WITHOUT ROWID;
CREATE TABLE events (
    number INTEGER PRIMARY KEY, time INTEGER NOT NULL, event TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX events_by_time ON events (time);
CREATE TABLE elements (
    number INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, base INTEGER, data BLOB NOT NULL);
CREATE TABLE documents (number INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE);
CREATE TABLE document_elements (
    document INTEGER, place INTEGER, element INTEGER NOT NULL,
    PRIMARY KEY (document, place)) WITHOUT ROWID;
CREATE TABLE recordings (decision INTEGER PRIMARY KEY, request TEXT NOT NULL);
CREATE TABLE recorded_documents (
    decision INTEGER, place INTEGER, role TEXT NOT NULL, of_engine INTEGER NOT NULL,
    document INTEGER NOT NULL, PRIMARY KEY (decision, place)) WITHOUT ROWID;
"""

_ID = re.compile("[0-9a-fA-F]{16}")


class OtherVersion(sqlite3.DatabaseError):
    """A history of another version of the schema, which is left as it is."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"it is of version {version} of the schema, and this program reads and writes {VERSION}"
        )
        self.version = version


Named = tuple[str, str]  # an id, and a name; the name is empty where it is not known

# A unit's members that its set has, in the set's order; the others are in the body.
_OF_SET = ("name", "kind", "factor", "checksum", "mode", "outcome")
_OF_CALL = ("milliseconds", "message", "notes")
_LETTERS = {"passed": "p", "removed": "r", "failed": "f", "never asked": "n"}
_WORDS = {letter: word for word, letter in _LETTERS.items()}
_COLUMNS = ("id", "time", "milliseconds", "method", "vm", "hosts", "units")


class Row(NamedTuple):
    """A record, in the parts that the tables have."""

    id: int
    time: int  # milliseconds since 1970
    method: str
    vm: Optional[Named]
    vms: tuple[Named, ...]  # by which it is found: its own, and those that it migrates
    cluster: Optional[str]  # that the daemon looked after by itself
    hosts: tuple[Named, ...]
    units: str
    milliseconds: float
    summary: str
    is_bad: bool
    failures: Optional[str]  # JSON: each unit that failed, and its message; None: none failed
    size: int
    body: bytes


def number_of(decision: str) -> int:
    """The 64 bits of an id, as SQLite has them.

    Raises:
        ValueError: it is no id.
    """
    if not _ID.fullmatch(decision):
        raise ValueError(decision)
    value = int(decision, 16)
    return value - (1 << 64) if value >> 63 else value


def id_of(number: int) -> str:
    """The id again."""
    return f"{number & (1 << 64) - 1:016x}"


def written(moment: float) -> str:
    """Seconds since 1970 as RFC 3339, in UTC."""
    seconds, milliseconds = divmod(round(moment * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03}Z"


def pack(record: Record) -> Row:
    """A record as it is written; its ``time`` is in seconds since 1970."""
    vm = _named(record["vm"]) if "vm" in record else None
    hosts, units = record["hosts"], record["units"]
    body: dict[str, Any] = {name: record[name] for name in record if name not in _COLUMNS}
    body["units"] = [{name: unit[name] for name in _OF_CALL if name in unit} for unit in units]
    body["hosts"] = _packed_hosts(hosts)
    if "answer" in body:
        body["answer"] = _packed_answer(record)
    text = as_json(body).encode()
    answer = record.get("answer")
    migrated = answer if isinstance(answer, dict) and "vm" not in answer else {}
    vms = dict.fromkeys(((vm,) if vm else ()) + tuple((each, "") for each in migrated))
    summary = explanation.summary(record)
    return Row(
        number_of(record["id"]),
        round(record["time"] * 1000),
        record["method"],
        vm,
        tuple(vms),
        record.get("cluster"),
        tuple(map(_named, hosts)),
        as_json([[unit.get(name) for name in _OF_SET] for unit in units]),
        record["milliseconds"],
        summary["summary"],
        summary["is_bad"],
        as_json(summary["failures"]) if summary["failures"] else None,
        len(text),
        zlib.compress(text, 6),
    )


def unpack(row: sqlite3.Row, hosts: Sequence[Named]) -> Record:
    """The record, with its time in words.

    Args:
        row: of ``decisions``, with ``units`` of its set, ``vm_id`` and ``vm_name``.
        hosts: of its set.
    """
    record = _begun(row)
    inside: dict[str, Any] = json.loads(zlib.decompress(row["body"]))
    calls, of_hosts = inside.pop("units"), inside.pop("hosts")
    answer = inside.pop("answer", None)
    record.update(inside)
    record["units"] = [
        {**{key: value for key, value in zip(_OF_SET, one) if value is not None}, **call}
        for one, call in zip(json.loads(row["units"]), calls)
    ]
    record["hosts"] = [entity(*host) for host in hosts]
    _unpack_hosts(record, of_hosts)
    if answer is not None:
        record["answer"] = _unpacked_answer(answer, record)
    return record


def unpack_summary(row: sqlite3.Row) -> Record:
    """What a list shows of a decision: as ``explanation.summary`` gives it."""
    failures = json.loads(row["failures"] or "[]")
    return {
        **_begun(row),
        "summary": row["summary"],
        "is_bad": bool(row["is_bad"]),
        "failures": failures,
    }


def _begun(row: sqlite3.Row) -> Record:
    """What of a record stands in columns of its own."""
    record: Record = {"id": id_of(row["id"]), "time": written(row["time"] / 1000)}
    record.update(milliseconds=row["milliseconds"], method=row["method"])
    if row["vm_id"] is not None:
        record["vm"] = entity(row["vm_id"], row["vm_name"])
    return record


def members(units: str) -> Iterator[tuple[str, str]]:
    """Each unit of a set, with how its call ended."""
    for name, *_, outcome in json.loads(units):
        yield name, outcome


def as_json(value: object) -> str:
    """The value as JSON without spaces, as columns keep it."""
    return json.dumps(value, separators=(",", ":"))


def _named(entity: Record) -> Named:
    return entity.get("id", ""), entity.get("name", "")


def _packed_hosts(hosts: Sequence[Record]) -> dict[str, Any]:
    """By unit in place of by host, which repeats less.

    ``verdicts``: a letter for each host, or a blank; ``costs``: a number, or null. Beside them what
    few hosts have, by the host's place: ``verdict_reasons``, ``cost_reasons`` and ``held``.
    """
    verdicts: dict[str, list[str]] = defaultdict(lambda: [" "] * len(hosts))
    costs: dict[str, list[Optional[int]]] = defaultdict(lambda: [None] * len(hosts))
    few: dict[str, dict[str, dict[str, Any]]] = {
        name: defaultdict(dict) for name in ("verdict_reasons", "cost_reasons", "held")
    }
    for place, host in enumerate(hosts):
        for verdict in host.get("verdicts", ()):
            unit = verdict["unit"]
            verdicts[unit][place] = _LETTERS[verdict["verdict"]]
            if "reason" in verdict:
                few["verdict_reasons"][unit][str(place)] = verdict["reason"]
        for cost in host.get("costs", ()):
            unit = cost["unit"]
            costs[unit][place] = cost["cost"]
            if "reason" in cost:
                few["cost_reasons"][unit][str(place)] = cost["reason"]
            if "held" in cost:
                few["held"][unit][str(place)] = cost["held"]
    letters = {unit: "".join(of_hosts) for unit, of_hosts in verdicts.items()}
    packed = {"verdicts": letters, "costs": costs, **few}
    return {name: each for name, each in packed.items() if each}


def _unpack_hosts(record: Record, packed: dict[str, Any]) -> None:
    hosts = record["hosts"]
    factors = {unit["name"]: unit["factor"] for unit in record["units"] if "factor" in unit}
    for unit, letters in packed.get("verdicts", {}).items():
        reasons = packed.get("verdict_reasons", {}).get(unit, {})
        for place, (host, letter) in enumerate(zip(hosts, letters)):
            if letter != " ":
                verdict = {"unit": unit, "verdict": _WORDS[letter]}
                if str(place) in reasons:
                    verdict["reason"] = reasons[str(place)]
                host.setdefault("verdicts", []).append(verdict)
    for unit, costs in packed.get("costs", {}).items():
        reasons = packed.get("cost_reasons", {}).get(unit, {})
        held = packed.get("held", {}).get(unit, {})
        for place, (host, cost) in enumerate(zip(hosts, costs)):
            if cost is not None:
                key, factor = str(place), factors[unit]
                weighted = factor * held.get(key, cost)
                entry = {"unit": unit, "cost": cost, "factor": factor, "weighted": weighted}
                if key in held:
                    entry["held"] = held[key]
                if key in reasons:
                    entry["reason"] = reasons[key]
                host.setdefault("costs", []).append(entry)
    ranking.put_totals(record)


def _packed_answer(record: Record) -> Any:
    """Ids as the places of their hosts; a word where it follows from verdicts or totals."""
    answer = record["answer"]
    if not isinstance(answer, list):
        return answer
    for word, derived in _DERIVED.items():
        if answer == derived(record):
            return word
    place_of = {host["id"]: place for place, host in enumerate(record["hosts"])}
    return [place_of.get(each, each) for each in answer]


def _unpacked_answer(answer: Any, record: Record) -> Any:
    if isinstance(answer, str) and answer in _DERIVED:
        return _DERIVED[answer](record)
    if isinstance(answer, list):
        hosts = record["hosts"]
        return [hosts[each]["id"] if isinstance(each, int) else each for each in answer]
    return answer


def _left(record: Record) -> list[str]:
    """The hosts that no filter removed."""
    return [
        host["id"]
        for host in record["hosts"]
        if all(verdict["verdict"] != REMOVED for verdict in host.get("verdicts", ()))
    ]


def _ranked(record: Record) -> list[str]:
    """The hosts with a rank, the best first."""
    ranked = (host for host in record["hosts"] if "rank" in host)
    return [host["id"] for host in sorted(ranked, key=itemgetter("rank"))]


# Answers that follow from what else is there, by the word that is kept in their place.
_DERIVED: dict[str, Callable[[Record], list[str]]] = {"left": _left, "ranked": _ranked}
