"""Looks at a cluster that fail, whatever the reason, or take long: the thread goes on."""

from __future__ import annotations

import threading
import time
import zlib
from types import SimpleNamespace

import pytest

from ovirt_scheduler.clusters import cluster_reader, drive, threads
from ovirt_scheduler.clusters.drive import ClusterDrive
from ovirt_scheduler.clusters.following import Following
from ovirt_scheduler.clusters.ownership import Mark
from ovirt_scheduler.clusters.persistence import DriveMemory, Migrating
from ovirt_scheduler.clusters.plan_approval import Plans
from ovirt_scheduler.clusters.planning import ClusterServices
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.errors import Overloaded
from ovirt_scheduler.model.plans import Step
from ovirt_scheduler.model.requests import RequestedUnit
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.settings.value_types import Drive
from tests.support.driven import RECORDER, SLOW, cluster
from tests.support.rest_server import Host, Reply, RestServer, Vm
from tests.support.waiting import LONG, wait_until


@pytest.fixture
def engine(tmp_path):
    with RestServer(tmp_path, tls=False) as server:
        yield server


@pytest.fixture
def services(tmp_path, engine):
    """Those of a daemon that has no schedulers, which cannot be: each look is a bug."""
    inventory = Inventory(engine.settings())
    plans, memory = Plans(lambda _: None, lambda _: None), DriveMemory(tmp_path / "clusters.json")
    yield ClusterServices(plans, memory, inventory, None, None, threading.Event(), Following())
    inventory.close()


@pytest.fixture
def scheduled(services, engine, place, executor, tmp_path):
    """Those of a daemon that has the scheduler recorder; its cluster has a host and a VM."""
    engine.hosts, engine.vms = [Host("lynx", measured=True)], [Vm("web", "lynx")]
    (tmp_path / "wanted").write_text("{}")
    place.write("recorder", RECORDER.format(folder=str(tmp_path)))
    place.registry.refresh()
    decisions = DecisionService(place.registry, executor, 60.0, services.inventory)
    return services._replace(decisions=decisions, executor=executor)


@pytest.fixture
def clock(monkeypatch):
    """The time, as it is for the cluster; ``now`` may be set."""
    clock = SimpleNamespace(now=time.monotonic(), time=time.time, monotonic=lambda: clock.now)
    monkeypatch.setattr(drive, "time", clock)
    monkeypatch.setattr(cluster_reader, "time", clock)
    return clock


def test_a_bug_is_told_once_and_tried_again_less_and_less_often(services, caplog, clock):
    """The log has its traceback, and the status what it was."""
    cluster = ClusterDrive(ClusterSettings("Default", timer_interval=0.0), services)
    pauses = []
    for _ in range(4):
        again = cluster.run_due()
        pauses.append(round(again - clock.now, 3))
        clock.now = again
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    assert (
        caplog.text.count("cluster Default: looking after it failed, and is tried again: Attr") == 1
    )
    assert caplog.text.count("Traceback") == 1
    assert "looking after it failed, and is tried again: AttributeError" in cluster.state().problem


@pytest.fixture
def migrating(services, engine):
    """The migration of web from lynx to puma is under way."""
    engine.hosts = [Host("lynx", measured=True), Host("puma", measured=True)]
    (web,) = engine.vms = [Vm("web", "lynx", status="migrating")]
    lynx, puma = (each.id for each in engine.hosts)
    step = Step(web.id, lynx, puma, "web", "lynx", "puma")
    memory = services.memory.cluster("Default")
    memory.migrating[web.id] = Migrating(step, time.monotonic(), moving=True)
    return web


def test_migrations_are_followed_though_the_scheduler_is_gone(scheduled, engine, migrating, caplog):
    """Their end is told, and the look fails all the same."""
    caplog.set_level("INFO")
    settings = ClusterSettings("Default", Drive.ON, scheduler="gone", timer_interval=0.0)
    cluster = ClusterDrive(settings, scheduled)
    migrating.status, migrating.host = "up", "puma"
    cluster.run_due()
    assert "the migration of web to puma is done" in caplog.text
    assert "gone" in cluster.state().problem


