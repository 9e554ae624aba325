"""The commands snapshot and simulate."""

from __future__ import annotations

import json
import re
import sys

import pytest

from ovirt_scheduler.workbench.simulation import Simulation
from ovirt_scheduler.workbench.snapshot import Snapshot
from tests.support.command import run
from tests.support.rest_server import Host, RestServer, Vm, id_of
from tests.support.snapshots import filled

pytestmark = pytest.mark.usefixtures("one_executor")


def test_snapshot_saves_a_cluster_of_the_engine(tmp_path):
    """Of the engine of the settings; who names none is told."""
    conf, file = tmp_path / "scheduler.conf", tmp_path / "cluster.xml.gz"
    call = ("snapshot", "default", "-f", str(file), "--config", str(conf))
    conf.write_text("")
    status, out, err = run(tmp_path, *call)
    assert (status, out) == (78, "")
    assert f"{conf} has no section [engine]; --config FILE names other settings" in err
    with RestServer(tmp_path, [Host("lynx")], [Vm("web", host="lynx")]) as engine:
        conf.write_text(engine.conf())
        status, out, err = run(tmp_path, *call)
    taken = Snapshot.read(file)
    assert (status, out, err) == (
        0, f"{file}: 1 host and 1 VM of default, {taken.time}\n", "",
    )  # fmt: skip
    assert ([*taken.hosts], [*taken.vms]) == ([id_of("lynx")], [id_of("web")])


@pytest.fixture
def cluster(tmp_path):
    """A snapshot's file."""
    filled(lynx=[(4, 1)] * 10, puma=[(4, 0.5)] * 2).write(tmp_path / "cluster.xml")
    return str(tmp_path / "cluster.xml")


def test_two_policies_are_simulated_side_by_side(tmp_path, cluster):
    """In a table, and on a page that loads nothing."""
    page = tmp_path / "report.html"
    status, out, err = run(
        tmp_path, "simulate", cluster, "--set", "policy=power_saving", "--set",
        "properties=high_utilization=80", "--against", "policy=evenly_distribute", "--html",
        str(page),
    )  # fmt: skip
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == [
        "A: policy = power_saving, properties = high_utilization=80",
        "B: policy = evenly_distribute, properties = high_utilization=80",
    ]
    assert re.split("  +", lines[2].strip()) == [
        "BEFORE", "BETWEEN A", "AFTER A", "BETWEEN B", "AFTER B",
    ]  # fmt: skip
    assert "migrations" in out
    html = page.read_text("utf-8")
    assert html.count("<svg") == 2 * 4
    assert "lynx: 10 VMs, CPU 62 %, memory 62 %" in html
    assert html.count(">lynx</text>") == 2 * 3
    assert not re.search("(src|href)=|@import|url\\(", html)


def test_json_has_all_of_a_simulation(tmp_path, cluster):
    """Views, moves, and what the result depends on."""
    happens = tmp_path / "more.conf"
    happens.write_text("[vms]\n[[web]]\ncount = 2\n")
    status, out, err = run(
        tmp_path, "simulate", cluster, "--scenario", str(happens), "--seed", "3", "-o", "json"
    )
    told = json.loads(out)
    assert (status, err) == (0, "")
    assert (told["cluster"], told["seed"], told["scenario"]) == ("Default", 3, "more.conf")
    (policy,) = told["policies"]
    assert policy["policy"] == (
        "defaults, as [clusters] has no Default; policy none, which balances nothing"
    )
    assert [move["vm"] for move in policy["moves"]] == ["web-1", "web-2"]
    assert sum(host["vms"] for host in policy["after"]["hosts"]) == 14


def test_documents_stand_for_a_snapshot(tmp_path):
    """Of hosts, as an engine gives them, and of VMs."""
    taken = filled(lynx=[(4, 1)] * 3, puma=[])
    hosts, vms = tmp_path / "hosts.xml", tmp_path / "vms.xml"
    hosts.write_bytes(taken.document("hosts").data)
    vms.write_bytes(taken.document("vms").data)
    call = ("simulate", "--hosts", str(hosts), "-o", "json")
    for more, number in (((), 0), (("--vms", str(vms)), 3)):
        status, out, _ = run(tmp_path, *call, *more)
        assert status == 0
        assert (
            sum(each["vms"] for each in json.loads(out)["policies"][0]["after"]["hosts"]) == number
        )
    status, _, err = run(tmp_path, "simulate", "--hosts", str(vms))
    assert (status, "vms.xml:1: has no <hosts>" in err) == (66, True)
    vms.write_text("<vms/>")
    assert run(tmp_path, *call, "--vms", str(vms))[0] == 0
    status, _, err = run(tmp_path, "simulate", "--hosts", str(hosts), "--vms", str(hosts))
    assert (status, "hosts.xml:1: has no <vms>" in err) == (66, True)
    hosts.write_text("<hosts/>")
    status, _, err = run(tmp_path, "simulate", "--hosts", str(hosts))
    assert (status, "there is no host in the cluster" in err) == (66, True)
    status, _, err = run(tmp_path, "simulate")
    assert (status, "name a snapshot's file, or give one of" in err) == (2, True)


