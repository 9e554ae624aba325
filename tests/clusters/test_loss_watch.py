"""ovirt_scheduler.clusters.loss_watch: what a cluster can lose, counted of what a look has read."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time
import zlib
from types import SimpleNamespace

import pytest

from ovirt_scheduler.clusters import loss_watch
from ovirt_scheduler.clusters.drive import ClusterDrive
from ovirt_scheduler.clusters.ownership import Mark
from ovirt_scheduler.errors import EngineUnavailable, ExecutorUnavailable
from ovirt_scheduler.log import marked_for_engine
from ovirt_scheduler.model.requests import RequestedUnit
from ovirt_scheduler.settings.value_types import Drive
from tests.support.command import run
from tests.support.driven import cluster
from tests.support.pages import get
from tests.support.rest_affinity import HARD, Group
from tests.support.rest_server import GIB, Host, Vm
from tests.support.waiting import wait_until

METRIC = re.compile(r"^ovirt_scheduler_cluster_vms_without_place\{(.*)\} (.*)$", re.MULTILINE)
SMALL = """\
import pathlib

def do_filter(hosts, vm, properties):
    with pathlib.Path({told!r}).open("a") as told:
        told.write(vm.name + "\\n")
    return [host for host in hosts if host.name != "serval" or vm.name == "web"]
"""


BROKEN = """\
import pathlib

def do_filter(hosts, vm, properties):
    with pathlib.Path({told!r}).open("a") as told:
        told.write(vm.name + "\\n")
    raise ValueError("oh")
"""

ASKS_THE_ENGINE = """\
from ovirt_scheduler import plugin

def do_filter(hosts, vm, properties):
    try:
        plugin.engine_connection()
    except Exception:
        return []
"""

REJECT = "on_failure = reject\n"

READS_STATISTICS = """\
def do_filter(hosts, vm, properties):
    assert all(host.statistics for host in hosts)
    return hosts
"""


@pytest.fixture
def three(looks):
    """Hosts of 16 GiB, with 12, 4 and 8 GiB of VMs."""
    names = ("lynx", "puma", "serval")
    vms = {"db": ("lynx", 8), "web": ("lynx", 4), "mail": ("puma", 4), "sap": ("serval", 8)}
    free = dict.fromkeys(names, 16)
    for host, memory in vms.values():
        free[host] -= memory
    looks.engine.hosts = [
        Host(name, 16 * GIB, max_scheduling_memory=free[name] * GIB, measured=True)
        for name in names
    ]
    looks.engine.vms = [Vm(name, *where[:1], where[1] * GIB) for name, where in vms.items()]
    return looks


def counted(looks, minutes: float = 1.0):
    """The worst host, and the VMs that have no place without it, after a look."""
    looks.look(minutes)
    looks.cluster.losses.count()
    worst = looks.cluster.state().worst_loss
    return worst and (worst.loss.host, [vm.vm for vm in worst.loss.homeless])


def begin(looks, **keys) -> None:
    looks.begin(Drive.DRY_RUN, policy="none", **keys)


def test_of_the_worst_host_the_vms_are_counted_that_fit_nowhere(three):
    """Where another placement has room for them, they fit."""
    begin(three)
    assert counted(three) == ("lynx", [])
    three.engine.hosts[1].max_scheduling_memory = 3 * GIB  # else: db on puma, web on serval
    begin(three)
    assert counted(three) == ("lynx", ["web"])


@pytest.mark.parametrize("status", ["maintenance", "non_responsive"])
def test_a_host_that_is_not_up_takes_no_vm(three, status):
    three.engine.hosts[1].status = status
    begin(three)
    assert counted(three) == ("lynx", ["web"])


def test_filters_are_asked_once_for_each_vm_and_count(three, place, tmp_path):
    told = tmp_path / "asked"
    place.write("Small", SMALL.format(told=str(told)))
    three.registry.refresh()
    begin(three, filters=(RequestedUnit("Small"),))
    assert counted(three) == ("lynx", [])  # db on puma, web on serval
    assert sorted(told.read_text().split()) == ["db", "mail", "sap", "web"]
    three.engine.hosts[1].max_scheduling_memory = 4 * GIB
    begin(three, filters=(RequestedUnit("Small"),))
    assert counted(three) == ("lynx", ["db"])


@pytest.mark.parametrize("conf", ["", REJECT])
def test_a_filter_that_fails_is_named_and_asked_no_more(three, place, tmp_path, conf):
    """Else one that hangs would hold up all clusters for its time with each VM."""
    told = tmp_path / "asked"
    place.write("Broken", BROKEN.format(told=str(told)))
    (place.confs / "Broken.conf").write_text(conf)
    place.write("Small", SMALL.format(told=str(tmp_path / "small")))
    three.registry.refresh()
    begin(three, filters=(RequestedUnit("Broken"), RequestedUnit("Small")))
    three.engine.hosts[1].max_scheduling_memory = 4 * GIB
    assert counted(three) == ("lynx", ["db"])
    assert three.cluster.state().worst_loss.without == ("Broken",)
    assert len(told.read_text().split()) == 1


@pytest.mark.parametrize("conf", ["", REJECT])
def test_a_filter_that_is_not_loaded_any_more_is_named_and_accepts_any_host(three, place, conf):
    plugin = place.write("Small", "def do_filter(hosts, vm, properties):\n    return []\n")
    (place.confs / "Small.conf").write_text(conf)
    three.registry.refresh()
    begin(three, filters=(RequestedUnit("Small"),))
    three.look()
    plugin.unlink()
    assert bool(three.registry.refresh().missed) == bool(conf)
    three.cluster.losses.count()
    worst = three.cluster.state().worst_loss
    assert (worst.loss.homeless, worst.without) == ((), ("Small",))


def test_a_filter_that_needs_an_engine_that_gives_no_answer_is_named(three, place, monkeypatch):
    place.write("Asks", ASKS_THE_ENGINE)
    three.registry.refresh()
    begin(three, filters=(RequestedUnit("Asks"),))

    def refuse(_deadline):
        raise EngineUnavailable("away")

    monkeypatch.setattr(three.inventory, "access", refuse)
    assert counted(three) == ("lynx", [])
    assert three.cluster.state().worst_loss.without == ("Asks",)


def test_filters_that_hear_of_no_entities_are_named(three, place, monkeypatch):
    """As the engine's replies cannot be read."""
    place.write("Small", "def do_filter(hosts, vm, properties):\n    return []\n")
    three.registry.refresh()
    begin(three, filters=(RequestedUnit("Small"),))
    call = place.executor.run_shadow
    monkeypatch.setattr(
        place.executor, "run_shadow", lambda job: call(job)._replace(errors=("not read",))
    )
    assert counted(three) == ("lynx", [])
    assert three.cluster.state().worst_loss.without == ("Small",)