def test_a_balancing_that_waits_for_a_migration_reads_no_statistics(
    scheduled, engine, migrating, clock
):
    """It is due all the time, and would read the whole cluster every two seconds."""
    settings = ClusterSettings(
        "Default", Drive.ON, scheduler="recorder", properties={}, load_balance_interval=0.001,
        timer_interval=0.0,
    )  # fmt: skip
    cluster = ClusterDrive(settings, scheduled)
    clock.now = cluster.run_due()
    for _ in range(3):
        engine.queries.clear()
        clock.now = max(clock.now + 2.1, cluster.run_due())
        assert not [query for query in engine.queries if query.follow]
    migrating.status, migrating.host = "up", "puma"
    engine.queries.clear()
    cluster.run_due()
    assert [query for query in engine.queries if query.follow]


def test_who_drives_is_settled_though_the_look_fails(services):
    """A scheduler that is gone makes no twin of the daemon, and what is heard does not pile up."""
    settings = ClusterSettings("Default", Drive.ON, timer_interval=0.0)
    cluster = ClusterDrive(settings, services)
    tag = f"{zlib.crc32(b'Default') & 0xFFFF:04x}"
    cluster.ownership.add_marks([str(Mark(True, 1, "far-0000", tag))])
    cluster.run_due()
    assert cluster.state().problem
    assert cluster.state().driven_by == "far-0000"


