"""The one pass over a document reads what the SDK reads, or says that it is not certain."""

from __future__ import annotations

import py_compile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ovirtsdk4 import readers, types
from ovirtsdk4.reader import Reader

from bench.documents import hosts as bench_hosts
from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.processes.documents import parser, sdk_tables
from ovirt_scheduler.processes.documents.field_tables import Field, Table, Tables
from ovirt_scheduler.processes.documents.parser import HOSTS, VMS, DocumentKind
from ovirt_scheduler.processes.documents.sdk_tables import TABLES
from tests.support import reading
from tests.support.command import script
from tests.support.fuzzing import tries
from tests.support.reading import entity_of
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
    assert field.member is not None
    inside = "".join(
        element(chance.choice(["a", "link", name]), field.member, chance, depth)
        for _ in range(chance.choice([0, 0, 1, 2]))
    )
    return f"<{name}{href}>{inside}</{name}>"


def entity(name: str, table: Table, chance: Random, depth: int = 0, identifier: str = "") -> str:
    names = list(table.fields) if depth < 4 else []
    some = chance.sample(names, min(len(names), chance.choice([0, 1, 3, 6])))
    parts = [element(one, table.fields[one], chance, depth) for one in some]
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
def test_what_is_certain_is_what_the_sdk_reads(kind: DocumentKind) -> None:
    """Documents of all fields that the SDK knows, with values right and wrong."""
    certain = []

    @tries(300)
    @given(st.randoms(use_true_random=False))
    def check(chance: Random) -> None:
        members = [entity(kind.one, TABLES[kind.one], chance, 0, str(n)) for n in range(2)]
        data = f"<{kind.many}>{''.join(members)}</{kind.many}>".encode()
        try:
            states = parser.parse(data, kind, TABLES)
        except UnreadableDocument:
            return
        for mine, other in zip(map(entity_of, states or ()), Reader.read(data) if states else ()):
            assert list(differences(mine, other)) == [], data
        certain.append(states is not None)

    check()
    assert sum(certain) > len(certain) / 4


@pytest.mark.parametrize("value", ["<status>brand_new</status>", "<name/>"])
def test_no_value_is_no_attribute(value: str) -> None:
    """A word that the SDK does not know, and an empty tag, are None: the state lacks them."""
    assert states_of(f"<hosts><host id='a'>{value}</host></hosts>".encode()) == [
        {"": "Host", "_id": "a"}
    ]
    twice = f"<hosts><host id='a'><cluster><name>x</name>{value}</cluster></host></hosts>"
    assert ("_name" in states_of(twice.encode())[0]["_cluster"]) is (value != "<name/>")


def states_of(data: bytes, kind: DocumentKind = HOSTS, tables: Tables = TABLES) -> Any:
    return parser.parse(parser.utf8(Document(data), kind), kind, tables)


@pytest.mark.parametrize(
    "inside",
    [
        "<memory>x</memory>",
        "<memory></memory>",
        "<memory>1<b/></memory>",
        "<update_available>maybe</update_available>",
        "<link rel='nics' href='/x'><a/></link>",
        "<link rel='nics' href='/x' title='y'/>",
        "<link rel='nics' href='/x'/><nics href='/y'/>",
        "<os><boot><devices><device>brand_new</device></devices></boot></os>",
        "<certificate><organization>" + "x" * 50_000 + "</organization></certificate>",
        "<x" + "x" * 60_000 + "/>",
    ],
    ids=lambda text: text[:40],
)
def test_what_is_not_certain(inside: str) -> None:
    """Wrong values, markup in a value, what libxml2 may refuse: the SDK's reader is asked."""
    assert states_of(f"<host id='a'>{inside}</host>".encode()) is None


def test_many_hosts_are_certain() -> None:
    """Those that the benchmark measures."""
    found = reading.read_hosts(Document(bench_hosts(20).encode()))
    assert states_of(bench_hosts(20).encode()) is not None
    for mine, other in zip(found, by_the_sdk(bench_hosts(20).encode())):
        assert list(differences(mine, other)) == []


def test_an_sdk_with_another_reader() -> None:
    """Where a table cannot be made, the SDK's own reader is asked for everything."""
    sources = [Path(each.__file__).read_text("utf-8") for each in (readers, types)]
    sources[0] = sources[0].replace("obj = types.Host()", "obj = types.Host(name='a')")
    tables = sdk_tables.of_source(*sources)
    assert states_of(b"<host id='a'><memory>5</memory></host>", HOSTS, tables) is None
    assert states_of(b"<vm id='a'><memory>5</memory></vm>", VMS, tables) is not None