@pytest.mark.parametrize("short", [False, True])
def test_a_host_that_is_up_alone_is_counted_and_is_no_news(three, place, tmp_path, caplog, short):
    """But a cluster that is short when a second one is up, is."""
    caplog.set_level("INFO")
    told = tmp_path / "asked"
    place.write("Small", SMALL.format(told=str(told)))
    three.registry.refresh()
    for host in three.engine.hosts[1:]:
        host.status = "maintenance"
    begin(three, filters=(RequestedUnit("Small"),))
    assert counted(three) == ("lynx", ["db", "web"])
    assert not told.exists()
    assert "find" not in caplog.text
    three.engine.hosts[1].status = "up"
    three.engine.hosts[1].max_scheduling_memory = (4 if short else 12) * GIB
    assert counted(three, 11) == ("lynx", ["db"] if short else [])
    assert caplog.text.count("if lynx fails, VMs find no place: 1") == short


def test_a_time_without_a_host_that_is_up_is_not_counted_and_the_end_of_a_lack_is_told_after_it(
    three, caplog
):
    caplog.set_level("INFO")
    three.engine.hosts[1].max_scheduling_memory = 3 * GIB
    begin(three)
    assert counted(three) == ("lynx", ["web"])
    for status, loss in (("non_responsive", None), ("up", ("lynx", []))):
        for host in three.engine.hosts:
            host.status, host.max_scheduling_memory = status, 12 * GIB
        assert counted(three, 11) == loss
    assert caplog.text.count("cluster Default: every VM finds a place") == 1


def test_hard_rules_and_pins_count(three):
    three.engine.hosts[2].max_scheduling_memory = 4 * GIB
    three.engine.groups = [Group("apart", ["db", "mail"], apart=HARD)]
    begin(three)
    assert counted(three) == ("lynx", ["db"])
    three.engine.groups = []
    begin(three)
    assert counted(three) == ("lynx", [])  # db on puma
    three.engine.vms[1].pinned_to = ["lynx"]
    begin(three)
    assert counted(three) == ("lynx", ["web"])


def test_a_vm_finds_no_place_on_hosts_with_fewer_processors_than_it_has(three):
    for host in three.engine.hosts:
        host.busy = 10  # so its document tells its four processors
    three.engine.vms[1].processors = 5
    begin(three)
    assert counted(three) == ("lynx", ["web"])
    three.engine.vms[1].processors = 4
    begin(three)
    assert counted(three) == ("lynx", [])


