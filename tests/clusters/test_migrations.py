"""Migrations of a cluster that the daemon looks after: planned, made, followed to their end."""

from __future__ import annotations

import json
import signal
import time

import pytest

from ovirt_scheduler.model.plans import Step
from tests.support.command import run
from tests.support.driven import OFTEN, cluster
from tests.support.rest_server import GIB, Host, Reply, Vm

pytestmark = pytest.mark.long

NOT_PUMA = '''\
"""Keeps VMs that have a name off the host puma."""


def do_filter(hosts, vm, properties):
    return [host for host in hosts if host.name != "puma" or not vm.name]
'''
OFF_LYNX = '''\
"""Takes a VM off the host lynx."""


def do_balance(hosts, properties):
    return {vm!r}, [host for host in hosts if host.name != "lynx"]
'''
BY_NAME = '''\
"""What a host costs is a property of its name."""


def do_score(hosts, vm, properties):
    return [(host, int(properties[host.name])) for host in hosts if host.name in properties]
'''


def test_a_dry_run_only_says_what_it_would_do(driven):
    """Once, however often it comes to the same; it is done when the settings say so."""
    driven.want({"web": "puma"})
    driven.start("dry-run", cluster())
    driven.wait_for_log("cluster Default: would migrate web from lynx to puma")
    driven.wait_for_looks()
    assert driven.daemon.log.count("would migrate") == 1
    assert driven.engine.migrations == []
    conf = driven.folder / "scheduler.conf"
    conf.write_text(conf.read_text().replace("drive = dry-run", "drive = on"))
    driven.daemon.process.send_signal(signal.SIGHUP)
    driven.wait(lambda: driven.engine.migrations == [("web", "puma")])


def test_a_migration_is_made_and_followed_to_its_end(driven):
    """And nothing is balanced meanwhile."""
    driven.want({"web": "puma"})
    driven.start("on", cluster())
    driven.wait_for_log("cluster Default: migrating web from lynx to puma")
    driven.wait(lambda: driven.engine.migrations == [("web", "puma")])
    driven.want({"mail": "lynx"})
    driven.wait_for_looks()
    assert driven.engine.migrations == [("web", "puma")]
    driven.engine.finish_migrations()
    driven.wait_for_log("cluster Default: the migration of web to puma is done")
    driven.wait(lambda: ("mail", "lynx") in driven.engine.migrations)


def test_how_long_a_migration_took_is_told_by_the_engine(driven):
    """By its events; where it has none, it is the time that the daemon has seen."""
    driven.want({"web": "puma"})
    driven.engine.migration_seconds = 3600.0
    driven.engine.instant_migrations = True
    driven.start("on", cluster())
    driven.wait_for_log("cluster Default: the migration of web to puma is done in 3600.")
    driven.engine.migration_codes = (30, 30)
    driven.want({"mail": "lynx"})
    driven.wait_for_log("cluster Default: the migration of mail to lynx is done within ")
    assert driven.engine.migrations == [("web", "puma"), ("mail", "lynx")]


def test_an_imbalance_has_to_last_and_to_become_less(driven):
    """And a VM that a balancing moved does not go back."""
    driven.engine.instant_migrations = True
    driven.vm("web").memory = 16 * GIB
    driven.want({"web": "puma"})
    driven.start("on", cluster(hold="0.02", margin=5))
    driven.wait_for_log(
        "cluster Default: web does not go from lynx to puma now: the imbalance has lasted 0 s, and "
        "has to last 1 s"
    )
    driven.wait_for_log("migrating web from lynx to puma: memory 25 % to 2 %")
    driven.want({"web": "lynx", "mail": "lynx"})
    driven.wait_for_log(
        "web does not go from puma to lynx now: a balancing took it from there within the hour"
    )
    driven.wait_for_log("mail does not go from puma to lynx now: it changes the imbalance of")
    driven.wait_for_looks(4)
    assert driven.engine.migrations == [("web", "puma")]


