"""The one pass over a document reads what the SDK reads, or says that it is not certain."""

from __future__ import annotations

from random import Random
from typing import Any, List

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ovirtsdk4 import readers
from ovirtsdk4.reader import Reader

from bench.documents import hosts as bench_hosts
from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.processes.documents import parser
from ovirt_scheduler.processes.documents.parser import HOSTS, VMS, Kind
from ovirt_scheduler.processes.documents.sdk_fields import Field, Table, Unexpected, table_of
from ovirt_scheduler.processes.documents.states import entity_of
from tests.support import reading
from tests.support.fuzzing import tries
from tests.support.sdk_reading import SHARED, by_the_sdk, differences

TEXTS = {
    "int": ["1", " 7 ", "-1", "9" * 20, "1_0", "x", "1.0"],
    "float": ["1.5", "2", "1e999", "nan", "x"],
    "bool": ["true", "false", "True", "1", "tRUE", "x"],
    "str": ["é", "a &amp; b", "a></a", "&#10;", " ", "\r\n", "1<!-- c -->2", "<![CDATA[<x>]]>y"],
    "date": ["2026-07-21T10:11:12.5+02:00", "2026-07-21T10:11:12Z", "2026-07-21T10:11:12", "x"],
}  # fmt: skip


def text_of(field: Field, chance: Random) -> str:
    """A value of a field, now and then a wrong one."""
    convert = field.convert
    if convert in (int, float):
        kind = "int" if convert is int else "float"
    elif convert is None:
        kind = "str"
    else:
        owner = getattr(convert, "__self__", None)
        if isinstance(owner, dict) and "true" not in owner:
            return chance.choice([*owner, "UP", "", *list(owner)])
        kind = "bool" if isinstance(owner, dict) else "date"
    good = TEXTS[kind][: 2 if kind != "str" else None]
    return chance.choice(good * 20 + TEXTS[kind])


def element(name: str, field: Field, chance: Random, depth: int) -> str:
    """An element with what a field may have in it."""
    href = chance.choice(["", "", f' href="/{name}"'])
    if field.is_value:
        empty = chance.random()
        if empty < 0.03:
            return chance.choice([f"<{name}/>", f"<{name} />", f"<{name}></{name}>"])
        inner = "<b>x</b>" if empty > 0.999 else ""
        return f"<{name}>{text_of(field, chance)}{inner}</{name}>"
    if field.table is not None:
        return entity(name, field.table, chance, depth + 1)
    assert field.each is not None
    inside = "".join(
        element(chance.choice(["a", "link", name]), field.each, chance, depth)
        for _ in range(chance.choice([0, 0, 1, 2]))
    )
    return f"<{name}{href}>{inside}</{name}>"


def entity(name: str, table: Table, chance: Random, depth: int = 0, identifier: str = "") -> str:
    table.know()
    parts: List[str] = []
    names = list(table.fields) if depth < 4 else []
    for one in chance.sample(names, min(len(names), chance.choice([0, 1, 3, 6]))):
        try:
            parts.append(element(one, table.fields[one], chance, depth))
        except Unexpected:
            continue
    rels = chance.sample(sorted(table.links), min(len(table.links), chance.choice([0, 1, 3])))
    parts += [f'<link rel="{rel}" href="{chance.choice(["", "/x", "/y"])}"/>' for rel in rels]
    if chance.random() < 0.2:
        parts.append(
            chance.choice(["<unknown><a><b/></a></unknown>", "text", "<!-- c -->", "\n  "])
        )
    chance.shuffle(parts)
    if depth and parts and chance.random() < 0.1:
        parts.append(parts[0])
    identifier = identifier or chance.choice(["", "x"])
    shown = f' id="{identifier}"' if identifier and name != "cpu" else ""
    href = chance.choice(["", "", ' href="/h"'])
    return f"<{name}{href}{shown}>{''.join(parts)}</{name}>"


@pytest.mark.parametrize("kind", [HOSTS, VMS], ids=lambda kind: kind.many)
def test_what_is_certain_is_what_the_sdk_reads(kind: Kind) -> None:
    """Documents of all fields that the SDK knows, with values right and wrong."""
    certain = []

    @tries(300)
    @given(st.randoms(use_true_random=False))
    def check(chance: Random) -> None:
        members = [entity(kind.one, kind.table, chance, 0, str(n)) for n in range(2)]
        data = f"<{kind.many}>{''.join(members)}</{kind.many}>".encode()
        try:
            passed = parser.take(data, kind)
        except UnreadableDocument:
            return
        if passed.states is not None and not passed.maybe_version3:
            ours = [entity_of(state) for state in passed.states]
            for mine, other in zip(ours, Reader.read(data)):
                assert list(differences(mine, other)) == [], data
        certain.append(passed.states is not None)

    check()
    assert sum(certain) > len(certain) / 4


def states_of(data: bytes, kind: Kind = HOSTS) -> Any:
    return parser.take(data, kind).states


@pytest.mark.parametrize(
    "inside",
    [
        "<memory>x</memory>",
        "<memory></memory>",
        "<memory>1<b/></memory>",
        "<update_available>maybe</update_available>",
        "<link rel='nics' href='/x'><a/></link>",
        "<link rel='nics' href='/x'/><nics href='/y'/>",
        "<certificate><organization>" + "x" * 50_000 + "</organization></certificate>",
        "<x" + "x" * 60_000 + "/>",
    ],
    ids=lambda text: text[:40],
)
def test_what_is_not_certain(inside: str) -> None:
    """Wrong values, markup in a value, what libxml2 may refuse: the SDK's reader is asked."""
    assert states_of(f"<host id='a'>{inside}</host>".encode()) is None


@pytest.mark.parametrize("name", ["hosts", "host-single"])
@pytest.mark.skipif(not SHARED.is_dir(), reason="the real documents are not here")
def test_documents_of_engines_are_certain(name: str) -> None:
    """Nothing that an engine of version 4 writes is read a second time."""
    assert states_of((SHARED / "v4" / f"{name}.xml").read_bytes()) is not None


def test_many_hosts_are_certain() -> None:
    """Nor what the benchmark measures."""
    found = reading.read_hosts(Document(bench_hosts(20).encode()))
    assert states_of(bench_hosts(20).encode()) is not None
    for mine, other in zip(found, by_the_sdk(bench_hosts(20).encode())):
        assert list(differences(mine, other)) == []


def test_an_sdk_with_another_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a table cannot be made, the SDK's own reader is asked for everything."""
    read_one = readers.HostReader.read_one

    def other(reader: Any) -> Any:
        return read_one(reader)

    monkeypatch.setattr(readers.HostReader, "read_one", staticmethod(other))
    kind = Kind("hosts", "host", "hosts", Table(readers.HostReader))
    assert states_of(b"<host id='a'><memory>5</memory></host>", kind) is None


def test_tables_say_what_the_sdk_reads() -> None:
    """Of each reader of the SDK but two, whose id is no text."""
    unknown = []
    for name in vars(readers):
        if name.endswith("Reader") and name != "Reader":
            try:
                table_of(name).know()
            except Unexpected:
                unknown.append(name)
    assert set(unknown) <= {"MethodReader", "VlanReader"}
    table = table_of("HostReader")
    assert (table.entity, table.has_id) == ("Host", True)
    assert table.fields["memory"] == Field("_memory", is_value=True, convert=int)
    assert table.fields["cpu"].table is table_of("CpuReader")
    assert table.links["numanodes"] == "_numa_nodes"