def test_an_sdk_without_source(tmp_path: Path) -> None:
    """As some images have it: compiled files alone. Its own readers read everything then."""
    (copy := tmp_path / "ovirtsdk4").mkdir()
    for file in Path(readers.__file__).parent.iterdir():
        if file.suffix == ".py":
            py_compile.compile(str(file), str(copy / f"{file.stem}.pyc"))
        elif file.suffix == ".so":
            (copy / file.name).symlink_to(file)
    ended = script(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from ovirt_scheduler.model.requests import Document\n"
        "from ovirt_scheduler.processes.documents import entity_states, parser\n"
        "document = Document(b'<hosts><host id=\"a\"><memory>5</memory></host></hosts>')\n"
        "print(entity_states.read_states(document, parser.HOSTS))\n"
    )
    assert ended.stdout == "([{'': 'Host', '_id': 'a', '_memory': 5}], True)\n", ended.stderr


def tables_in(tables: Tables) -> dict[str, Table]:
    """All that can be in hosts and VMs, by the name of their class."""
    left, found = list(tables.values()), {}
    while left:
        table = left.pop()
        if found.setdefault(table.entity, table) is table:
            inside = [field.member or field for field in table.fields.values()]
            left += [
                field.table for field in inside if field.table and field.table.entity not in found
            ]
    return found


def test_tables_say_what_the_sdk_reads() -> None:
    """Each class that can be in a host or a VM has one."""
    found = tables_in(TABLES)
    assert len(found) > 100 and all(table.entity for table in found.values())
    host = TABLES["host"]
    assert (host.entity, host.identifier) == ("Host", str)
    assert host.fields["memory"] == Field("_memory", is_value=True, convert=int)
    assert host.fields["cpu"].table is found["Cpu"]
    assert host.links["numanodes"] == "_numa_nodes"
    assert found["Vlan"].identifier is int


@pytest.mark.parametrize(
    "name", ["hosts", "host-single", "vm-basic", "vm-fog", "vm-custom-attributes", "vms"]
)
@pytest.mark.skipif(not SHARED.is_dir(), reason="the real documents are not here")
def test_documents_of_engines_are_certain(name: str) -> None:
    """With the methods of a VM's single sign-on, and its placement policy."""
    data = (SHARED / "v4" / f"{name}.xml").read_bytes()
    states = states_of(data, HOSTS if "host" in name else VMS)
    assert states is not None
    for mine, other in zip(map(entity_of, states), by_the_sdk(data)):
        assert list(differences(mine, other)) == []


@pytest.mark.parametrize(
    ("method", "is_certain"),
    [
        ("<method id='guest_agent'/>", True),
        ("<method id='guest_agent' />", True),
        ("<method id='guest_agent'></method>", False),
        ("<method id='guest_agent'> </method>", False),
        ("<method id='Guest_Agent'/>", False),
        ("<method id='unknown'/>", False),
        ("<method/>", True),
    ],
)
def test_an_identifier_that_is_no_text(method: str, is_certain: bool) -> None:
    """A member of an enumeration; the SDK reads on where such an element is not empty."""
    data = f"<vm id='a'><sso><methods>{method}</methods></sso></vm>".encode()
    found = states_of(data, VMS)
    assert (found is not None) is is_certain
    if found is not None:
        assert list(differences(entity_of(found[0]), by_the_sdk(data)[0])) == []


@pytest.mark.parametrize(
    "text",
    [
        *("2026-07-21T10:11:12", "2026-07-21T10:11:12Z", "2026-07-21T10:11:12.123456Z"),
        *("2026-07-21T10:11:12.5+02:00", "2026-07-21T10:11:12.012-11:30", "0001-01-01T00:00:00Z"),
    ],
)
def test_dates(text: str) -> None:
    """They are what the SDK makes of them."""
    data = f"<vm id='a'><creation_time>{text}</creation_time></vm>".encode()
    (state,) = states_of(data, VMS)
    assert list(differences(entity_of(state), by_the_sdk(data)[0])) == []


@pytest.mark.parametrize(
    "text",
    ["", "x", "2026-07-21", "2026-07-21T10:11:60", "2026-13-21T10:11:12", "2026-07-21T10:11:12.1234567",
     "2026-07-21T10:11:12+0200", " 2026-07-21T10:11:12", "\u0662026-07-21T10:11:12"],
)  # fmt: skip
def test_what_is_no_date(text: str) -> None:
    """The SDK has to say what is wrong with it."""
    assert states_of(f"<vm id='a'><creation_time>{text}</creation_time></vm>".encode(), VMS) is None