def test_a_vm_that_was_moved_stays_in_the_next_balancing(driven):
    """Whatever the scheduler answers."""
    driven.want({"web": "puma"})
    driven.start("on", cluster())
    moved = [("web", "puma"), ("mail", "lynx"), ("web", "lynx")]
    for number in range(1, 4):
        driven.wait(lambda count=number: len(driven.engine.migrations) == count)
        assert driven.engine.migrations == moved[:number]
        driven.want({"web": "lynx", "mail": "lynx"})
        driven.engine.finish_migrations()


def test_a_migration_to_any_host_is_the_engines_choice(driven):
    """It is done when the VM is on another host."""
    driven.want({"web": ""})
    driven.start("on", cluster())
    driven.wait_for_log("cluster Default: migrating web from lynx to any host")
    driven.wait(lambda: driven.engine.migrations)
    driven.engine.finish_migrations()
    driven.wait_for_log("cluster Default: the migration of web to any host is done")
    assert driven.engine.migrations == [("web", "puma")]


def test_a_stop_begins_no_other_migration_and_forgets_none(driven):
    """Those that the engine was asked for are followed after the start."""
    crowd = [Vm(f"vm{number}", host="lynx") for number in range(100)]
    driven.engine.vms[:] = crowd
    driven.want({vm.name: "puma" for vm in crowd})
    driven.start("on", cluster())
    driven.wait(lambda: driven.engine.migrations)
    driven.stop()
    begun = [name for name, _ in driven.engine.migrations]
    assert len(begun) < len(crowd)
    assert driven.daemon.log.count("the engine was not asked") == len(crowd) - len(begun)
    driven.engine.finish_migrations()
    driven.want({})
    driven.start("on", cluster())
    for name in begun:
        driven.wait_for_log(f"the migration of {name} to puma is done")


def test_a_daemon_killed_while_it_asks_for_a_migration_follows_it(driven):
    """The engine took it and had not answered; nor does the next balancing move the VM again."""
    driven.want({"web": "puma"})
    driven.engine.acting.clear()
    driven.start("on", cluster())
    driven.wait(lambda: driven.engine.migrations == [("web", "puma")])
    driven.daemon.process.kill()
    driven.daemon.process.wait()
    assert "migrating web" not in driven.daemon.log
    driven.engine.acting.set()
    driven.want({"web": "lynx", "mail": "lynx"})
    driven.start("on", cluster())
    driven.wait_for_looks()
    driven.engine.finish_migrations()
    driven.wait_for_log("the migration of web to puma is done")
    driven.wait(lambda: len(driven.engine.migrations) == 2)
    assert driven.engine.migrations == [("web", "puma"), ("mail", "lynx")]


def test_a_migration_whose_answer_is_lost_is_followed(driven):
    """What the VM does is the answer."""
    driven.want({"web": "puma"})
    driven.engine.broken_action = Reply(502, "text/html", "<html>Bad gateway</html>")
    driven.start("on", cluster())
    driven.wait_for_log("the engine did not confirm that web migrates from lynx to puma: ")
    driven.engine.finish_migrations()
    driven.wait_for_log("the migration of web to puma is done")
    assert driven.engine.migrations == [("web", "puma")]


def test_a_vm_that_disappears_while_it_migrates_is_told_by_its_name(driven):
    """The cluster is balanced again."""
    driven.want({"web": "puma"})
    driven.start("on", cluster())
    driven.wait_for_log("migrating web from lynx to puma")
    driven.want({"mail": "lynx"})
    driven.engine.vms.remove(driven.vm("web"))
    driven.wait_for_log("the migration of web to puma ended with the VM, which is gone, after")
    driven.wait_for_log("migrating mail from puma to lynx")
    assert driven.engine.migrations == [("web", "puma"), ("mail", "lynx")]


def test_a_migration_that_fails_is_told_with_the_engines_words(driven):
    """And with the host on which the VM is; its target is closed to it for a while."""
    driven.want({"web": "puma"})
    driven.start("on", cluster(refused_pause="0.04"))
    driven.wait(lambda: len(driven.engine.migrations) == 1)
    driven.wait_for_looks()
    driven.engine.finish_migrations(well=False)
    words = "Migration failed (VM: web, Destination: puma)."
    driven.wait_for_log(f"the migration of web to puma failed, the VM is on lynx ({words}), after")
    driven.wait_for_log(
        "cluster Default: web does not go from lynx to puma now: its last migration to puma failed: "
        f"{words}"
    )
    assert driven.engine.migrations == [("web", "puma")]
    driven.wait(lambda: len(driven.engine.migrations) == 2)


