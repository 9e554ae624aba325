"""Whether VMs went to the best host of their decision: counted by a daemon, and by hand."""

from __future__ import annotations

import json
import zlib

import pytest

from ovirt_scheduler.clusters import following
from ovirt_scheduler.clusters.following import Following
from ovirt_scheduler.clusters.inquiries import Inquiries
from ovirt_scheduler.clusters.ownership import Mark
from ovirt_scheduler.model.jobs import Decision, Execution, Request
from ovirt_scheduler.model.requests import AnswerForm, Caller, Entities, RequestedUnit
from ovirt_scheduler.model.units import Kind
from tests.support.command import run
from tests.support.driven import cluster
from tests.support.pages import get
from tests.support.rest_server import Host, Vm, id_of

BY_NAME = """
def do_score(hosts, vm, properties):
    '''Lynx is best.'''
    return {host.id: {"lynx": 1}.get(host.name, 5) for host in hosts}
"""
NOWHERE = "def do_filter(hosts, vm, properties):\n    return []\n"


def look(counting, running, migrated=(), at=None):
    """It begins now, or before (on the monotonic clock)."""
    begun = following.time.monotonic() if at is None else at
    counting.note_places("Default", running, migrated, begun)


@pytest.fixture
def counting():
    """Of a cluster in which web runs on lynx."""
    counting = Following()
    look(counting, {"web": "lynx"})
    return counting


def decided(counting, vm, costs, kind=Kind.COST_FUNCTION, cluster="", time=0.0):
    caller = Caller("x", AnswerForm.ENGINE, "here", cluster)
    request = Request(caller, Entities(), units={kind: (RequestedUnit("some"),)})
    counting.decided(Decision(request, Execution(vm=vm), costs, time=time))


def test_a_vm_that_starts_or_moves_is_counted_once(counting):
    decided(counting, "web", {"lynx": 5, "puma": 1})
    decided(counting, "new", {"lynx": 1, "puma": 1, "ocelot": 4})
    look(counting, {"web": "lynx"})
    assert counting.counts == {"yes": 0, "no": 0}
    look(counting, {"web": "ocelot", "new": "puma"})
    assert counting.counts == {"yes": 1, "no": 1}
    look(counting, {"web": "puma", "new": "lynx"})
    assert counting.counts == {"yes": 1, "no": 1}


@pytest.mark.parametrize(
    ("costs", "how"),
    [
        ({"puma": 1}, {}),
        ({"lynx": 1, "puma": 1}, {}),
        ({}, {}),
        (("puma",), {"kind": Kind.FILTER}),
        ({"lynx": 5, "puma": 1}, {"cluster": "Default"}),
    ],
    ids=["one host", "all alike", "none", "a filter", "the daemon's own"],
)
def test_a_decision_that_leaves_no_choice_or_is_ours_is_not_counted(counting, costs, how):
    decided(counting, "web", costs, **how)
    look(counting, {"web": "lynx"})
    look(counting, {"web": "puma"})
    assert counting.counts == {"yes": 0, "no": 0}


def test_what_was_decided_later_counts_alone(counting):
    """The engine that places a VM anew asks filters first, and may then have no choice."""
    decided(counting, "web", {"lynx": 5, "puma": 1})
    decided(counting, "web", ("ocelot",), Kind.FILTER)
    look(counting, {"web": "lynx"})
    look(counting, {"web": "ocelot"})
    assert counting.counts == {"yes": 0, "no": 0}


def test_a_vm_that_moved_before_its_decision_is_not_counted_but_its_next_move_is(counting):
    decided(counting, "web", {"lynx": 5, "puma": 1})
    look(counting, {"web": "ocelot"})
    assert counting.counts == {"yes": 0, "no": 0}
    look(counting, {"web": "puma"})
    assert counting.counts == {"yes": 1, "no": 0}


