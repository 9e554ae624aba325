"""What decisions come to, since the start."""

from __future__ import annotations

import sys
import threading

import pytest

from ovirt_scheduler.history import explanation
from ovirt_scheduler.history.tally import BUCKETS, Tally
from tests.support.site import VM, call, record

NOON = 1_800_000_000.0  # on a minute


def tallied(*calls, **further):
    """A tally of these, one a minute from noon on."""
    tally = Tally()
    for minute, each in enumerate(calls):
        made = record([each], **further)
        tally.add(made, NOON + 60 * minute)
    return tally


def night(outcome="ok", milliseconds=1.0, message="oh"):
    return {**call("Night", outcome=outcome, message=message), "milliseconds": milliseconds}


def test_a_unit_fails_since_its_first_failure_in_a_row():
    """Until it works again; its last error stays."""
    unit = tallied(night(), night("raised"), night("killed", message="by SIGKILL")).unit(
        "Night", "filter"
    )
    assert unit.failing_since == NOON + 60
    assert (unit.last_error, unit.last_error_at) == ("by SIGKILL", NOON + 120)
    assert (unit.calls, unit.failures) == (3, 2)
    unit = tallied(night("raised"), night()).unit("Night", "filter")
    assert (unit.failing_since, unit.last_error) == (None, "oh")


def test_units_of_one_name_and_several_kinds_are_several():
    """A cost function does not fail because the filter of its name does."""
    tally = Tally()
    tally.add(record([night("raised"), call("Night", "cost function")]), NOON)
    assert tally.unit("Night", "filter").failing_since == NOON
    assert tally.unit("Night", "cost function").failing_since is None


def test_counts_are_read_while_others_are_added():
    """A page or a scrape sees those of one moment."""
    tally = Tally()
    ended = threading.Event()

    def add():
        for number in range(2000):
            tally.add(record([night(f"ended in way {number}")]), NOON)
        ended.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    adding = threading.Thread(target=add)
    adding.start()
    try:
        while not ended.is_set():
            unit = tally.unit("Night", "filter")
            assert unit.calls == unit.failures == sum(unit.outcomes.values())
    finally:
        sys.setswitchinterval(interval)
        adding.join()
    assert tally.unit("Night", "filter").calls == 2000


def test_a_request_has_no_host_left_when_filters_removed_each():
    """A balance that says of each host why it leaves it alone removed none."""
    verdicts = [{"unit": "Night", "verdict": "removed", "reason": "it sleeps"}]
    hosts = [{"id": "h", "verdicts": verdicts}]
    tally = Tally()
    tally.add(record([call("Night")], hosts), NOON)
    tally.add(record([call("Night", mode="shadow")], hosts), NOON)
    tally.add(record([call("Night", "balance")], hosts, method="runLoadBalancing"), NOON)
    tally.add(record([call("Night")], hosts=()), NOON)
    assert tally.no_host_left == {"runFilters": 1, "runLoadBalancing": 0}


def test_who_was_not_asked_is_not_counted():
    """Nor does it mend what fails."""
    tally = tallied(night("raised"), night("not asked"))
    assert tally.unit("Night", "filter").calls == 1
    assert tally.unit("Night", "filter").failing_since == NOON


def test_the_quantiles_are_of_recent_calls():
    """The last 500; none without a call."""
    slow = [night(milliseconds=5000.0)] * 500
    fast = [night(milliseconds=float(n)) for n in range(500)]
    unit = tallied(*slow, *fast).unit("Night", "filter")
    assert unit.quantile(0.5) == pytest.approx(0.250)
    assert unit.quantile(0.99) == pytest.approx(0.495)
    assert Tally().unit("Night", "filter").quantile(0.5) is None


def test_the_last_hour_has_each_minute():
    """Sixty, the oldest first; what is older is forgotten."""
    unit = tallied(*[night()] * 70, night("raised"), night()).unit("Night", "filter")
    hour = unit.last_hour(NOON + 71 * 60)
    assert [calls for calls, _ in hour] == [1] * 60
    assert [failures for _, failures in hour] == [0] * 58 + [1, 0]
    assert len(unit.minutes) == 60
    assert unit.last_hour(NOON + 100 * 60)[-29:] == [(0, 0)] * 29


def test_a_time_falls_into_the_bucket_that_ends_there_or_later():
    """With the decision as its example; beyond 100 s there is one more."""
    tally = tallied(night(milliseconds=1.0), night(milliseconds=1.1), night(milliseconds=200_000.0))
    times = tally.unit("Night", "filter").times
    assert times.counts[BUCKETS.index(0.001)] == 1
    assert times.counts[BUCKETS.index(0.0025)] == 1
    assert times.counts[-1] == 1
    assert times.sum == pytest.approx(200.0021)
    assert times.exemplars[-1].decision == record([])["id"]