def test_a_migration_that_the_engine_refuses_is_told_once(driven):
    """With what the engine says; it is not asked again, and what the scheduler wants instead is made."""
    driven.want({"web": "puma"})
    driven.engine.surprising = lambda vm, _: "VM is being backed up." if vm.name == "web" else ""
    driven.start("on", cluster())
    driven.wait_for_log("cluster Default: cannot migrate web from lynx to puma: ")
    assert "VM is being backed up." in driven.daemon.log
    status, out, _ = run(driven.folder, "status")
    assert (status, "1 VM cannot be migrated: web" in out) == (1, True)
    _, out, _ = run(driven.folder, "why", "web")
    assert "web is not migrated to puma for a while, since" in out
    assert "refused: Operation Failed: VM is being backed up." in out
    driven.wait_for_looks(3)
    driven.want({"web": "puma", "mail": "lynx"})
    driven.wait(lambda: driven.engine.migrations == [("mail", "lynx")])
    assert driven.daemon.log.count("cannot migrate") == 1
    assert driven.engine.requested == [("web", "puma"), ("mail", "lynx")]
    driven.stop()
    _, out, _ = run(driven.folder, "decisions", "--events", "-o", "json")
    plans = [each["because"] for each in json.loads(out) if each["event"] == "plan"]
    assert set(plans) == {"0 of 1 migrations are begun", "1 of 1 migrations are begun"}


def test_a_vm_whose_migration_was_refused_has_not_been_moved(driven):
    """The next balancing may move it: it stays only where the latest one has moved it."""
    driven.want({"web": "puma"})
    driven.engine.surprising = lambda _vm, _host: "VM is being backed up."
    driven.start("on", cluster(balance="60"))
    driven.wait_for_log("cluster Default: cannot migrate web from lynx to puma: ")
    driven.stop()
    known = json.loads((driven.folder / "state" / "clusters.json").read_text())
    assert known["Default"]["moved"] == []
    (refusal,) = known["Default"]["refusals"]
    assert (refusal["obstacle"], refusal["host_name"]) == ("refused", "puma")


def test_what_many_hooks_answer_is_made(driven):
    """Each migration once, though more than one hook may be called before the first is made."""
    driven.crowd(15)
    driven.start("on", cluster("slow", balance="0", timer=OFTEN, properties="target=puma"))
    driven.wake_all()
    driven.wait(lambda: len(driven.engine.migrations) >= 15)
    driven.wait(lambda: driven.told.read_text().count("up migrating") >= 15)
    driven.wait_for_looks()
    assert "cannot migrate" not in driven.daemon.log
    assert sorted(driven.engine.migrations) == sorted((vm.name, "puma") for vm in driven.engine.vms)
    driven.engine.finish_migrations()
    for vm in driven.engine.vms:
        driven.wait_for_log(f"the migration of {vm.name} to puma is done")


def units(driven, *more_hosts):
    """A filter NotPuma, a cost function ByName, and more hosts."""
    (driven.plugins / "NotPuma.py").write_text(NOT_PUMA)
    (driven.plugins / "ByName.py").write_text(BY_NAME)
    driven.engine.hosts += [Host(name, measured=True) for name in more_hosts]


def test_the_filters_of_a_cluster_hold_for_its_migrations(driven):
    """A host that they remove is passed over, and a VM with no other stays; that is told once."""
    units(driven, "lion")
    driven.want({"web": "puma", "mail": "puma lion"})
    driven.vm("mail").host = "lynx"
    driven.start("on", cluster(filters="NotPuma"))
    driven.wait(lambda: driven.engine.migrations == [("mail", "lion")])
    driven.engine.finish_migrations()
    words = "web does not go from lynx to puma now: the filters of the cluster do not allow it"
    driven.wait_for_log(f"cluster Default: {words}")
    driven.wait_for_looks(4)
    assert driven.engine.migrations == [("mail", "lion")]
    assert driven.daemon.log.count(words) == 1