def test_highly_available_vms_have_a_place_first_and_the_reservation_is_compared(three):
    three.engine.hosts[1].max_scheduling_memory = 0
    three.engine.hosts[2].max_scheduling_memory = 4 * GIB
    three.engine.vms[1].is_highly_available = True
    begin(three)
    assert counted(three) == ("lynx", ["db"])
    assert "ha_reservation of the cluster is off" in three.cluster.state().worst_loss.reservation
    three.engine.reserves = True
    begin(three)
    counted(three)
    assert three.cluster.state().worst_loss.reservation == ""
    three.engine.hosts[2].max_scheduling_memory = 0
    begin(three)
    assert counted(three) == ("lynx", ["web", "db"])
    words = three.cluster.state().worst_loss.reservation
    assert "by them 1 highly available VM would have no place" in words


def test_it_is_counted_each_ten_minutes_and_told_once(three, caplog):
    caplog.set_level("INFO")
    begin(three, load_balance_interval=60.0)
    assert counted(three) == ("lynx", [])
    three.engine.hosts[1].max_scheduling_memory = 3 * GIB
    assert counted(three, 5) == ("lynx", [])
    assert counted(three, 6) == counted(three, 11) == ("lynx", ["web"])
    three.engine.hosts[1].max_scheduling_memory = 12 * GIB
    assert counted(three, 11) == ("lynx", [])
    lines = [record for record in caplog.records if "fails" in record.getMessage()]
    assert all(hasattr(line, marked_for_engine.MARK) for line in lines)  # each is an event, too
    assert [line.getMessage() for line in lines] == [
        "cluster Default: if lynx fails, VMs find no place: 1",
        "cluster Default: every VM finds a place, whichever host fails",
    ]


def test_nothing_is_called_while_all_slots_are_taken_and_then_it_goes_on(three, place, tmp_path):
    """And it takes none itself: a call that comes meanwhile has one at once."""
    told = tmp_path / "asked"
    place.write("Small", SMALL.format(told=str(told)))
    three.registry.refresh()
    begin(three, filters=(RequestedUnit("Small"),))
    three.look()
    slots = place.executor._slots
    with contextlib.ExitStack() as held:
        while slots.is_free:
            held.enter_context(slots.hold(slots.capacity, time.monotonic() + 60))
        three.cluster.losses.count()
        assert (three.cluster.state().worst_loss, told.exists()) == (None, False)
    call, busy = place.executor.run_shadow, []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            place.executor, "run_shadow", lambda job: (busy.append(slots.busy), call(job))[1]
        )
        three.cluster.losses.count()
    assert busy == [0] * 4
    assert three.cluster.state().worst_loss.loss.host == "lynx"


def test_what_waits_for_a_slot_is_kept_until_it_is_time_for_a_new_count(three):
    begin(three, load_balance_interval=60.0)
    three.look()
    three.engine.hosts[1].max_scheduling_memory = 3 * GIB
    assert counted(three) == ("lynx", [])
    three.look(11)
    assert three.cluster.losses._waiting is not None
    three.cluster.losses.begin_look(three.now + 660)
    assert three.cluster.losses._waiting is None  # so there are never two looks in memory
    three.engine.hosts[1].max_scheduling_memory = 12 * GIB
    assert counted(three, 11) == ("lynx", [])


def test_a_count_ends_though_a_slot_is_free_for_one_step_at_a_time(three, place, monkeypatch):
    place.write("Small", SMALL.format(told="/dev/null"))
    three.registry.refresh()
    begin(three, load_balance_interval=60.0, filters=(RequestedUnit("Small"),))
    turns = itertools.cycle([True, False])
    monkeypatch.setattr(type(place.executor), "is_free", property(lambda _: next(turns)))
    steps = 4 + 3  # each VM, and then each host
    for _ in range(steps - 1):
        assert counted(three) is None
    assert counted(three) == ("lynx", [])


def test_processes_that_cannot_be_started_delay_the_count_and_are_no_error_of_it(
    three, place, monkeypatch, caplog
):
    """As when the daemon stops, or its zygote is gone for a moment."""
    place.write("Small", SMALL.format(told="/dev/null"))
    three.registry.refresh()
    begin(three, filters=(RequestedUnit("Small"),))

    def fail(_job):
        raise ExecutorUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(place.executor, "run_shadow", fail)
        assert counted(three) is None
    three.cluster.losses.count()
    assert three.cluster.state().worst_loss.loss.host == "lynx"
    assert not caplog.records


