"""The states in which callers are not served as they asked, and the line that tells them."""

from __future__ import annotations

import json
import time

import lxml.html

from ovirt_scheduler.decisions.missing_names import MissingUnit
from ovirt_scheduler.engine.inventory import EngineState
from ovirt_scheduler.model.plans import ClusterLook, Obstacle
from ovirt_scheduler.server.pages.daemon_state import ReloadFailure, UnloadedFile
from ovirt_scheduler.server.pages.times import clock
from tests.support.site import STATE, MadeSite, call, record, refusal, unit_state

NOW = time.time()


def told(tmp_path, **state):
    """The status of a daemon in that state, as JSON."""
    return json.loads(MadeSite(tmp_path, **state).text("/status.json"))


def missing(name, times, since=NOW):
    return MissingUnit("filter", name, since, times, f"there is no filter named {name!r}")


def test_twelve_files_that_do_not_load_are_told_by_three_names_and_a_number(tmp_path):
    names = ["Async", "BadSig", "ClassB", *(f"Other{number}" for number in range(9))]
    unloaded = tuple(UnloadedFile(f"/plugins/{name}.py", "line 1: no") for name in names)
    status = told(tmp_path, unloaded=unloaded)
    assert status["line"] == "0 units; 12 files do not load: Async, BadSig, ClassB and 9 more"
    assert [problem["what"] for problem in status["problems"]][:2] == [
        "Async is not loaded",
        "BadSig is not loaded",
    ]


def test_one_file_that_does_not_load_is_told_in_the_singular(tmp_path):
    status = told(tmp_path, unloaded=(UnloadedFile("/plugins/Night.py", "line 1: no"),))
    assert status["line"] == "0 units; 1 file does not load: Night"


def test_a_file_of_which_a_part_works_is_not_told_as_one_that_does_not_load(tmp_path):
    unloaded = (UnloadedFile("/plugins/Night.py", "the driver Two is left out", in_part=True),)
    status = told(tmp_path, unloaded=unloaded)
    assert status["line"] == "0 units; 1 file is loaded in part: Night"
    assert status["problems"][0]["what"] == "Night is loaded in part"


def test_units_that_are_named_and_not_there_are_told_with_how_often_and_since_when(tmp_path):
    earlier = NOW - 90
    units = (missing("Memroy", 12), missing("Quite", 1, earlier))
    status = told(tmp_path, missing=units)
    assert status["line"] == (
        "0 units; 2 units are named and not there: Memroy (12 times), Quite (1 time), "
        f"since {clock(earlier)}"
    )
    first = status["problems"][0]
    assert first["what"] == "callers name the filter Memroy, which is not there: 12 times"
    assert first["detail"] == "there is no filter named 'Memroy'"
    assert not status["well"]


def test_of_many_missing_units_twenty_are_named_and_the_rest_counted(tmp_path):
    status = told(tmp_path, missing=tuple(missing(f"Unit{number}", 1) for number in range(27)))
    assert "27 units are named and not there: Unit0 (1 time), " in status["line"]
    assert "Unit2 (1 time) and 24 more, since " in status["line"]
    assert len(status["problems"]) == 21
    assert status["problems"][-1]["what"] == "7 more units that callers name are not there"


def test_the_line_names_the_cause_of_each_kind_of_problem(tmp_path):
    """Not the first three alone; a reason is cut, so that the line stays one."""
    made = record([call("Night", outcome="raised", message="no")])
    site = MadeSite(
        tmp_path, [made], units=(unit_state("Night"),), stuck="the zygote does not start",
        unloaded=(UnloadedFile("/plugins/Bad.py", "oh"),), missing=(missing("Memroy", 2),),
        reload_failure=ReloadFailure(NOW, "scheduler.conf:3: unknown key\n" + "x" * 1000),
        engine=EngineState("https://engine/api", "refused"),
    )  # fmt: skip
    line = json.loads(site.text("/status.json"))["line"]
    for words in (
        "calls of plugins do not work: the zygote does not start", "1 failing: Night",
        "1 unit is named and not there: Memroy", "1 file does not load: Bad",
        "the last reload failed: scheduler.conf:3: unknown key",
        "the engine cannot be asked: refused",
    ):  # fmt: skip
        assert words in line
    assert "\n" not in line
    assert len(line) < 700


def test_a_daemon_in_which_all_is_well_says_so(tmp_path):
    status = told(tmp_path, units=(unit_state("Night"),))
    assert (status["line"], status["problems"], status["well"]) == ("1 unit, all well", [], True)
    assert STATE.missing == ()


def test_vms_that_the_engine_refuses_are_told_with_its_words_and_since_when(tmp_path):
    """Each once, however many hosts refused it; one that its rules bind is no problem."""
    refusals = (
        refusal("web", "puma", since=NOW - 300),
        refusal("web", "lion", Obstacle.FAILED, reason="Fatal error.", since=NOW - 60),
        refusal("mail", "", Obstacle.TAKEN_BACK, reason="others took it", since=NOW),
        refusal("pinned", "", Obstacle.NO_HOST, reason="the engine offers none", since=NOW),
    )
    site = MadeSite(tmp_path, clusters=(ClusterLook("East", "on", NOW, refusals=refusals),))
    status = json.loads(site.text("/status.json"))
    assert status["line"] == (
        f"0 units; 2 VMs cannot be migrated: web, mail, since {clock(NOW - 300)}"
    )
    first = status["problems"][0]
    assert first["what"] == "web of cluster East cannot be migrated"
    assert first["detail"] == "refused: VM is being backed up.; failed: Fatal error."
    assert not status["well"]
    cluster = json.loads(site.text("/clusters/East.json"))
    assert [(each["vm"]["name"], each["obstacle"]) for each in cluster["refusals"]] == [
        ("web", "refused"), ("web", "failed"), ("mail", "taken back"), ("pinned", "no host")
    ]  # fmt: skip
    page = site.text("/clusters/East")
    assert "2 VMs cannot be migrated" in page
    assert "the engine offers none" in page