def test_a_simulation_without_a_balancing_is_refused(tmp_path, cluster):
    """Nothing would be placed, either."""
    status, _, err = run(tmp_path, "simulate", cluster, "--balancings", "0")
    assert (status, "--balancings: at least 1" in err) == (2, True)


def test_a_recording_stands_for_a_snapshot(tmp_path, start_daemon):
    """The cluster of the newest load balancing that a daemon was asked for."""
    status, _, err = run(tmp_path, "simulate", "--recorded")
    assert (status, "no call of loadBalance is recorded" in err) == (1, True)
    daemon = start_daemon({}, "ssl = false\nrecord = true\n", folder=tmp_path)
    for number in (2, 5):
        taken = filled(lynx=[(4, 1)] * number, puma=[])
        documents = [taken.document(each).data.decode() for each in ("hosts", "vms")]
        daemon.design.loadBalance("default", *documents, {})
    daemon.stop()
    status, out, err = run(tmp_path, "simulate", "--recorded", "-o", "json")
    assert (status, err) == (0, "")
    assert [each["vms"] for each in json.loads(out)["policies"][0]["after"]["hosts"]] == [5, 0]


def test_a_section_of_the_settings_is_the_policy(tmp_path, cluster):
    """That of the snapshot's cluster, or the one that is named; --set changes it."""
    conf = tmp_path / "scheduler.conf"
    conf.write_text(
        "[clusters]\n[[Default]]\npolicy = power_saving\n[[Night]]\nfilters = MaxVms\n"
        "properties = maximum_vm_count=20\n"
    )
    wrong = ("--section", "Night", "--set", "hold=1", "--plugins", "demo")
    status, _, err = run(tmp_path, "simulate", cluster, "--config", str(conf), *wrong)
    assert status == 78
    assert f"{conf} with --set: [clusters] [[Night]] filters: there is no filter 'MaxVms'" in err
    for more, hosts_without, words in (
        ((), "1", "as in [clusters]; policy power_saving"),
        (("--set", "policy=none"), "0", "policy = none"),
        (("--set", "policy="), "0", "policy =; policy none, which balances nothing"),
        (("--set", "scheduler=default"), "1", "scheduler = default; policy power_saving"),
        (("--set", "balance=VmBalance"), "0", "balance = VmBalance"),
        (
            ("--set", "properties=high_utilization=79"), "1",  # the policy stays
            "properties = high_utilization=79; policy power_saving",
        ),
        (("--section", "night"), "0", "as in [clusters]; policy none, which balances nothing"),
    ):  # fmt: skip
        status, out, _ = run(
            tmp_path, "simulate", cluster, "--config", str(conf), "--plugins", "plugins", *more
        )
        assert status == 0
        line = next(each for each in out.splitlines() if each.startswith("hosts up without VMs"))
        assert line.split()[-1] == hosts_without
        assert out.splitlines()[0] == f"section: {words}"
    status, _, err = run(tmp_path, "simulate", cluster, "--config", str(conf), "--section", "Nigth")
    assert status == 2
    assert "--section Nigth: there is no such section in [clusters]; did you mean Night?" in err


def test_a_key_without_a_value_has_its_default(tmp_path):
    """So a policy with filters and cost functions can be compared with the same one without."""
    file, conf = tmp_path / "cluster.xml", tmp_path / "scheduler.conf"
    filled(lynx=[(8, 0)] * 7, puma=[(1, 0)] * 12, ocelot=[(16, 0)]).write(file)
    conf.write_text(
        "[clusters]\n[[Default]]\npolicy = evenly_distribute\nfilters = MaxVms\n"
        "cost_functions = EvenVms\nproperties = maximum_vm_count=20\nhold = 0\nmargin = 0\n"
    )
    call = ("simulate", str(file), "--config", str(conf), "--plugins", "plugins", "-o", "json")
    for option, changes in (
        ("--set", ("filters=", "cost_functions=")), ("--against", ("cost_functions=", "policy=")),
    ):  # fmt: skip
        words = [word for change in changes for word in (option, change)]
        status, out, err = run(tmp_path, *call, *words)
        assert (status, err) == (0, "")
        *_, policy = json.loads(out)["policies"]
        used = (
            "; policy evenly_distribute" if option == "--set"
            else "; policy none, which balances nothing"
        )  # fmt: skip
        assert policy["policy"] == ", ".join(changes).replace("=", " =") + used
        targets = [move["target"] for move in policy["moves"]]
        assert targets[:1] == (["puma"] if option == "--set" else [])
    unchanged = json.loads(out)["policies"][0]["moves"]
    assert unchanged[0]["target"] == "ocelot"


