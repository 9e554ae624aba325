"""What the engine's administrators should know, written into its events."""

from __future__ import annotations

import logging
import time

import pytest

from ovirt_scheduler.clusters import engine_events
from ovirt_scheduler.engine.event_writer import ORIGIN, EventWriter
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.log.marked_for_engine import for_engine
from ovirt_scheduler.settings.value_types import EngineEvents
from tests.support.rest_server import Host, RestServer, Vm, id_of
from tests.support.waiting import LONG, wait_until

WEB, LYNX = map(id_of, ("web", "lynx"))


@pytest.fixture
def engine(tmp_path):
    with RestServer(tmp_path, [Host("lynx")], [Vm("web", host="lynx")]) as made:
        yield made


@pytest.fixture
def start(engine):
    """Makes a log whose marked lines are written."""
    opened = []

    def made(events=EngineEvents.FAILURES):
        inventory = Inventory(engine.settings())
        writer = EventWriter(inventory, events)
        opened.extend((writer, inventory))
        log = logging.Logger("ours", logging.INFO)
        log.addHandler(writer)
        return log

    yield made
    for each in opened:
        each.close()


def written(engine, count):
    """That many events, when they are there."""
    return wait_until(lambda: engine.written.events, suits=lambda events: len(events) == count)


def test_a_marked_line_is_an_event_about_its_vm_host_and_cluster(engine, start):
    log = start()
    log.info("nobody needs to know")
    fields = {"cluster": "Default", "reason": "1 < 2 & a\x1b[1m"}
    log.warning("cluster %(cluster)s: %(reason)s", fields, extra=for_engine(vm=WEB, host=LYNX))
    ((origin, severity, text, about),) = written(engine, 1)
    assert (origin, severity) == ("ovirt-scheduler", "warning")
    assert text.startswith("cluster Default: 1 < 2 & a")
    assert "\x1b" not in text
    assert about == {"vm": WEB, "host": LYNX, "cluster": id_of("cluster Default")}


@pytest.mark.parametrize(
    ("level", "severity"),
    [(logging.INFO, "normal"), (logging.WARNING, "warning"), (logging.ERROR, "error")],
)
def test_its_severity_is_the_lines_level(engine, start, level, severity):
    start().log(level, "it happened", extra=for_engine())
    assert [event.severity for event in written(engine, 1)] == [severity]


def test_migrations_are_written_if_all_is_asked_for(engine, start):
    for events in (EngineEvents.FAILURES, EngineEvents.ALL):
        log = start(events)
        log.info("migrating web", extra=for_engine(False))
        log.info("that was %s", events.value, extra=for_engine())
    texts = [event.description for event in written(engine, 3)]
    assert sorted(texts) == ["migrating web", "that was all", "that was failures"]


def test_equal_events_within_a_moment_are_all_taken(engine, start):
    """An engine drops the second one unless it says how many may come."""
    log = start()
    for number in range(3):
        log.warning("refused %d", number, extra=for_engine(vm=WEB))
    written(engine, 3)
    assert engine.written.refused == 0


def test_a_number_that_is_taken_is_followed_by_another(engine, start):
    engine.written.taken_ids = 1
    start().warning("refused", extra=for_engine())
    written(engine, 1)
    assert engine.written.refused == 1


def test_a_right_that_lacks_is_logged_once_with_its_role(engine, start, caplog):
    """Until an event is written again."""
    engine.written.is_denied = True
    log = start()
    for word in ("first", "second"):
        log.warning("%s", word, extra=for_engine())
    wait_until(lambda: "ExternalEventsCreator" in caplog.text)
    engine.written.is_denied = False
    log.warning("third", extra=for_engine())
    wait_until(lambda: engine.written.events)
    assert caplog.text.count("no events can be written into the engine") == 1


def test_a_silent_engine_holds_up_nobody_and_the_newest_wait(engine, start):
    engine.answering.clear()
    log = start()
    for number in range(1000):
        log.warning("number %d", number, extra=for_engine())
    engine.answering.set()
    events = wait_until(
        lambda: engine.written.events,
        suits=lambda events: events and events[-1].description == "number 999",
    )
    assert len(events) <= 1 + 100


def test_a_daemons_own_events_name_nothing(engine, start):
    """Else each of them would lead to a look at its cluster."""
    start().warning("refused", extra=for_engine(vm=WEB))
    written(engine, 1)
    wait_until(lambda: len(engine.events) == 2)
    inventory = Inventory(engine.settings())
    try:
        ours = engine_events.ask(inventory, 1000, time.monotonic() + LONG)
        engine.happened(engine.vms[0])
        both = engine_events.ask(inventory, 1000, time.monotonic() + LONG)
    finally:
        inventory.close()
    assert (ours.named, both.named) == (frozenset(), {WEB})
    assert engine.written.events[0].origin == ORIGIN