def test_requests_are_counted_by_how_they_ended():
    """By method and form, too; of several words the worst counts."""
    no_message = {**call("Night", outcome="not asked")}
    corrected = call("Night", notes=["host x was not asked about"], corrected=True)
    tally = tallied(night(), night("raised"), night("not asked"), no_message, corrected)
    tally.add(record([night("raised")], [{"id": "1"}], fault=104), NOON)
    tally.add(record([night("raised")], [{"id": "1"}]), NOON)
    tally.add(record([corrected], [{"id": "1"}], errors=["oh"]), NOON)
    tally.add(record([corrected], [{"id": "1"}], answer=["1"], errors=["oh"]), NOON)
    assert {outcome: count for (*_, outcome), count in tally.requests.items()} == {
        "ok": 2, "unit failed": 2, "unit missing": 1, "corrected": 1, "fault": 1,
        "no host left": 1, "degraded": 1,
    }  # fmt: skip
    assert sum(tally.request_times["runFilters"].counts) == 9


def test_a_vm_that_no_host_is_left_for_is_known_until_one_is():
    """Or for an hour; a cluster's own questions do not count."""
    tally, hosts = Tally(), [{"id": "1"}]
    for minute in range(2):
        tally.add(record([night()], hosts), NOON + 60 * minute)
    tally.add(record([night()], hosts, form="daemon", vm={"id": "other"}), NOON)
    (vm,) = tally.homeless(NOON + 120)
    assert (vm.name, vm.since, vm.times) == ("web", NOON, 2)
    assert tally.homeless(NOON + 60 + 3600) == []
    tally.add(record([night()], hosts, answer=["1"]), NOON + 120)
    assert tally.homeless(NOON + 120) == []


def test_a_unit_is_corrected_until_its_answer_is_right():
    corrected = call("Night", notes=["host x was not asked about"], corrected=True)
    unit = tallied(night(), corrected, corrected).unit("Night", "filter")
    assert (unit.corrected_since, unit.last_note) == (NOON + 60, "host x was not asked about")
    assert tallied(corrected, night()).unit("Night", "filter").corrected_since is None


@pytest.mark.parametrize("mode", ["live", "shadow"])
def test_a_unit_whose_costs_were_all_cut_to_the_same_bound_has_no_effect(mode):
    def tallied_costs(*bounds):
        costs = [
            {"unit": "Bytes", "cost": 2**36, "factor": 1, "weighted": n, "held": n} for n in bounds
        ]
        hosts = [{"id": str(n), "costs": [cost]} for n, cost in enumerate(costs)]
        tally, unit = Tally(), call("Bytes", "cost function", mode=mode)
        (tally.add if mode == "live" else tally.add_shadows)(record([unit], hosts), NOON)
        return tally.unit("Bytes", "cost function")

    cut = tallied_costs(10**9, 10**9)
    told = "Bytes has no effect: each cost was cut to the same bound"
    assert (cut.corrected_since, cut.last_note) == (NOON, told)
    assert tallied_costs(10**9, -(10**9)).corrected_since is None


def test_what_is_told_of_a_unit_names_hosts_beside_their_ids():
    puma = {"id": "a" * 8 + "-1111-2222-3333-" + "a" * 12, "name": "puma"}
    note = call("Noted", notes=[f"not {puma['id']}"], corrected=True)
    tally = tallied(night("raised", message=f"no {puma['id']}"), note, hosts=[puma])
    assert tally.unit("Night", "filter").last_error == f"no puma ({puma['id']})"
    assert tally.unit("Noted", "filter").last_note == f"not puma ({puma['id']})"
    odd = record([night("raised", message=f"no {puma['id']}")], [puma], errors=[f"of {VM['id']}"])
    told = [line.text for line in explanation.lines(odd)]
    assert told[-2:] == [
        f"  Night raised an error, and was left out: no puma ({puma['id']})",
        f"  problem: of web ({VM['id']})",
    ]


def test_what_a_unit_did_to_hosts_is_counted():
    """How many it removed, and how often it was decisive."""
    said = [{"unit": "Night", "verdict": word} for word in ("removed", "passed", "removed")]
    hosts = [{"id": str(n), "verdicts": [each]} for n, each in enumerate(said)]
    tally = Tally()
    tally.add(record([night()], hosts, decisive=["Night"]), NOON)
    unit = tally.unit("Night", "filter")
    assert (unit.hosts_removed, unit.decisive) == ({"live": 2}, {"live": 1})
    assert tally.no_host_left == {"runFilters": 0}
    tally.add(record([night()], hosts[::2]), NOON)
    assert tally.no_host_left == {"runFilters": 1}


def test_a_shadow_is_counted_apart():
    """It neither fails a request nor leaves a host out; that it was skipped is counted, too."""
    hosts = [{"id": "1", "verdicts": [{"unit": "Night", "verdict": "removed"}]}]
    tally = Tally()
    for outcome in ("ok", "raised", "not asked"):
        tally.add(record([], [{"id": "1"}], answer=["1"]), NOON)
        tally.add_shadows(record([{**night(outcome), "mode": "shadow"}], hosts), NOON)
    unit = tally.unit("Night", "filter")
    assert (unit.calls, unit.failures, unit.outcomes["not asked", "shadow"]) == (2, 1, 1)
    assert unit.hosts_removed == {"shadow": 2}
    assert tally.no_host_left == {"runFilters": 0}
    assert tally.requests == {("runFilters", "engine", "ok"): 3}
