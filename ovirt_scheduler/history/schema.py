"""The tables of ``history.sqlite``, and a record as it is written there.

::

    names ◄── host_set_members ──► host_sets ◄─┐
      ▲                                        decisions ──► unit_sets ◄── unit_set_members
      └───── vm_decisions ─────────────────────┘    body: what no column has
                                                  │
    elements ◄── document_elements ──► documents ◄── recorded_documents, recordings

Most decisions have the same hosts and the same units: each set is written once, and a decision
names the set. So one host's decisions are found without a row for each host of each decision.
docs/history.md has the schema for other programs.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Union, cast

from ovirt_scheduler.history import outcomes, query, ranking
from ovirt_scheduler.history.record import (
    FAILED,
    NEVER_ASKED,
    PASSED,
    REMOVED,
    Entity,
    Host,
    Record,
    UnitRecord,
    entity,
)
from ovirt_scheduler.history.unpacking import Unpacking
from ovirt_scheduler.model.units import Kind

VERSION = 4

SUMMARY = "decisions.id, time, method, milliseconds, summary, is_bad, failures"

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
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, time INTEGER NOT NULL, method TEXT NOT NULL,
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
-- The key's columns first: SQLite's integrity_check takes others for missing where it is not so.
CREATE TABLE document_elements (
    document INTEGER, place INTEGER, element INTEGER NOT NULL,
    PRIMARY KEY (document, place)) WITHOUT ROWID;
CREATE TABLE recordings (decision INTEGER PRIMARY KEY, request TEXT NOT NULL);
CREATE TABLE recorded_documents (
    decision INTEGER, place INTEGER, role TEXT NOT NULL, of_engine INTEGER NOT NULL,
    document INTEGER NOT NULL, PRIMARY KEY (decision, place)) WITHOUT ROWID;
"""


