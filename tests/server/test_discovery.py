"""The discover document: the contract's sample, its layout, what no XML can hold; and the structs."""

from __future__ import annotations

import re

import pytest
from lxml import etree

from ovirt_scheduler.model.plugins import Limits, PluginCode, Property, PropertySet
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.model.values import properties
from ovirt_scheduler.server import discovery
from ovirt_scheduler.settings import plugin_conf
from tests.support.paths import PROJECT

SCHEMA = etree.XMLSchema(etree.parse(str(PROJECT / "docs" / "policy-units.xsd")))

SAMPLE = r"""<PolicyUnits>
  <Filters>
    <Filter>
      <name>Memory</name>
      <Properties>
        <name>Heat</name>
        <CustomProperties>server_ip=\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b;threshold={0-99}</CustomProperties>
        <default_values>127.0.0.1;70</default_values>
      </Properties>
    </Filter>
  </Filters>
  <CostFunctions><CostFunction name="Memory"/></CostFunctions>
  <Balances><Balance name="Memory"/></Balances>
</PolicyUnits>"""


def unit(
    name: str,
    kind: Kind = Kind.FILTER,
    description: str = "",
    properties: PropertySet | None = None,
) -> PolicyUnit:
    return PolicyUnit(
        name=name,
        kind=kind,
        description=description,
        plugin=PluginCode("plugin", "/plugins", ()),
        checksum="sha256:" + "0a" * 32,
        limits=Limits(30.0, 1 << 29, 60, 256),
        properties=properties,
    )


def valid(*units: PolicyUnit) -> etree._Element:
    """The document of some units, opened, after a look whether it holds to the schema."""
    root = etree.fromstring(discovery.document(units).encode())
    SCHEMA.assertValid(root)
    return root


def test_the_sample_of_the_contract_is_reproduced_to_the_letter():
    """From the conf file that is shipped, but for two attributes more (contract 2.1)."""
    file = PROJECT / "etc" / "plugins" / "Memory.conf"
    conf = plugin_conf.parse(file.read_bytes(), file)
    heat = properties.parse(conf.name, conf.custom_properties, conf.default_values)
    units = [
        unit("Memory", kind, "Room for the VM", heat if kind in conf.kinds else None)
        for kind in Kind
    ]
    made = discovery.document(units)
    beyond = f' description="Room for the VM" checksum="{units[0].checksum}"'
    assert made.count(beyond) == 3
    assert made.replace(beyond, "") == SAMPLE
    valid(*units)


def test_no_units_are_three_empty_groups():
    """The groups are always there."""
    root = valid()
    assert [(child.tag, len(child)) for child in root] == [
        ("Filters", 0),
        ("CostFunctions", 0),
        ("Balances", 0),
    ]


@pytest.mark.parametrize(
    ("kind", "group", "element"),
    [
        (Kind.FILTER, "Filters", "Filter"),
        (Kind.COST_FUNCTION, "CostFunctions", "CostFunction"),
        (Kind.BALANCE, "Balances", "Balance"),
    ],
)
def test_units_stand_in_their_kinds_group_by_name(kind, group, element):
    """With properties or without, in one order."""
    some = properties.parse("Set", "a=b", "b")
    root = valid(unit("c", kind), unit("a", kind), unit("b", kind, properties=some))
    found = root.find(group)
    assert found is not None
    assert [(child.tag, child.get("name") or child.findtext("name")) for child in found] == [
        (element, "a"),
        (element, "b"),
        (element, "c"),
    ]
    assert sum(len(child) for child in root) == 3


def test_a_group_without_properties_is_one_line():
    """As in the contract's sample, however many units it has."""
    made = discovery.document([unit("a"), unit("b"), unit("c", Kind.BALANCE)])
    assert [re.sub(' (description|checksum)="[^"]*"', "", line) for line in made.split("\n")] == [
        "<PolicyUnits>",
        '  <Filters><Filter name="a"/><Filter name="b"/></Filters>',
        "  <CostFunctions/>",
        '  <Balances><Balance name="c"/></Balances>',
        "</PolicyUnits>",
    ]


NASTY = [
    "<b> & </b>", "]]> <![CDATA[x]]> <!-- -->", "'single' and \"double\"",
    "two\nlines\r\nand\ta tab", "  around  ", "&amp;lt;&#10; ", "größer \U0001f642 \u2028",
    "%s {0} $x \\",
]  # fmt: skip


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("with_properties", [False, True])
def test_any_text_comes_out_as_it_went_in(text, with_properties):
    """Names, descriptions, patterns and defaults, for one who reads the XML."""
    some = PropertySet(text, (properties.Property("a", text, text),)) if with_properties else None
    found = valid(unit(text, description=text, properties=some)).find("Filters/Filter")
    assert found is not None
    assert found.get("description") == text
    if some is None:
        assert found.get("name") == text
    else:
        texts = [found.findtext("name"), *(part.text for part in found[1])]
        assert texts == [text, text, f"a={text}", text]


@pytest.mark.parametrize(
    "character", ["\x00", "\x0b", "\x1b", "\x1f", "\ud800", "\udfff", "\ufffe", "\uffff"]
)
def test_what_xml_cannot_hold_is_replaced(character):
    """One docstring with a control character does not spoil the document."""
    some = PropertySet(f"s{character}", (properties.Property("a", f"p{character}"),))
    plain = valid(unit(f"n{character}", description=f"d{character}")).find("Filters/Filter")
    assert plain is not None
    assert (plain.get("name"), plain.get("description")) == ("n\ufffd", "d\ufffd")
    rich = valid(unit(f"n{character}", properties=some)).find("Filters/Filter")
    assert rich is not None
    texts = [rich.findtext("name"), *(part.text or "" for part in rich[1])]
    assert texts == ["n\ufffd", "s\ufffd", "a=p\ufffd", ""]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (SAMPLE, "description"),
        ("<PolicyUnits><Filters/><Balances/><CostFunctions/></PolicyUnits>", "Balances"),
        (discovery.document([unit("a"), unit("b")]).replace('"b"', '"a"'), "Duplicate key-sequence"),
        (discovery.document([unit("a")]).replace('name="a"', ""), "Not all fields of key"),
        (discovery.document([unit("a")]).replace("sha256:", "md5:"), "checksum"),
    ],
)  # fmt: skip
def test_the_schema_refuses_what_is_no_such_document(wrong, words):
    """So that its word counts in the other tests."""
    assert not SCHEMA.validate(etree.fromstring(wrong))
    assert words in str(SCHEMA.error_log)


def test_the_engines_discover_has_three_structs_of_pairs_of_strings():
    """Never nil, never another key; ranges as regexes, no default values (contract 3.1)."""
    heat = PropertySet("Heat", (Property("ip", "[0-9.]+", "1.2.3.4"), Property("low", "{0-9}")))
    units = [
        unit("F", Kind.FILTER, "about F", heat),
        unit("F", Kind.COST_FUNCTION),
        unit("B", Kind.BALANCE, "about B"),
    ]
    assert discovery.structs(units) == {
        "filters": {"F": ["about F", "ip=[0-9.]+;low=[0-9]"]},
        "scores": {"F": ["", ""]},
        "balance": {"B": ["about B", ""]},
    }
    assert discovery.structs([]) == {"filters": {}, "scores": {}, "balance": {}}
