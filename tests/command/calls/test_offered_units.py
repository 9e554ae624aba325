"""Properties of a command that nothing which it calls knows."""

from __future__ import annotations

import pytest

from tests.support.command import run
from tests.support.paths import PROJECT

HOSTS = ("--hosts", str(PROJECT / "demo" / "hosts.xml"))
KEEP = "def do_filter(hosts, vm, properties):\n    return hosts\n"
READS = (
    'def do_filter(hosts, vm, properties):\n    return hosts[: int(properties.get("first", 9))]\n'
)


@pytest.fixture
def folder(tmp_path):
    """A filter that declares a property, one that reads another, and one that has none."""
    for name, source in (("Most", KEEP), ("Reads", READS), ("Plain", KEEP)):
        (tmp_path / f"{name}.py").write_text(source)
    (tmp_path / "Most.conf").write_text("customProperties = most={1-99}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (("filter", "Most", "--property", "mots=5"), "mots: nothing that is called knows it; did"),
        (("filter", "Most", "--property", "most=5"), ""),
        (("filter", "Most", "Plain", "--property", "mots=5"), ""),  # Plain may read any
        (("select", "default", "--property", "hihg_utilization=5"), "hihg_utilization: nothing"),
        (
            ("select", "default", "--property", "filters=Most", "--property", "mots=5"),
            "mots: nothing that is called knows it; did you mean most?",
        ),
        (("select", "default", "--property", "filters=Most", "--property", "most=5"), ""),
    ],
)
def test_a_property_that_nothing_declares_is_noted(one_executor, folder, words, note):
    status, _, err = run(folder, *words, *HOSTS, "--local", "--plugins", str(folder))
    assert status == 0
    assert err.startswith(f"note: property {note}") if note else err == ""


@pytest.mark.parametrize(
    ("name", "is_noted"), [("first", False), ("frist", True), ("properties", False)]
)
def test_a_plugin_that_is_tried_may_read_what_it_does_not_declare(
    one_executor, folder, name, is_noted
):
    """As long as its conf file is not written yet, the names in its code are known."""
    status, out, _ = run(folder, "try", str(folder / "Reads.py"), *HOSTS, "--property", f"{name}=1")
    assert (status, f"note: property {name}: nothing" in out) == (0, is_noted)


def test_a_property_of_a_section_that_nothing_knows_is_noted(one_executor, folder):
    """By a simulation, and by the check of the settings."""
    words = ("simulate", "demo/cluster.xml", "--plugins", str(folder), "--set", "filters=Most")
    status, out, _ = run(folder, *words, "--set", "properties=mots=5", "--balancings", "1")
    assert (status, "\nnote: property mots: nothing that is called knows it" in out) == (0, True)
    conf = folder / "scheduler.conf"
    conf.write_text("[clusters]\n[[Default]]\nfilters = Most\nproperties = mots=5\n")
    out, err = run(folder, "check", "--config", str(conf), "--plugins", str(folder))[1:]
    assert err == ""
    assert "note: [[Default]] properties: property mots: nothing that is called knows it" in out