def test_the_filters_of_a_cluster_hold_for_what_its_hooks_answer(driven):
    """In a dry run as well."""
    units(driven, "lion")
    driven.engine.vms[:] = [Vm("web", host="lynx")]
    driven.start("dry-run", cluster("default", filters="NotPuma"))
    driven.wait_until_known()
    driven.wait(lambda: len(driven.engine.asked("events")) > 1)
    driven.engine.hosts[0].status = "preparing_for_maintenance"
    driven.engine.happened()
    driven.wait_for_log("would migrate web from lynx to lion")
    assert "to puma" not in driven.daemon.log


def test_a_filter_in_shadow_is_called_for_no_migration(driven):
    """It counts for nothing here, either; hooks are called."""
    units(driven)
    conf = driven.folder / "conf"
    conf.mkdir()
    (conf / "NotPuma.conf").write_text("shadow = true\n")
    driven.start("dry-run", cluster("slow", filters="NotPuma", properties="target=puma"),
                 f"plugins_conf_path = {conf}\n{driven.engine.conf()}")  # fmt: skip
    driven.engine.vms[:] = [Vm("web", host="lynx", status="paused")]
    driven.wake_all()
    driven.wait_for_log("would migrate web from lynx to puma")
    assert "Traceback" not in driven.daemon.log


def test_a_balance_unit_stands_in_for_load_balance(driven):
    """The cluster's filters hold for it, and the scheduler is called for the rest."""
    units(driven, "lion")
    (driven.plugins / "OffLynx.py").write_text(OFF_LYNX.format(vm=driven.vm("web").id))
    driven.want({"mail": "lynx"})  # is not asked for
    driven.engine.instant_migrations = True
    section = cluster(timer=OFTEN, filters="NotPuma")
    driven.start("on", f"{section}\nbalance = OffLynx")
    driven.wait_for_log("migrating web from lynx to lion: ")
    driven.wait(lambda: "timer" in driven.told.read_text())
    driven.wait_for_looks(4)
    assert driven.engine.migrations == [("web", "lion")]


def test_the_cost_functions_of_a_cluster_hold_for_its_migrations(driven):
    """Of the hosts answered the cheapest is taken; where any will do, of those the filters left."""
    units(driven, "lion", "cat")
    driven.want({"web": "lion cat", "mail": ""})
    driven.vm("mail").host = "lynx"
    costs = "puma=-9;lion=2;cat=1"
    driven.start("on", cluster(filters="NotPuma", cost_functions="ByName=3", properties=costs))
    driven.wait(lambda: len(driven.engine.migrations) == 2)
    assert sorted(driven.engine.migrations) == [("mail", "cat"), ("web", "cat")]


def test_the_default_scheduler_plans_with_the_filters(driven):
    """It learns where VMs may not go, and makes its plan without that host."""
    units(driven, "lion")
    driven.engine.vms[:] = [Vm(f"vm{number}", "lynx", memory=6 * GIB) for number in range(10)]
    driven.engine.vms.append(Vm("other", "lion"))  # else it would like puma no better
    driven.engine.instant_migrations = True
    relieving = cluster(
        "default", policy="evenly_distribute", filters="NotPuma", properties="low_utilization=0"
    )
    driven.start("on", relieving)
    driven.wait(lambda: len(driven.engine.migrations) == 2)
    driven.wait_for_looks(4)
    assert [host for _, host in driven.engine.migrations] == ["lion"] * 2


def test_what_a_section_names_and_is_not_there_is_told_at_once(driven):
    """Before the engine answers, with file and line; a reload tells it anew."""
    driven.engine.answering.clear()
    driven.start("dry-run", cluster(filters="Nobody"))
    conf = driven.folder / "scheduler.conf"
    line = next(
        number
        for number, text in enumerate(conf.read_text().splitlines(), 1)
        if text.startswith("filters")
    )
    words = f"{conf}:{line}: [clusters] [[Default]] filters: there is no filter 'Nobody'; there"
    driven.wait_for_log(f"ERROR   cluster Default: {words}")
    driven.daemon.process.send_signal(signal.SIGHUP)
    driven.wait(lambda: driven.daemon.log.count(words) >= 2)
    assert driven.daemon.log.count(words) == 2


