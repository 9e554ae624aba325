"""Tests which conf file of a plugin counts (contract 5.8)."""

from dataclasses import replace

import pytest

from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import SHIPPED, Loader
from ovirt_scheduler.catalogue.registry import Registry
from ovirt_scheduler.workbench.replay import Changes, Policy
from tests.support.place import Place, plugin
from tests.support.place import cost_function as unit_of


@pytest.fixture
def place(tmp_path, executor) -> Place:
    place = Place(tmp_path, executor)
    place.write("Weighs", plugin(1))
    (place.confs / "Weighs.conf").write_text("timeout = 11\n")
    return place


def registry_beside(place: Place) -> Registry:
    """As with ``--plugins``."""
    settings = replace(place.settings, conf_beside=True)
    return Registry(Loader(settings, place.analyse, SHIPPED), LastGood(None))


def test_a_conf_file_beside_a_plugin_of_the_option_counts_before_that_of_the_settings(place):
    registry = registry_beside(place)
    assert unit_of(registry.refresh(), "Weighs").limits.timeout == 11
    (place.first / "Weighs.conf").write_text("timeout = 22\n")
    assert unit_of(registry.refresh(), "Weighs").limits.timeout == 22
    (place.first / "Weighs.conf").unlink()
    assert unit_of(registry.refresh(), "Weighs").limits.timeout == 11
    assert registry.catalogue.warnings == []


def test_a_conf_file_beside_a_plugin_of_the_settings_is_told_as_not_read(place):
    assert place.registry.refresh().warnings == []
    beside = place.first / "Weighs.conf"
    beside.write_text("timeout = 22\n")
    catalogue = place.registry.refresh()
    assert unit_of(catalogue, "Weighs").limits.timeout == 11
    assert [*map(str, catalogue.warnings)] == [
        f"{beside}: is not read: move it to {place.confs} (plugins_conf_path)"
    ]
    beside.unlink()
    assert place.registry.refresh().warnings == []


def test_a_conf_file_beside_a_plugin_is_held_to_owner_and_mode(place):
    beside = place.first / "Weighs.conf"
    beside.write_text("timeout = 22\n")
    beside.chmod(0o666)
    (fault,) = registry_beside(place).refresh().faults
    assert (fault.file, "mend it: chmod" in fault.message) == (str(beside), True)


def test_a_filter_that_is_gone_rejects_by_the_conf_file_that_lies_where_it_was(place):
    (place.first / "Gone.conf").write_text("on_failure = reject\n")
    (fault,) = registry_beside(place).refresh().faults
    assert fault.file == str(place.first / "Gone.conf")
    assert place.registry.refresh().faults == []


def test_the_plugins_of_a_replay_have_the_conf_files_beside_them(place):
    (place.first / "Weighs.conf").write_text("timeout = 22\n")
    settings = replace(place.settings, conf_beside=True)
    policy = Policy(place.executor, settings, Changes())
    assert unit_of(policy.catalogue, "Weighs").limits.timeout == 22
