"""How many properties a unit may have: one with too many would cost an engine the units of all files."""

from __future__ import annotations

import pytest

from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.model.values import properties
from tests.support.java_matches import java_matches, needs_java
from tests.support.place import plugin

CLASS_UNIT = (
    "class many:\n"
    "    properties_validation = {text!r}\n"
    "    def do_filter(self, hosts, vm, args): return hosts\n"
)
DRIVER = (
    "from ovirt_scheduler.plugin import Driver\n"
    "class Many(Driver):\n"
    "    topic = 't'\n"
    "    properties_validation = {text!r}\n"
    "    def ask(self): ...\n"
)


def text_of(count: int, pattern: str = "[0-9]*") -> str:
    return ";".join(f"k{number}={pattern}" for number in range(count))


def write(place, kind: str, text: str) -> str:
    """Put a file there that declares these; where that stands."""
    if kind == "conf file":
        place.write("many", plugin(1))
        conf = place.confs / "many.conf"
        conf.write_text(f"timeout = 5\ncustomProperties = '{text}'\n")
        return f"{conf}:2"
    path = place.write("many", (CLASS_UNIT if kind == "class unit" else DRIVER).format(text=text))
    return f"{path}:{2 if kind == 'class unit' else 4}"


KINDS = pytest.mark.parametrize("kind", ["class unit", "driver", "conf file"])


@KINDS
def test_a_file_with_too_many_properties_is_told_by_its_line_and_costs_no_other_file(place, kind):
    where = write(place, kind, text_of(257, "x"))
    place.write("good", plugin(1))
    catalogue = place.registry.refresh()
    (fault,) = map(str, catalogue.faults)
    assert fault.startswith(f"{where}: there are 257 properties; at most 256 are taken, since the")
    assert [name for _, name in catalogue.units] == ["good"]


@KINDS
def test_a_file_with_as_many_as_an_engine_can_read_loads(place, kind):
    write(place, kind, text_of(256, "x"))
    catalogue = place.registry.refresh()
    assert catalogue.faults == []
    found = [*catalogue.units.values(), *catalogue.drivers.values()]
    assert [len(each.properties.properties) for each in found] == [256]


@needs_java
@pytest.mark.long
def test_java_with_its_default_stack_reads_the_longest_text_that_loads(place):
    """With a group for each property, which takes a frame of the stack; of 900 it takes too many."""
    place.write("many", CLASS_UNIT.format(text=text_of(256, "x" * 250)))
    unit = place.registry.refresh().units[Kind.FILTER, "many"]
    text = properties.engine_syntax(unit.properties)
    assert len(text) > 65_000
    key_and_value = "([a-zA-Z_0-9])+=([^;])*"
    assert java_matches([f"{key_and_value}(;{key_and_value})*;?"], [text]) == ["1"]