def test_power_saving_empties_hosts_with_as_few_migrations_as_it_takes(driven):
    """Though what a host uses is told late: a VM moved last stays, so its host is not emptied."""
    # Names for which the tie is won by the host that comes first when the next one is emptied.
    driven.engine.hosts[:] = [Host(name, free_memory=44 * GIB) for name in ("lynx", "puma", "lion")]
    driven.engine.vms[:] = [
        Vm(f"{host.name}{letter}", host.name) for host in driven.engine.hosts for letter in "ab"
    ]
    driven.engine.instant_migrations = True
    driven.start("on", cluster("default", policy="power_saving", properties="most_migrations=2"))
    driven.wait(lambda: len({vm.host for vm in driven.engine.vms}) == 1)
    driven.wait_for_looks(4)
    assert len(driven.engine.migrations) == 4


def test_a_vm_that_is_moved_back_and_forth_stays_after_a_while_and_that_is_told(driven):
    """Also after a restart; other VMs are moved on, and a migration that was refused is none."""
    driven.engine.instant_migrations = True

    def move_to(host, name="web"):
        driven.want({name: host})
        driven.wait(lambda: driven.vm(name).host == host)

    driven.start("on", cluster(migrations_per_vm=3, refused_pause=0))
    move_to("puma")
    driven.engine.surprising = lambda _vm, _host: "no"
    driven.want({"web": "lynx"})
    driven.wait_for_log("cannot migrate web from puma to lynx")
    driven.engine.surprising = lambda _vm, _host: ""
    move_to("lynx")
    move_to("puma")
    driven.wait_for_log(
        "cluster Default: web was migrated 3 times within an hour, and now stays where it is: does "
        "recorder move it back and forth?"
    )
    driven.stop()
    driven.want({"web": "lynx", "mail": "lynx"})
    driven.start("on", cluster(migrations_per_vm=3))
    driven.wait(lambda: driven.vm("mail").host == "lynx")
    driven.wait_for_looks(4)
    assert driven.vm("web").host == "puma"
    assert [name for name, _ in driven.engine.migrations] == ["web"] * 3 + ["mail"]


def test_a_migration_that_takes_longer_than_an_hour_blocks_nothing(driven):
    """It is told, and followed no more."""
    web = driven.vm("web")
    web.status = "migrating"
    lynx, puma = (host.id for host in driven.engine.hosts)
    step = Step(web.id, lynx, puma, "web", "lynx", "puma")
    begun = {"step": vars(step), "begun": time.time() - 3700, "moving": True}
    known = {"statuses": {web.id: "migrating"}, "migrating": {web.id: begun}}
    state = driven.folder / "state"
    state.mkdir(mode=0o700)
    (state / "clusters.json").write_text(json.dumps({"Default": known}))
    driven.want({"mail": "lynx"})
    driven.start("on", cluster())
    driven.wait_for_log(
        "the migration of web to puma still goes on, and is followed no more, after"
    )
    driven.wait(lambda: driven.engine.migrations)
    assert driven.engine.migrations == [("mail", "lynx")]


def test_what_the_engine_names_and_says_is_bounded_in_the_log(driven):
    """Names and reasons of a megabyte, with what would begin a line or turn it round."""
    odd, target = "x\n\u2028\u202e" * 250_000, "puma" + "\u202e" * 500_000
    driven.engine.hosts[1].name = driven.vm("mail").host = target
    driven.vm("web").name = f"web{odd}"
    driven.want({f"web{odd}": target})
    fault = f"<fault><reason>Operation Failed</reason><detail>{odd}</detail></fault>"
    driven.engine.broken_action = Reply(409, "application/xml", fault)
    driven.start("on", cluster(refused_pause=0))
    driven.wait_for_log("Operation Failed")
    driven.engine.finish_migrations(well=False)
    driven.wait_for_log("cluster Default: migrating web")
    driven.engine.finish_migrations()
    driven.wait_for_log(" is done ")
    lines = driven.daemon.log.splitlines()
    assert max(map(len, lines)) < 10_000
    assert not any(line.startswith("x") for line in lines)
    assert len((driven.folder / "state" / "clusters.json").read_text()) < 10_000