@pytest.mark.long
def test_plugins_that_load_slowly_are_waited_for(tmp_path, cluster):
    """The policy may name what they define."""
    (tmp_path / "slow.py").write_text(
        "import time\ntime.sleep(1.5)\ndef do_filter(hosts, vm, properties):\n    return hosts\n"
    )
    status, _, err = run(
        tmp_path, "simulate", cluster, "--plugins", str(tmp_path), "--set", "filters=slow"
    )
    assert (status, err) == (0, "")


def test_a_second_policy_is_checked_before_the_first_is_played(tmp_path, cluster):
    """Which may take minutes."""
    asked = tmp_path / "asked"
    (tmp_path / "Marks.py").write_text(
        f"def do_filter(hosts, vm, properties):\n    open({str(asked)!r}, 'w')\n    return hosts\n"
    )
    (tmp_path / "one.conf").write_text("[vms]\n[[web]]\n")
    call = ("simulate", cluster, "--plugins", str(tmp_path), "--set", "filters=Marks")
    happens = ("--scenario", str(tmp_path / "one.conf"))
    status, _, err = run(tmp_path, *call, *happens, "--against", "policy=non")
    assert (status, "'non' is no policy" in err, asked.exists()) == (2, True, False)
    assert run(tmp_path, *call, *happens)[0] == 0
    assert asked.exists()


def test_a_page_that_cannot_be_made_is_told_before_anything_is_played(
    tmp_path, cluster, monkeypatch
):
    """Jinja2 need not be installed, and a long simulation would be lost."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr(Simulation, "run", lambda _: pytest.fail("it was played"))
    status, _, err = run(tmp_path, "simulate", cluster, "--html", str(tmp_path / "page.html"))
    assert (status, "--html needs Jinja2, which is not installed" in err) == (2, True)


def test_the_result_is_shown_even_if_its_page_cannot_be_written(tmp_path, cluster):
    """On a full disk: it may have taken an hour."""
    status, out, err = run(tmp_path, "simulate", cluster, "--html", "/dev/full", "-o", "json")
    assert (status, "/dev/full: cannot be written: No space left on device" in err) == (73, True)
    assert len(json.loads(out)["policies"]) == 1


def test_a_result_that_takes_the_place_of_another_is_not_written_into_it(tmp_path, cluster):
    """Who reads the former page goes on with it."""
    page, junit = tmp_path / "page.html", tmp_path / "cases.xml"
    for file in (page, junit):
        file.write_text("former")
    former = [file.open() for file in (page, junit)]
    words = ("--html", str(page), "--junit", str(junit))
    assert run(tmp_path, "simulate", cluster, *words)[0] == 0
    for file, reader in zip((page, junit), former):
        with reader:
            assert (reader.read(), file.read_text()[:1]) == ("former", "<")


@pytest.mark.parametrize(
    ("words", "status", "problem"),
    [
        (("--set", "polcy=none"), 2, "--set: [clusters] [[Default]] polcy: there is no such key; did you mean policy?"),
        (("--set", "policy=\udcff"), 2, "--set: is not UTF-8 text here"),
        (("--against", "policy=non"), 2, "ovirt-scheduler: --against: [clusters] [[Default]] policy: 'non' is no policy of default"),
        (("--plugins", "plugins:nowhere"), 66, "--plugins nowhere: there is no such folder"),
        (("--set", "polcy="), 2, "polcy: there is no such key; did you mean policy?"),
        (("--set", "none"), 2, "'none' is not of the form key=value"),
        (("--scenario", "/nowhere"), 66, "/nowhere: there is no such file"),
        (("--html", "/nowhere/x"), 73, "/nowhere/x: cannot be written: there is no folder /nowhere"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(tmp_path, cluster, words, status, problem):
    """With what is wrong, and where."""
    ended, out, err = run(tmp_path, "simulate", cluster, *words)
    assert (ended, out) == (status, "")
    assert problem in err


def test_a_mistake_of_the_settings_has_another_status_than_one_of_the_options(tmp_path, cluster):
    """78 for a key as scheduler.conf has it, 2 for one that an option sets."""
    conf = tmp_path / "scheduler.conf"
    conf.write_text("[clusters]\n[[Default]]\npolicy = non\n")
    call = ("simulate", cluster, "--config", str(conf))
    for options, expected in (
        ((), 78),
        (("--set", "margin=6"), 78),
        (("--set", "policy=non"), 2),
        (("--set", "policy=none", "--against", "filters=Gone"), 2),
        (("--set", "policy=none"), 0),
    ):
        status, _, err = run(tmp_path, *call, *options)
        assert (status, bool(err)) == (expected, bool(expected))
