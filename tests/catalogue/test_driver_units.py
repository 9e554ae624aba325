"""Drivers made ready to be called: names, versions, properties."""

from __future__ import annotations

import dataclasses

import pytest

from ovirt_scheduler.catalogue import driver_units
from ovirt_scheduler.errors import PluginError
from ovirt_scheduler.model.analysis import FoundDriver
from ovirt_scheduler.model.plugins import PluginCode, Property
from ovirt_scheduler.settings.table import PluginConf
from tests.support.jobs import LIMITS

CODE = PluginCode("p", "/p", ())
FOUND = FoundDriver("A", 3, "described", "a", "t", ("LoadBalancer",))
CHECKSUM = "sha256:0123456789abcdef"


def made(conf=None, **changes):
    found = dataclasses.replace(FOUND, **changes)
    return driver_units.make_driver(found, CODE, conf or PluginConf("p"), CHECKSUM, LIMITS)


def test_id_and_version_are_calculated():
    """The id of the name alone, the version of the checksum unless it is said."""
    assert (made().id, made().version) == (made(line=4, topic=None).id, "0123456789ab")
    assert made(name="b").id != made().id
    assert made(version="1.2").version == "1.2"


def test_policies_are_a_property():
    """The first is the default; they are words, not patterns."""
    policy = made(policies=("a.b", "c"), properties="k=v").properties.properties[1]
    assert policy == Property("policy", r"a\.b|c", "a.b")


def test_a_conf_file_comes_before_the_class():
    """As for policy units (contract 5.8)."""
    conf = PluginConf("p", "size={1-9}", "3")
    (size,) = made(conf, properties="other=x").properties.properties
    assert size == Property("size", "{1-9}", "3")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"properties": "no pattern"}, "expected key=regex"),
        ({"properties": "filters=x"}, "filters and cost_functions are the daemon's own"),
        ({"properties": "policy=x", "policies": ("x",)}, "policies make the property policy"),
    ],
)
def test_properties_that_cannot_be_are_refused(changes, message):
    """With what to do."""
    with pytest.raises(PluginError, match=message):
        made(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "the driver 'A': name: expected"),
        ({"name": "two\nlines"}, "name: expected at most 128 printable characters"),
        ({"name": "x" * 129}, "name: expected"),
        ({"topic": ""}, "topic: expected letters"),
        ({"topic": "a b"}, "topic: expected letters"),
        ({"written_for": "four"}, "written_for: expected a version"),
        ({"policies": ("x", "x")}, "policies: one occurs twice"),
        ({"policies": ("",)}, "policies: expected names of at most 128 printable characters"),
        ({"policies": ("x" * 129,)}, "policies: expected names"),
        ({"version": "1" * 129}, "version: expected at most 128 characters"),
    ],
)
def test_what_others_call_it_by_has_a_form(changes, message):
    """It stands in the log, in messages and in answers."""
    with pytest.raises(PluginError) as refused:
        driver_units.check_drivers([dataclasses.replace(FOUND, **changes)], "/p/p.py")
    assert message in str(refused.value)
    assert str(refused.value).startswith("/p/p.py:3: ")


@pytest.mark.parametrize(
    ("written_for", "there", "too_new"),
    [
        (None, "4.5", False),
        ("99", None, False),
        ("4.5", "4.5", False),
        ("4.5.3", "4.5", False),
        ("4.5.3", "4.5.2", True),
        ("4.10", "4.9", True),
        ("4", "4.5", False),
        ("5", "4.5", True),
    ],
)
def test_a_driver_is_too_new_where_its_version_is_above_the_engines(written_for, there, too_new):
    """As numbers, and as exactly as the engine's is told."""
    assert driver_units.too_new(made(written_for=written_for), there) is too_new
