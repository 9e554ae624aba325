"""How long migrations took, found in the engine's events."""

from __future__ import annotations

import pytest

from ovirt_scheduler.engine.events import MigrationTimes

WEB, MAIL = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


def event(number, code, time, vm=WEB):
    """As the engine writes it, with what is of no interest here."""
    return (
        f"<event href='/ovirt-engine/api/events/{number}' id='{number}'>"
        f"<description>Migration started (VM: code&gt;63).</description><code>{code}</code>"
        f"<severity>normal</severity><time>{time}</time>"
        f"<host href='/ovirt-engine/api/hosts/{MAIL}' id='{MAIL}'/>"
        f"<vm href='/ovirt-engine/api/vms/{vm}' id='{vm}'/></event>"
    )


def times(*documents):
    found = MigrationTimes()
    for events in documents:
        found.take_in(f"<events>{''.join(events)}</events>".encode())
    return found


START = event(7, 62, "2026-01-31T08:00:00.500+01:00")
DONE = event(9, 63, "2026-01-31T07:00:14.2Z")


@pytest.mark.parametrize("documents", [([START, DONE],), ([DONE, START],), ([START], [DONE])])
def test_a_migration_took_from_its_start_to_its_end(documents):
    """Whatever the order in one document, the zone, and the digits of the fraction."""
    assert times(*documents).seconds([WEB, MAIL]) == {WEB: pytest.approx(13.7)}


def test_what_is_told_twice_changes_nothing():
    """Two questions may have the same events."""
    found = times([START, DONE], [START], [DONE])
    assert found.seconds([WEB]) == {WEB: pytest.approx(13.7)}


def test_the_next_migration_takes_its_own_time():
    """Until it is done it is not known."""
    again = event(11, 62, "2026-01-31T08:00:00Z")
    found = times([START, DONE, again])
    assert found.seconds([WEB]) == {}
    found.take_in(event(13, 63, "2026-01-31T08:00:02Z").encode())
    assert found.seconds([WEB]) == {WEB: 2}
    found.forget(WEB)
    assert found.seconds([WEB]) == {}


@pytest.mark.parametrize(
    "other",
    [
        event(9, 65, "2026-01-31T07:00:14Z"),
        event(9, 63, "2026-01-31T07:00:14Z", MAIL),
        event(9, 63, "2026-99-31T07:00:14Z"),
        event(9, 63, "soon"),
        event(9, 63, "2026-01-31T07:00:14Z", "web"),
        "<event id='9'/>",
        "<event>",
    ],
)
def test_what_is_no_end_of_it_is_passed_over(other):
    """Other events and other VMs, and what is not of the engine's form."""
    assert WEB not in times([START, other]).seconds([WEB])


def test_the_number_of_vms_is_bounded():
    """The oldest are forgotten."""
    ids = [f"{number:08}-1111-4111-8111-111111111111" for number in range(10_001)]
    moments = [(62, "2026-01-31T08:00:00Z"), (63, "2026-01-31T08:00:01Z")]
    events = [event(1 + code, code, moment, vm) for vm in ids for code, moment in moments]
    assert len(times(events).seconds(ids)) == 10_000