def test_of_many_refused_vms_twenty_are_named_and_the_rest_counted(tmp_path):
    refusals = tuple(refusal(f"vm{number}", since=NOW) for number in range(25))
    status = told(tmp_path, clusters=(ClusterLook("East", "on", NOW, refusals=refusals),))
    assert status["problems"][-1]["what"] == "5 more VMs of cluster East cannot be migrated"
    assert status["line"].startswith(
        "0 units; 25 VMs cannot be migrated: vm0, vm1, vm2 and 22 more"
    )


def test_a_right_that_the_engines_user_lacks_is_a_problem_of_the_cluster(tmp_path):
    look = ClusterLook("East", "on", NOW, denial="not authorized", denied_since=NOW)
    site = MadeSite(tmp_path, clusters=(look,))
    (problem,) = json.loads(site.text("/status.json"))["problems"]
    assert problem["what"] == "the user of [engine] may not migrate VMs of East"
    assert (problem["kind"], problem["detail"]) == ("denied", "not authorized")
    assert "may not migrate VMs" in site.text("/clusters/East")


def test_a_cluster_that_the_engine_balances_too_is_a_problem(tmp_path):
    """One that it upgrades is none; the page says why it is not balanced."""
    looks = (
        ClusterLook("East", "on", NOW, conflict="the engine balances it, too"),
        ClusterLook("West", "on", NOW, upgraded=True),
    )
    site = MadeSite(tmp_path, clusters=looks)
    (problem,) = json.loads(site.text("/status.json"))["problems"]
    assert problem["what"] == "the engine balances cluster East, too"
    assert "the engine balances it, too" in site.text("/clusters/East")
    assert "is being upgraded, and not balanced" in site.text("/clusters/West")


def test_broken_affinity_rules_are_named_and_are_no_problem(tmp_path):
    """The first five of each kind; the metrics count them."""
    broken = tuple((f"fw{number}", True) for number in range(7))
    looks = (
        ClusterLook("East", "on", NOW, broken=(*broken, ("near", False))),
        ClusterLook("West", "on", NOW, without_rules="no right"),
    )
    site = MadeSite(tmp_path, clusters=looks)
    status = json.loads(site.text("/status.json"))
    assert status["problems"] == []
    assert {"group": "near", "hard": False} in status["clusters"][0]["broken_rules"]
    page = site.text("/clusters/East")
    assert "7 hard affinity rules broken: fw0, fw1, fw2, fw3, fw4, ..." in page
    assert "1 soft affinity rule broken: near" in page
    assert "without the engine" in site.text("/clusters/West")
    metrics = site.text("/metrics")
    assert 'cluster_broken_rules{cluster="East",kind="hard"} 7.0' in metrics
    assert 'cluster_broken_rules{cluster="West",kind="soft"} 0.0' in metrics


def test_the_line_counts_policy_units_as_discover_lists_them_and_those_in_shadow_apart(tmp_path):
    """There is always a driver, the default scheduler."""
    units = (
        unit_state("Night"), unit_state("Quiet", "cost function"), unit_state("default", "scheduler"),
        unit_state("Later", mode="shadow"),
    )  # fmt: skip
    assert told(tmp_path, units=units)["line"] == "2 units and 1 in shadow, all well"


def test_two_looks_within_a_minute_have_different_times(tmp_path):
    now = time.mktime((2026, 1, 31, 12, 0, 5, 0, 0, -1))
    looks = (ClusterLook("East", "on", now, next_look=now + 40),)
    page = lxml.html.fromstring(MadeSite(tmp_path, clusters=looks).text("/clusters/East"))
    times = [" ".join(term.getparent().text_content().split()) for term in page.iter("dt")][:2]
    assert times == ["Last look2026-01-31 12:00:05", "Next look2026-01-31 12:00:45"]


def test_units_that_fail_alike_are_one_problem(tmp_path):
    """As without an engine; the place in each file is no difference."""
    mistake = "EngineUnavailable: scheduler.conf has no [engine] section"
    units = tuple(unit_state(name) for name in ("Calm", "Night", "Other"))
    calls = [
        call("Calm", outcome="raised", message=f"{mistake} (Calm.py:3)"),
        call("Night", outcome="raised", message=f"{mistake} (Night.py:44)"),
        call("Other", outcome="raised", message="RuntimeError: no (Other.py:3)"),
    ]
    site = MadeSite(tmp_path, [record(calls)], units=units)
    status = json.loads(site.text("/status.json"))
    assert status["line"].startswith("3 units; 3 failing: Calm, Night, Other, since ")
    assert [(problem["what"], problem["detail"]) for problem in status["problems"]] == [
        ("Calm (filter), Night (filter) are failing", mistake),
        ("Other (filter) is failing", "RuntimeError: no (Other.py:3)"),
    ]
