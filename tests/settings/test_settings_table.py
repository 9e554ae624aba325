"""The table of settings, and the files that are made from it."""

from __future__ import annotations

import importlib

import pytest

from ovirt_scheduler.settings.table import CLUSTER, PLUGIN, SCHEDULER
from tests.support.paths import PROJECT


@pytest.fixture
def files(monkeypatch):
    """What makes files of the table."""
    monkeypatch.syspath_prepend(str(PROJECT / "docs"))
    return importlib.import_module("settings_files")


STALE = "is not what the table of settings says: run `python docs/generate.py`"


def test_the_sample_file_is_the_table(files):
    """etc/scheduler.conf says what the daemon checks."""
    written = (PROJECT / "etc" / "scheduler.conf").read_text(encoding="utf-8")
    assert written == files.sample(), f"etc/scheduler.conf {STALE}"


def test_the_manual_is_the_table(files):
    """docs/configuration.md says what the daemon checks."""
    written = (PROJECT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == files.manual(written), f"docs/configuration.md {STALE}"
    for key in SCHEDULER + CLUSTER + PLUGIN:
        assert f"`{key.name}` |" in written


def test_the_manual_keeps_what_is_between_its_tables(files):
    """Only what stands between the two marks of a table is made anew."""
    text = (
        "head\n<!-- table: scheduler.conf -->\n| stale |\n<!-- end of table -->\nmiddle\n"
        "<!-- table: clusters -->\n<!-- end of table -->\n"
        "<!-- table: plugin conf -->\n<!-- end of table -->\ntail\n"
    )
    made = files.manual(text)
    assert "stale" not in made
    assert [line for line in made.splitlines() if line in ("head", "middle", "tail")] == [
        "head",
        "middle",
        "tail",
    ]
    assert made.count("| key |") == 3


@pytest.mark.parametrize(
    "key", SCHEDULER + CLUSTER + PLUGIN, ids=lambda key: f"{key.section}.{key.name}"
)
def test_defaults_and_bounds_are_good_values_themselves(key):
    """A line of the table holds to its own check."""
    least, greatest = key.bounds or (None, None)
    values = [key.cast(text) for text in (least, key.default, greatest) if text is not None]
    if key.bounds:
        assert values == sorted(values)


def test_every_key_is_told_with_a_sentence_that_fits_a_table():
    """The manual's cells hold no bar, and every meaning is a sentence."""
    for key in SCHEDULER + CLUSTER + PLUGIN:
        assert key.help.endswith(".")
        assert "|" not in key.help + key.allowed + key.unset + (key.default or "")