def test_calls_go_on_while_vms_are_placed(three, monkeypatch):
    moments, breaths = itertools.count(), []
    clock = SimpleNamespace(
        time=time.time, monotonic=lambda: next(moments) / 1000, sleep=breaths.append
    )
    begin(three)
    three.look()
    monkeypatch.setattr(loss_watch, "time", clock)
    three.cluster.losses.count()
    assert len(breaths) >= len(three.engine.vms)


def test_filters_get_the_statistics_that_they_read(three, place):
    """Though nobody balances the cluster."""
    place.write("Busy", READS_STATISTICS)
    three.registry.refresh()
    begin(three, load_balance_interval=0.0, filters=(RequestedUnit("Busy"),))
    assert counted(three) == ("lynx", [])
    assert three.cluster.state().worst_loss.without == ()


def test_a_failure_is_logged_and_the_next_look_is_counted(three, caplog, monkeypatch):
    begin(three)
    three.look()
    with monkeypatch.context() as patched:
        patched.setattr(three.cluster.losses, "_worst_of", lambda _: 1 // 0)
        three.cluster.losses.count()
        three.cluster.losses.count()
    assert caplog.text.count("what it can lose cannot be counted now: ZeroDivisionError") == 1
    assert counted(three, 11) == ("lynx", [])


def stand_by(looks) -> None:
    """Another daemon drives the cluster from the next look on."""
    tag = f"{zlib.crc32(b'Default') & 0xFFFF:04x}"
    looks.cluster.ownership.add_marks([str(Mark(True, 1, "far-0000", tag))])
    looks.look()


def test_another_daemon_that_drives_the_cluster_counts_it(three):
    """And what was counted before is old when this one drives it again."""
    three.begin(Drive.ON, policy="none")
    assert counted(three)
    stand_by(three)
    assert three.cluster.state().worst_loss is None
    three.cluster.ownership.take_over()
    three.look()
    assert three.cluster.state().worst_loss is None
    three.cluster.losses.count()
    assert three.cluster.state().worst_loss.loss.host == "lynx"


def test_a_count_that_ends_after_another_daemon_took_the_cluster_over_tells_nothing(
    three, caplog, monkeypatch
):
    three.engine.hosts[1].max_scheduling_memory = 3 * GIB
    three.begin(Drive.ON, policy="none")
    three.look()
    losses = three.cluster.losses
    count = losses._worst_of
    monkeypatch.setattr(losses, "_worst_of", lambda waiting: (count(waiting), stand_by(three))[0])
    losses.count()
    assert losses.worst is None
    assert "fails" not in caplog.text


def test_a_daemon_that_stands_by_reads_no_statistics_for_a_count(three, place):
    place.write("Busy", READS_STATISTICS)
    three.registry.refresh()
    three.begin(
        Drive.ON, policy="none", load_balance_interval=0.0, filters=(RequestedUnit("Busy"),)
    )
    assert three.cluster.losses.begin_look(three.now)
    stand_by(three)
    assert not three.cluster.losses.begin_look(three.now)


def test_a_reload_keeps_what_was_counted_and_warns_of_nothing_again(three, caplog):
    three.engine.hosts[1].max_scheduling_memory = 3 * GIB
    begin(three)
    assert counted(three) == ("lynx", ["web"])
    three.cluster = ClusterDrive(three.cluster._settings, three.cluster._services)
    assert three.cluster.state().worst_loss.loss.host == "lynx"
    assert counted(three) == ("lynx", ["web"])
    assert caplog.text.count("if lynx fails") == 1


def test_a_daemon_counts_the_clusters_that_it_looks_after_as_capacity_does(driven, tmp_path):
    """For its metrics, its page and its status; of another cluster of the engine's it tells none."""
    driven.engine.hosts += [Host("ocelot", cluster="East"), Host("serval")]
    driven.engine.vms += [Vm("db", "serval", 64 * GIB, is_highly_available=True)]
    driven.engine.reserves = True
    engine = f"pages = loopback\n{driven.engine.conf()}"
    daemon = driven.start("dry-run", cluster("default"), engine)
    metric = wait_until(lambda: METRIC.findall(get(daemon.url, "/metrics").body))
    assert metric == [('cluster="Default"', "1.0")]
    worst = get(daemon.url, "/clusters/Default.json").json["worst_loss"]
    assert (worst["host"], worst["vms_without_place"]) == ("serval", ["db"])
    assert "highly available VM would have no place" in worst["reservation"]
    text = get(daemon.url, "/clusters/Default").body
    assert "if serval fails, 1 without a place, 1 of them highly available: db" in text
    conf = str(tmp_path / "scheduler.conf")
    status, out, _ = run(tmp_path, "capacity", "Default", "--config", conf, "-o", "json")
    said = json.loads(out)
    assert (status, said["worst"]) == (1, "serval")