def test_a_look_that_had_begun_before_the_decision_may_be_of_before_it(counting):
    begun = following.time.monotonic()
    decided(counting, "web", {"lynx": 5, "puma": 1})
    look(counting, {"web": "lynx"}, at=begun)
    look(counting, {"web": "ocelot"})
    assert counting.counts == {"yes": 0, "no": 0}


def test_who_stands_by_or_drives_no_more_counts_nothing(looks):
    """The migrations of the daemon that drives are none of the engine's choices."""
    looks.engine.hosts = [Host(name, measured=True) for name in ("lynx", "puma")]
    looks.engine.vms = [Vm("web", "lynx")]
    looks.begin(policy="none")
    looks.look()
    web, lynx, puma = map(id_of, ("web", "lynx", "puma"))
    decided(looks.following, web, {lynx: 1, puma: 5})
    looks.look()
    tag = f"{zlib.crc32(b'Default') & 0xFFFF:04x}"
    looks.cluster.ownership.add_marks([str(Mark(True, 1, "far-0000", tag))])
    looks.engine.vms[0].host = "puma"
    looks.cluster._reader.note_named(None)
    looks.look()
    assert looks.cluster.state().driven_by == "far-0000"
    assert looks.following.counts == {"yes": 0, "no": 0}
    assert looks.following._looks == {}


def test_the_places_of_a_cluster_are_kept_only_while_it_is_looked_after(looks):
    """Its section may be gone when the settings are read again."""
    looks.engine.hosts = [Host("lynx", measured=True)]
    looks.begin(policy="none")
    looks.look()
    assert [*looks.following._looks] == ["Default"]
    looks.cluster._services.stopping.set()
    looks.cluster.run()
    assert looks.following._looks == {}


def test_a_question_of_the_daemon_changes_nothing(counting):
    decided(counting, "web", {"lynx": 5, "puma": 1})
    with counting.inquiries.about("web"):
        decided(counting, "web", ("ocelot",), Kind.FILTER, time=following.time.time())
    look(counting, {"web": "lynx"})
    look(counting, {"web": "puma"})
    assert counting.counts == {"yes": 1, "no": 0}


def test_what_moves_late_or_by_our_own_hand_or_is_gone_is_not_counted(counting, monkeypatch):
    for vm in ("web", "mail", "gone"):
        decided(counting, vm, {"lynx": 5, "puma": 1})
    look(counting, {"web": "lynx"})
    look(counting, {"web": "puma"}, ["web"])
    later = following.time.monotonic() + 301
    monkeypatch.setattr(following.time, "monotonic", lambda: later)
    look(counting, {"mail": "puma"})
    assert counting.counts == {"yes": 0, "no": 0}
    assert counting._waiting == {}


def test_a_first_look_shows_no_move():
    counting = Following()
    decided(counting, "web", {"lynx": 5, "puma": 1})
    look(counting, {"web": "puma"})
    assert counting.counts == {"yes": 0, "no": 0}


def test_a_question_whose_end_is_never_told_ends_by_itself():
    inquiries = Inquiries()
    inquiries.note("web", 100.0, 101.0)
    with pytest.raises(RuntimeError), inquiries.about("mail"):
        began = following.time.time()
        assert inquiries.cover("mail", began)
        assert not inquiries.cover("mail", began + 31)
        raise RuntimeError
    assert not inquiries.cover("mail", began + 31)
    assert [inquiries.cover("web", at) for at in (99.9, 100.5, 101.1)] == [False, True, False]


def test_the_latest_ten_thousand_decisions_wait_alone():
    counting = Following()
    for number in range(10_005):
        decided(counting, f"vm{number}", {"lynx": 5, "puma": 1})
    assert [*counting._waiting][:1] == ["vm5"]
    assert len(counting._waiting) == 10_000


def status(driven):
    return json.loads(run(driven.folder, "status", "-o", "json")[1])


def metrics(driven):
    return get(driven.daemon.url, "/metrics").body


