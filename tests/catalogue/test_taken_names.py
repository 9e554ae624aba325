"""Drivers whose name or topic another one has: they alone are left out (contract 7.2)."""

from __future__ import annotations

import logging

import pytest

from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import SHIPPED, Loader
from ovirt_scheduler.catalogue.registry import Registry
from tests.support.place import versions

IMPORT = "from ovirt_scheduler.plugin import Driver, Scheduler\n"
FILTER = "def do_filter(hosts, vm, properties):\n    return hosts\n"
CLASS = "class {}:\n    def do_filter(self, hosts, vm, args): ...\n"


def driver(name: str, topic: str, called: str = "") -> str:
    """A class of that name."""
    return (
        f"class {name}(Driver):\n    topic = {topic!r}\n    name = {called or name!r}\n"
        f"    def give(self):\n        return 1\n"
    )


def drivers(place):
    """Name to class, and the files' problems."""
    catalogue = place.registry.refresh()
    found = {name: each.class_name for name, each in catalogue.drivers.items()}
    return found, [str(fault) for fault in catalogue.faults]


@pytest.mark.parametrize("what", ["name", "topic"])
def test_only_the_driver_that_comes_second_is_left_out(place, what):
    """The other drivers and the units of its file work; the message has its line."""
    first = place.write("a", IMPORT + driver("One", "values"))
    again = driver("Two", "values") if what == "topic" else driver("Two", "two", "One")
    second = place.write("b", IMPORT + FILTER + again + driver("Three", "three"))
    found, (fault,) = drivers(place)
    assert found == {"One": "One", "Three": "Three"}
    assert [unit.name for unit in place.registry.refresh().units.values()] == ["b"]
    taken = "the topic values" if what == "topic" else "the driver One"
    assert fault == (
        f"{second}:4: the driver {'Two' if what == 'topic' else 'One'} is left out: One in {first} "
        f"has {taken} already; rename one of them"
    )
    first.unlink()
    found, faults = drivers(place)
    assert (sorted(found.values()), faults) == (["Three", "Two"], [])


def test_two_drivers_of_one_file_are_told_apart_in_the_same_way(place):
    """The first of them by its place in the file works; no topic is no clash."""
    path = place.write(
        "a",
        IMPORT + driver("One", "values") + driver("Two", "values") + driver("Three", "x", "One"),
    )
    found, faults = drivers(place)
    assert found == {"One": "One"}
    assert [fault.partition(": the driver")[0] for fault in faults] == [f"{path}:7", f"{path}:12"]
    assert f"One in {path} has the topic values already" in faults[0]


def test_a_plugin_named_as_a_shipped_scheduler_is_takes_its_place(place):
    """Which gives way, with no word of it (docs/schedulers.md)."""
    place.write("mine", IMPORT + driver("Mine", "own", "default"))
    loader = Loader(place.settings, place.analyse, SHIPPED)
    catalogue = Registry(loader, LastGood(None)).refresh()
    assert catalogue.drivers["default"].class_name == "Mine"
    assert not catalogue.drivers["default"].shipped
    assert (catalogue.faults, versions(catalogue)) == ([], {})


def test_a_shipped_scheduler_whose_topic_a_plugin_has_is_shown_without_it(place):
    """Its name still works."""
    place.write("mine", IMPORT + driver("Mine", "compute", "mine"))
    loader = Loader(place.settings, place.analyse, SHIPPED)
    catalogue = Registry(loader, LastGood(None)).refresh()
    assert catalogue.topics["compute"].name == "mine"
    assert catalogue.drivers["default"].topic is None
    assert (catalogue.faults, versions(catalogue)) == ([], {})


def test_the_log_tells_as_loaded_what_is_in_use_and_nothing_else(place, caplog):
    """Not a file whose unit has a name that is taken, nor a driver that is left out."""
    caplog.set_level(logging.INFO)
    first = place.write("a", IMPORT + driver("One", "values") + CLASS.format("Same"))
    second = place.write("b", IMPORT + driver("Two", "values", "One") + driver("Three", "three"))
    third = place.write("c", CLASS.format("Same") + CLASS.format("Other"))
    place.registry.refresh()
    taken = f"One in {first} has the driver One already"
    told = [
        message.partition(", sha256")[0].partition("; rename")[0] for message in caplog.messages
    ]
    assert told == [
        f"part of a plugin cannot be loaded: {second}:2: the driver One is left out: {taken}",
        f"a plugin cannot be loaded: {third}: {first} has the filter Same already",
        f"loaded {first} (filter Same, driver One)",
        f"loaded {second} (driver Three)",
    ]
    caplog.clear()
    first.write_text(IMPORT + driver("One", "values"))
    place.registry.refresh()
    assert [message.partition(", sha256")[0] for message in caplog.messages] == [
        f"loaded {first} (driver One)",
        f"loaded {third} (filter Same, filter Other)",
    ]
    caplog.clear()
    first.write_text(IMPORT + driver("One", "values") + CLASS.format("Other"))
    place.registry.refresh()
    assert caplog.messages[-1] == f"unloaded {third}: it is left out"
