"""What a daemon writes into the engine's events, each once."""

from __future__ import annotations

import signal

import pytest

from tests.support.driven import cluster
from tests.support.waiting import wait_until

FAILS = """\
import pathlib


def do_filter(hosts, vm, properties):
    if pathlib.Path({flag!r}).exists():
        raise ValueError("no licence")
    return hosts
"""


def texts(driven):
    return [event.description for event in driven.engine.written.events]


def wait_for_event(driven, words):
    driven.wait(lambda: any(words in text for text in texts(driven)), f"no event had {words!r}")


@pytest.mark.parametrize("answer", ["refused", "approved"])
def test_plans_that_wait_and_refusals_are_written(driven, answer):
    """With their VM, host and cluster; nothing else is."""
    driven.want({"web": "puma"})
    conf = driven.engine.conf(events="failures")
    if answer == "refused":
        driven.engine.surprising = lambda _vm, _host: "The host lacks a network."
        driven.start("on", cluster(), conf)
        wait_for_event(driven, "cannot migrate web from lynx to puma")
        (event,) = driven.engine.written.events
        assert "The host lacks a network." in event.description
        assert sorted(event.about) == ["cluster", "host", "vm"]
    else:
        driven.start("approve", cluster(), conf)
        wait_for_event(driven, "waits for approval (migrations: 1): web from lynx to puma")
        (event,) = driven.engine.written.events
        assert sorted(event.about) == ["cluster"]
    driven.wait_for_looks()
    assert len(driven.engine.written.events) == 1


def test_migrations_are_written_where_all_is_asked_for(driven):
    driven.want({"web": "puma"})
    driven.engine.instant_migrations = True
    driven.start("on", cluster(), driven.engine.conf(events="all"))
    wait_for_event(driven, "migrating web from lynx to puma")
    wait_for_event(driven, "the migration of web to puma is done")
    ids = [(event.severity, sorted(event.about)) for event in driven.engine.written.events]
    assert ids == [("normal", ["cluster", "host", "vm"])] * 2


def test_a_unit_that_fails_and_works_again_and_a_refused_reload_are_written(driven):
    """However often it fails."""
    flag = driven.folder / "fails"
    flag.touch()
    (driven.plugins / "Licence.py").write_text(FAILS.format(flag=str(flag)))
    daemon = driven.start("off", "", driven.engine.conf(events="failures"))
    hosts = driven.engine.hosts_document()
    with daemon.proxy() as proxy:
        for _ in range(3):
            proxy.runFilters(["Licence"], hosts, "web", {})
        wait_for_event(driven, "filter Licence raised")
        flag.unlink()
        proxy.runFilters(["Licence"], hosts, "web", {})
        wait_for_event(driven, "filter Licence works again")
    conf = driven.folder / "scheduler.conf"
    conf.write_text(conf.read_text() + "no_such_key = 1\n")
    daemon.process.send_signal(signal.SIGHUP)
    wait_for_event(driven, "the settings are refused")
    severities = [event.severity for event in driven.engine.written.events]
    assert severities == ["warning", "normal", "error"]


def test_other_settings_end_the_writing(driven):
    """A reload that leaves out the key."""
    driven.want({"web": "puma"})
    driven.start("approve", cluster(), driven.engine.conf(events="failures"))
    wait_for_event(driven, "waits for approval")
    conf = driven.folder / "scheduler.conf"
    conf.write_text(conf.read_text().replace("events = failures\n", ""))
    driven.daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "are read again" in driven.daemon.log)
    driven.wait_for_log("waits for approval")
    driven.wait_for_looks()
    assert len(driven.engine.written.events) == 1