@pytest.mark.long
def test_a_daemon_says_how_often_the_engine_followed(driven):
    """VMs start on the best host, another moves to one that is not; by ids and by documents."""
    (driven.plugins / "ByName.py").write_text(BY_NAME)
    driven.engine.vms += [Vm(name, host=None, status="down") for name in ("new", "chosen")]
    driven.start("dry-run", cluster(balance="0"))
    driven.wait_until_known()
    assert status(driven)["engine_followed"] == {"yes": 0, "no": 0}
    assert "Engine follows" not in run(driven.folder, "status")[1]
    with driven.daemon.proxy("/engine") as engine:
        for vm in (id_of("new"), driven.engine.vm_document("web")):
            engine.runCostFunctions([["ByName", 1]], driven.engine.ids(), vm, {})
    with driven.daemon.proxy() as design:
        properties = {"cost_functions": "ByName"}
        chosen = design.selectHost("default", driven.engine.ids(), id_of("chosen"), properties)
        assert chosen == id_of("lynx")
    goal, web = driven.looks() + 3, driven.vm("web")
    driven.wait(lambda: driven.engine.happened(web) or driven.looks() >= goal)
    for vm, host in (("new", "lynx"), ("web", "puma"), ("chosen", "lynx")):
        driven.vm(vm).host, driven.vm(vm).status = host, "up"
        driven.engine.happened(driven.vm(vm))
    driven.wait(lambda: status(driven)["engine_followed"] == {"yes": 2, "no": 1})
    told = run(driven.folder, "status")[1]
    assert "3 VMs started or moved, 2 of them to the best host" in told
    for word, number in (("yes", 2), ("no", 1)):
        assert f'engine_followed_total{{followed="{word}"}} {number}.0' in metrics(driven)


@pytest.fixture
def filtered(driven):
    """A daemon whose filter accepts no host, and an engine that asks it before it says anything."""
    (driven.plugins / "Nowhere.py").write_text(NOWHERE)
    ids, web = driven.engine.ids(), id_of("web")

    def ask_filters():
        with driven.daemon.proxy("/engine") as engine:
            assert engine.runFilters(["Nowhere"], ids, web, {})["result"] == []

    driven.engine.refusing = lambda _vm, _host: "our filter"
    driven.engine.filtering = ask_filters
    return driven


def expect_that_nobody_was_refused(driven):
    """Until the engine asks by itself."""
    driven.wait(lambda: "asked beforehand" in run(driven.folder, "decisions")[1])
    listed = run(driven.folder, "decisions", "--method", "runFilters", "-o", "names")[1]
    told = run(driven.folder, "why", "--decision", listed.split()[-1])[1]
    assert " beforehand: this daemon had asked the engine where it would migrate" in told
    report = status(driven)
    assert (report["well"], report["problems"]) == (True, [])
    assert 'no_host_left_total{method="runFilters"} 0.0' in metrics(driven)
    driven.engine.filtering()
    driven.wait(lambda: not status(driven)["well"])
    assert status(driven)["line"].partition("; ")[2].startswith("no host was left for 1 VM: ")
    assert 'no_host_left_total{method="runFilters"} 1.0' in metrics(driven)


@pytest.mark.long
def test_what_a_question_of_the_daemon_removed_refuses_no_caller(filtered):
    filtered.want({"web": "puma"})
    filtered.start("on", cluster())
    filtered.wait_for_log("2 removed by Nowhere")
    assert filtered.engine.migrations == []
    assert "Nowhere" not in run(filtered.folder, "why", "web")[1]
    expect_that_nobody_was_refused(filtered)


@pytest.mark.long
def test_what_a_question_of_a_command_removed_refuses_no_caller(filtered):
    filtered.start("dry-run", cluster("default", balance="0"))
    config = str(filtered.folder / "scheduler.conf")
    told = run(filtered.folder, "maintenance", "lynx", "--config", config)
    assert "lynx cannot be emptied" in told[1], told
    expect_that_nobody_was_refused(filtered)