class OtherVersion(sqlite3.DatabaseError):
    """A history of another version of the schema, which is left as it is."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"it is of version {version} of the schema, and this program reads and writes {VERSION}"
        )
        self.version = version


IdAndName = tuple[str, str]  # an id, and a name; the name is empty if it is not known
Row = dict[str, Any]  # a record, in the parts that the tables have
# What the body has of a unit: some of ``_OF_CALL``, and what it said of hosts (``_packed_calls``).
PackedCall = dict[str, Any]

# A unit's members that the body has; its set has the others.
_OF_CALL = ("milliseconds", "message", "notes")
_LETTERS = {word: word[0] for word in (PASSED, REMOVED, FAILED, NEVER_ASKED)}
_WORDS = {letter: word for word, letter in _LETTERS.items()}
_JSON = json.JSONEncoder(separators=(",", ":"))
_OF_FEW = ("held", "reason")  # of a verdict or a cost
_COLUMNS = ("id", "time", "milliseconds", "method", "vm", "cluster", "hosts", "units")
_FOLLOWS = "follows"  # instead of an answer that totals or verdicts tell


def pack(record: Record) -> Row:
    """A record as it is written.

    Returns:
        The columns of ``decisions``, or what gives them: ``hosts`` and ``units`` of its sets, and
        ``vms`` by which it is found, its own and those that it migrates.
    """
    vm = _named(record["vm"]) if "vm" in record else None
    hosts, units, answer = record["hosts"], record["units"], record.get("answer")
    body: Row = {name: each for name, each in record.items() if name not in _COLUMNS}
    body["units"] = _packed_calls(units, hosts)
    if isinstance(answer, list):
        if answer == _following(record):
            body["answer"] = _FOLLOWS
        else:
            places = {host["id"]: place for place, host in enumerate(hosts)}
            body["answer"] = [places.get(each, each) for each in answer]
    text = as_json(body).encode()
    migrated = answer if isinstance(answer, dict) and "vm" not in answer else {}
    names = dict(map(_named, record.get("vms", ())))
    vms = dict.fromkeys(
        ((vm,) if vm else ()) + tuple((each, names.get(each, "")) for each in migrated)
    )
    summary = outcomes.summary(record)
    return {
        "id": record["id"],
        "time": round(query.moment(record["time"]) * 1000),
        "method": record["method"],
        "vm": vm,
        "vms": tuple(vms),
        "cluster": record.get("cluster"),
        "hosts": tuple(map(_named, hosts)),
        "units": as_json(
            [{key: each for key, each in unit.items() if key not in _OF_CALL} for unit in units]
        ),
        "milliseconds": record["milliseconds"],
        "summary": summary["summary"],
        "is_bad": summary["is_bad"],
        "failures": as_json(summary["failures"]) if summary["failures"] else None,
        "size": len(text),
        "body": _compressed(text),
    }


def unpack(
    row: sqlite3.Row, hosts: Sequence[IdAndName], unpacking: Unpacking, check: Callable[[], None]
) -> Record:
    """The record.

    Args:
        row: of ``decisions``, with ``units`` of its set, ``vm_id`` and ``vm_name``.
        hosts: of its set.
        check: called again and again; may raise, which ends it.
    """
    check()
    body: Row = json.loads(unpacking.unpack(row["body"]))
    calls: Sequence[PackedCall] = body.pop("units")
    record = cast("Record", {**_begun(row), **body})
    if row["cluster"] is not None:
        record["cluster"] = row["cluster"]
    units: list[UnitRecord] = json.loads(row["units"])
    for unit, call in zip(units, calls):
        unit.update(cast("UnitRecord", {name: call[name] for name in _OF_CALL if name in call}))
    record["units"] = units
    record["hosts"] = entries = [entity(*host) for host in hosts]
    for unit, call in zip(units, calls):
        check()
        if "said" in call:
            _unpack_answers(entries, unit, call)
    answer = record.pop("answer", None)
    ranking.put_totals(record)
    if answer == _FOLLOWS:
        record["answer"] = _following(record)
    elif isinstance(answer, list):
        record["answer"] = [entries[each]["id"] if type(each) is int else each for each in answer]
    elif answer is not None:
        record["answer"] = answer
    if ranking.is_selection(record):
        ranking.put_totals(record)  # its ranks are those of the answer
    return record


def unpack_brief(row: sqlite3.Row) -> Record:
    """What a list shows of a decision (contract 8.4)."""
    brief = _begun(row)
    brief["summary"], brief["is_bad"] = row["summary"], bool(row["is_bad"])
    brief["failures"] = json.loads(row["failures"] or "[]")
    return brief


def _begun(row: sqlite3.Row) -> Record:
    """What records and lists have alike, from its own columns."""
    brief: Record = {
        "id": row["id"],
        "time": query.written(row["time"] / 1000),
        "milliseconds": row["milliseconds"],
        "method": row["method"],
    }
    if row["vm_id"] is not None:
        brief["vm"] = entity(row["vm_id"], row["vm_name"])
    return brief


def as_json(value: object) -> str:
    """The value as JSON without spaces, as columns keep it."""
    return _JSON.encode(value)


def _compressed(text: bytes) -> bytes:
    """The text in the format of zlib, with a window of 4 KiB.

    With the usual one zlib asks the system for 256 KiB each time, which takes fifteen times as long
    as the text of most decisions.
    """
    packer = zlib.compressobj(6, wbits=12, memLevel=4)
    return packer.compress(text) + packer.flush()


def _named(entity: Union[Entity, Host]) -> IdAndName:
    return entity.get("id", ""), entity.get("name", "")


def _packed_calls(
    units: Sequence[UnitRecord], hosts: Sequence[Mapping[str, Any]]
) -> list[PackedCall]:
    """For each unit what its set does not have: how its call ended, and its verdicts or costs.

    ``said`` has for each host a verdict's letter, or a cost, or a blank or null. ``reason`` and
    ``held``, which few hosts have, are by the host's place. So less is repeated than by host.
    """
    calls: list[PackedCall] = [
        {name: each for name, each in unit.items() if name in _OF_CALL} for unit in units
    ]
    by_name: dict[tuple[str, str], PackedCall] = {}
    for unit, call in zip(units, calls):
        by_name.setdefault((_part(unit), unit["name"]), call)  # a filter's before a scheduler's
    for place, host in enumerate(hosts):
        for part in ("verdicts", "costs"):
            for entry in host.get(part, ()):
                call = by_name[part, entry["unit"]]
                if "said" not in call:
                    call["said"] = [None] * len(hosts)
                call["said"][place] = _LETTERS.get(entry.get("verdict"), entry.get("cost"))
                for name in _OF_FEW:
                    if name in entry:
                        call.setdefault(name, {})[str(place)] = entry[name]
    for unit, call in zip(units, calls):
        if "said" in call and _part(unit) == "verdicts":
            call["said"] = "".join(letter or " " for letter in call["said"])
    return calls


def _unpack_answers(hosts: Sequence[Host], unit: UnitRecord, call: PackedCall) -> None:
    part, clamped, reasons = _part(unit), call.get("held", {}), call.get("reason", {})
    for place, (host, answer) in enumerate(zip(hosts, call["said"])):
        key = str(place)
        entry: dict[str, Any] = {"unit": unit["name"]}
        if answer in (None, " ") and key not in reasons:
            continue
        if answer in _WORDS:
            entry["verdict"] = _WORDS[answer]
        elif part == "costs" and answer is not None:
            factor = unit["factor"]
            weighed = clamped.get(key, answer)
            if type(factor) is not int or type(weighed) is not int:  # a text could be multiplied
                raise ValueError(f"a cost of {unit['name']!r:.60} is no number")
            entry.update(cost=answer, factor=factor, weighted=factor * weighed)
        if key in clamped:
            entry["held"] = clamped[key]
        if key in reasons:
            entry["reason"] = reasons[key]
        cast("Row", host).setdefault(part, []).append(entry)


def _part(unit: UnitRecord) -> str:
    """The part of a host's record that has a unit's verdict or cost."""
    return "costs" if unit["kind"] == Kind.COST_FUNCTION.label else "verdicts"


def _following(record: Record) -> list[str]:
    """The hosts with a total, the lowest first; if none has one, those that no filter removed."""
    return ranking.by_cost(record) or [
        host["id"]
        for host in record["hosts"]
        if all(verdict.get("verdict") != REMOVED for verdict in host.get("verdicts", ()))
    ]