def test_events_alone_that_cannot_be_read_are_told(services, engine, caplog, monkeypatch):
    """Once, when other queries have had the time to fail, too; and when they can be read again."""
    monkeypatch.setattr(threads, "_WATCH_EVERY", 0.01)
    monkeypatch.setattr(drive, "SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(drive, "LONGEST_PAUSE", 0.05)
    caplog.set_level("INFO")
    engine.broken = Reply(200, "text/html", "<html>")
    watching = threads.ClusterThreads((), services)
    watching.start()
    wait_until(lambda: "events cannot be read: http" in caplog.text)
    asked = len(engine.asked("events"))
    wait_until(lambda: len(engine.asked("events")) > asked + 2)
    engine.broken = None
    wait_until(lambda: "the engine's events can be read again" in caplog.text)
    watching.stop(LONG)
    assert not any(map(threading.Thread.is_alive, watching._threads))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_hooks_have_as_much_time_as_the_reading_took(scheduled, engine, clock, tmp_path):
    """Else a change in a large cluster would wait for many looks. Answers wait for five seconds."""
    answer, decide, acted_on = engine.get, scheduled.decisions.decide, []

    def answer_late(path, parameters):
        clock.now += 10.0 if path == "vms" else 0.0
        return answer(path, parameters)

    def decide_late(*request):
        acted_on.append((tmp_path / "clusters.json").read_text().count("paused"))
        clock.now += 3.0
        return decide(*request)

    engine.get, scheduled.decisions.decide = answer_late, decide_late
    engine.vms = [Vm(f"vm{number}", "lynx") for number in range(5)]
    settings = ClusterSettings(
        "Default",
        scheduler="recorder",
        properties={},
        load_balance_interval=0.0,
        timer_interval=0.0,
    )
    cluster = ClusterDrive(settings, scheduled)
    clock.now = cluster.run_due()
    for vm in engine.vms:
        vm.status = "paused"
    cluster.run_due()
    assert (tmp_path / "told").read_text().count("up paused") == 5
    assert acted_on == [0, 0, 2, 2, 4]


@pytest.mark.parametrize("stops", [False, True])
def test_a_hook_whose_answer_is_not_acted_on_is_called_again(
    scheduled, engine, place, tmp_path, clock, stops
):
    """The filters could not be asked, or the daemon stops: else the VM would stay where it is."""
    place.write("slow", SLOW.format(folder=str(tmp_path)))
    place.write("Any", "def do_filter(hosts, vm, properties):\n    return hosts\n")
    place.registry.refresh()
    engine.hosts.append(Host("puma"))
    decide, failed = scheduled.decisions.decide, []

    def fail_once(request, known):
        if request.driver_call is None and not failed:
            failed.append(request)
            raise Overloaded("too many requests wait")
        decision = decide(request, known)
        if stops and not failed:
            failed.append(request)
            scheduled.stopping.set()
        return decision

    scheduled.decisions.decide = fail_once
    settings = ClusterSettings(
        "Default", Drive.APPROVE, scheduler="slow", filters=(RequestedUnit("Any"),),
        properties={"seconds": "0", "target": "puma"},
        load_balance_interval=0.0, timer_interval=0.0,
    )  # fmt: skip
    cluster = ClusterDrive(settings, scheduled)
    clock.now = cluster.run_due()
    engine.vms[0].status = "paused"
    clock.now = max(clock.now, cluster.run_due())
    assert (len(failed), scheduled.plans.of_cluster("Default")) == (1, ())
    if stops:
        memory = DriveMemory(tmp_path / "clusters.json")
        restarted = scheduled._replace(memory=memory, stopping=threading.Event())
        cluster = ClusterDrive(settings, restarted)
    cluster.run_due()
    (plan,) = scheduled.plans.of_cluster("Default")
    assert [(step.vm_name, step.target_name) for step in plan.steps] == [("web", "puma")]
    clock.now += 60.0
    cluster.run_due()
    assert (tmp_path / "told").read_text().count("web up paused") == 2


def test_a_hook_whose_answer_can_never_be_acted_on_does_not_keep_the_timer_waiting(
    scheduled, engine, place, tmp_path, clock
):
    """It is called at each look, and the timer as well."""
    place.write("slow", SLOW.format(folder=str(tmp_path)))
    place.write("Any", "def do_filter(hosts, vm, properties):\n    return hosts\n")
    place.registry.refresh()
    decide = scheduled.decisions.decide

    def fail(request, known):
        if request.driver_call is None:
            raise Overloaded("too many requests wait")
        return decide(request, known)

    scheduled.decisions.decide = fail
    settings = ClusterSettings(
        "Default", scheduler="slow", filters=(RequestedUnit("Any"),),
        properties={"seconds": "0", "target": "lynx"},
        load_balance_interval=0.0, timer_interval=5.0,
    )  # fmt: skip
    cluster = ClusterDrive(settings, scheduled)
    clock.now = cluster.run_due()
    engine.vms[0].status = "paused"
    for _ in range(5):
        clock.now = cluster.run_due()
    told = (tmp_path / "told").read_text()
    assert told.count("web up paused") > 1
    assert "timer" in told
    assert "too many requests wait" in cluster.state().problem


def test_a_look_at_statuses_reads_no_statistics(scheduled, engine, place, tmp_path):
    """Though its scheduler does: they are more than all else."""
    text = RECORDER.format(folder=str(tmp_path))
    place.write("recorder", f"{text}\n\ndef used(host):\n    return host.statistics\n")
    assert place.registry.refresh().drivers["recorder"].plugin.wants_statistics
    settings = ClusterSettings("Default", scheduler="recorder", properties={},
                               load_balance_interval=0.0, timer_interval=0.0)  # fmt: skip
    cluster = ClusterDrive(settings, scheduled)
    cluster.run_due()
    assert cluster.state().problem == ""
    assert {query.follow for query in engine.queries} == {""}


def test_who_stands_by_knows_no_imbalance(scheduled, clock):
    """That of its own last balancing may be days old."""
    settings = ClusterSettings("Default", Drive.ON, scheduler="recorder", properties={})
    cluster = ClusterDrive(settings, scheduled)
    clock.now = cluster.run_due()
    assert cluster.state().imbalance == 0.0
    tag = f"{zlib.crc32(b'Default') & 0xFFFF:04x}"
    cluster.ownership.add_marks([str(Mark(True, 1, "far-0000", tag))])
    cluster.run_due()
    assert (cluster.state().driven_by, cluster.state().imbalance) == ("far-0000", None)


def test_a_balancing_that_fails_is_not_well_again_by_a_look_at_statuses(driven):
    """The engine tells of hosts and VMs, and not of their statistics."""
    answer, failed = driven.engine.get, []

    def get(path, parameters):
        if "follow" in parameters and len(failed) < 2:
            failed.append(path)
            return Reply(500, "application/xml", "<fault><reason>no statistics</reason></fault>")
        return answer(path, parameters)

    driven.engine.get = get
    driven.start("dry-run", cluster(balance="0.03"))
    driven.wait_for_log("is looked after again")
    assert len(failed) == 2
    assert driven.daemon.log.count("no statistics") == 1
    assert driven.engine.asked("vms")[0].follow == ""
