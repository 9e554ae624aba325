"""The commands maintenance and capacity."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from ovirt_scheduler.clusters.migration_limits import Migrated
from ovirt_scheduler.clusters.persistence import FILE, DriveMemory
from ovirt_scheduler.engine import inventory
from ovirt_scheduler.settings import scheduler_conf
from ovirt_scheduler.workbench import host_loss
from tests.support.command import program, run
from tests.support.paths import PROJECT
from tests.support.rest_affinity import Group
from tests.support.rest_server import Host, RestServer, Vm, id_of
from tests.support.snapshots import filled, host, snapshot, vm
from tests.support.waiting import LONG

pytestmark = pytest.mark.usefixtures("one_executor")

PAGE = (PROJECT / "docs" / "questions.md").read_text("utf-8")
SHOWN = re.findall(r"^    \$ ovirt-scheduler (.*)\n((?:    .*\n|\n(?=    ))*)", PAGE, re.MULTILINE)
BROKEN = "def do_filter(hosts, vm, properties):\n    raise ValueError('oh')\n"


@pytest.mark.parametrize(("words", "text"), SHOWN, ids=[words for words, _ in SHOWN])
def test_the_manual_shows_what_the_commands_say(tmp_path, words, text):
    """But for the age of the saved cluster."""
    _, out, err = run(tmp_path, *words.split())
    out = re.sub(r", \d+ days ago", ", 2 days ago", out)
    assert (out, err) == (re.sub("^    ", "", text, flags=re.MULTILINE), "")


def test_the_manual_shows_each_question():
    assert {words.split()[0] for words, _ in SHOWN} == {"maintenance", "capacity"}
    assert any("--all" in words for words, _ in SHOWN)


@pytest.fixture
def ask(tmp_path):
    """The status and the JSON of a command on a cluster that was saved."""

    def of(saved, *words, plugins=(), section=""):
        file, conf, folder = (tmp_path / name for name in ("cluster.xml", "s.conf", "plugins"))
        saved.write(file)
        folder.mkdir(exist_ok=True)
        for name, text in plugins:
            (folder / f"{name}.py").write_text(text)
        conf.write_text(f"plugins_path = {folder}\n[clusters]\n[[Default]]\n{section}")
        more = ("--cluster", str(file), "--config", str(conf), "-o", "json")
        status, out, err = run(tmp_path, *words, *more)
        assert err == ""
        return status, json.loads(out)

    return of


def test_a_host_that_is_down_already_needs_nothing(ask):
    saved = snapshot([host("lynx", status="maintenance"), host("puma")])
    status, said = ask(saved, "maintenance", "lynx")
    assert (status, said["ready"], said["vms"]) == (0, True, [])


def test_a_host_that_failed_with_vms_cannot_be_emptied(ask):
    saved = snapshot([host("lynx", status="non_responsive"), host("puma")], [vm("web", "lynx")])
    status, said = ask(saved, "maintenance", "lynx")
    assert (status, said["vms"][0]["obstacle"]) == (1, "waits for you")


def test_the_only_host_of_a_cluster_cannot_be_emptied_nor_lost(ask):
    saved = filled(lynx=[(4, 1)])
    status, said = ask(saved, "maintenance", "lynx")
    assert (status, said["vms"][0]["obstacle"], said["afterwards"]) == (1, "blocks", None)
    assert said["vms"][0]["why"] == "there is no other host"
    status, said = ask(saved, "maintenance", "--all", "Default")
    assert (status, [*said["blocked"]]) == (1, ["lynx"])
    status, said = ask(saved, "capacity")
    assert (status, said["worst"]) == (1, "lynx")
    assert [vm["why"] for vm in said["losses"][1]["homeless"]] == ["there is no other host"]


@pytest.mark.parametrize("words", [("capacity",), ("maintenance", "--all", "Default")])
@pytest.mark.parametrize("status", ["maintenance", "non_responsive"])
def test_a_cluster_without_a_host_that_is_up_is_not_well(tmp_path, status, words):
    file = tmp_path / "cluster.xml"
    snapshot([host("lynx", status=status)]).write(file)
    code, out, err = run(tmp_path, *words, "--cluster", str(file))
    assert (code, out.splitlines()[-1], err) == (1, "no host is up: no VM has a place", "")


def test_no_more_vms_fit_where_no_host_is_up_and_no_loss_is_named(tmp_path):
    file = tmp_path / "cluster.xml"
    snapshot([host("lynx", status="maintenance")]).write(file)
    _, out, _ = run(tmp_path, "capacity", "--vm", "1GiB", "--cluster", str(file))
    assert out.endswith("\n0 more such VMs fit\n")


def test_a_full_cluster_names_a_host_whose_loss_leaves_as_little(tmp_path):
    file = tmp_path / "cluster.xml"
    snapshot([host("lynx")]).write(file)
    _, out, _ = run(tmp_path, "capacity", "--vm", "9000GiB", "--cluster", str(file))
    assert out.endswith("\n0 more such VMs fit, and 0 after the loss of lynx\n")


def test_an_only_host_that_can_be_emptied_leaves_none_and_the_answer_says_so(tmp_path):
    file = tmp_path / "cluster.xml"
    snapshot([host("lynx")]).write(file)
    code, out, _ = run(tmp_path, "maintenance", "lynx", "--cluster", str(file))
    assert (code, out.splitlines()[-2:]) == (
        0, ["lynx can be emptied: 0 VMs", "no other host is up"],
    )  # fmt: skip


def test_a_vm_without_figures_has_a_place_anywhere(ask):
    web = re.sub("<(memory|cpu|statistics)>.*</\\1>", "", vm("web", "lynx"))
    saved = snapshot([host("lynx"), host("puma")], [web])
    status, said = ask(saved, "maintenance", "lynx")
    assert (status, said["vms"][0]["target"], said["vms"][0]["memory"]) == (0, "puma", 0)


def test_an_answer_counts_without_a_filter_that_fails_and_says_so(ask):
    saved = filled(lynx=[(4, 1)], puma=[])
    status, said = ask(
        saved, "maintenance", "lynx", plugins=[("Broken", BROKEN)], section="filters = Broken\n"
    )
    assert (status, said["vms"][0]["target"]) == (0, "puma")
    assert any("Broken" in problem and "oh" in problem for problem in said["problems"])


def test_what_waits_for_somebody_is_told_and_is_an_obstacle(ask):
    saved = snapshot(
        [host("lynx"), host("puma")],
        [vm("db", "lynx", affinity="pinned"), vm("web", "lynx", affinity="user_migratable")],
    )
    status, said = ask(saved, "maintenance", "lynx")
    assert status == 1
    assert {each["vm"]: (each["obstacle"], each["why"], each["remedy"]) for each in said["vms"]} == {
        "db": ("waits for you", "it may not be migrated", "shut it down"),
        "web": (
            "waits for you", "it may be migrated by hand only", "migrate it by hand, or shut it down",
        ),
    }  # fmt: skip
    assert said["policy"].endswith(
        ": as the section Default would place the VMs; the engine's own choice may differ"
    )
    status, said = ask(saved, "maintenance", "--all", "Default")
    assert (status, {*said["order"]}) == (1, {"puma", "lynx"})
    assert {*said["waiting"]} == {"db", "web"}


def test_a_vm_that_is_pinned_to_its_host_has_no_place_after_its_loss(ask):
    pins = f'<hosts><host id="{id_of("lynx")}"/></hosts></placement_policy>'
    pinned = vm("db", "lynx", available=True).replace("</placement_policy>", pins)
    saved = snapshot([host("lynx"), host("puma")], [pinned, vm("web", "lynx")])
    status, said = ask(saved, "capacity")
    (lost,) = [loss["homeless"] for loss in said["losses"] if loss["host"] == "lynx"]
    assert (status, [each["vm"] for each in lost], lost[0]["highly_available"]) == (1, ["db"], True)
    assert "1 host is not among those that it is pinned to" in lost[0]["why"]


def test_hosts_and_vms_that_are_not_there_are_told_with_the_nearest_name(tmp_path):
    cluster = ("--cluster", "demo/cluster.xml")
    for words, text in (
        (("maintenance", "lnyx"), "there is no host lnyx in Default; did you mean lynx?"),
        (("maintenance", "--all", "Defalt"), "the cluster Default; did you mean Default?"),
        (("capacity", "--like", "web1"), "there is no such VM; did you mean web-1?"),
        *(
            (("capacity", "--vm", kind), f"--vm {kind}: write memory and processors, such as")
            for kind in ("much", "", ",4", "0,1", "1,1", "8GiB,0", "8GiB,-1", f"8GiB,{10**20}")
        ),
        (("capacity", "--vm", "1GiB", "--like", "web-1"), "give one of --vm and --like"),
        (("maintenance",), "name a host, or a cluster with --all"),
    ):
        status, out, err = run(tmp_path, *words, *cluster)
        assert (status, out) == (2, "")
        assert text in err
    status, _, err = run(tmp_path, "capacity")
    assert (status, "name a cluster, or a --cluster FILE" in err) == (2, True)


def test_without_a_kind_of_vm_there_is_no_column_of_how_many_more_fit(tmp_path):
    """Nor does a row say how many hosts filters left, where the section has none."""
    cluster = ("--cluster", "demo/cluster.xml")
    _, out, _ = run(tmp_path, "capacity", *cluster)
    assert "LOST    WITHOUT A PLACE  HIGHLY AVAILABLE  VMS\n" in out
    _, out, _ = run(tmp_path, "maintenance", "lynx", *cluster)
    assert "hosts: " not in out.replace("the hosts: ", "")


def test_of_a_tiny_vm_it_is_told_how_far_is_counted(tmp_path):
    words = ("capacity", "Default", "--cluster", "demo/cluster.xml", "--vm", "1MiB,1")
    _, out, _ = run(tmp_path, *words)
    assert out.endswith("at most 1000 on a host are counted\n")


def test_that_many_fit_on_all_hosts_together_is_no_bound_of_one(ask, monkeypatch):
    monkeypatch.setattr(host_loss, "_MOST_MORE", 10)
    _, said = ask(filled(lynx=[], puma=[]), "capacity", "--vm", "8GiB,1")
    assert (said["losses"][0]["more"], said["counted_at_most"]) == (16, None)
    _, said = ask(filled(lynx=[], puma=[]), "capacity", "--vm", "4GiB,1")
    assert (said["losses"][0]["more"], said["counted_at_most"]) == (20, 10)


def test_how_many_more_fit_is_counted_by_the_filters_too(ask):
    """Worked out by hand: 64 GiB less what is there, and at most five VMs on a host."""
    few = "def do_filter(hosts, vm, p):\n    return [h for h in hosts if h.summary.total < 5]\n"
    saved = filled(lynx=[(4, 1)] * 2, puma=[(40, 1)], serval=[])
    status, said = ask(saved, "capacity", "--vm", "8GiB,2", plugins=[("Few", few)])
    more = {loss["host"]: loss["more"] for loss in said["losses"]}
    assert more[""] == 7 + 3 + 8
    status, said = ask(
        saved, "capacity", "--vm", "8GiB,2", plugins=[("Few", few)], section="filters = Few\n"
    )
    more = {loss["host"]: loss["more"] for loss in said["losses"]}
    assert (status, more[""]) == (0, 3 + 3 + 5)
    assert more["serval"] == 3 + 3
    status, said = ask(saved, "capacity", "--like", "lynx-1", section="filters = Few\n")
    assert said["losses"][0]["more"] == 3 + 4 + 5


def test_minutes_are_those_of_the_migrations_that_were_followed(tmp_path, ask):
    """The median of the seconds a GiB: 10, 20 and 40."""
    state = tmp_path / "state"
    state.mkdir()
    memory = DriveMemory(state / FILE)
    now = time.monotonic()
    for number, seconds in ((1, 40), (2, 80), (3, 160)):
        moved = Migrated(id_of(f"lynx-{number}"), id_of("puma"), now - 200, True)
        moved.target, moved.ended = id_of("lynx"), now - 200 + seconds
        memory.cluster("Default").migrated.append(moved)
    memory.save("Default")
    _, said = ask(filled(lynx=[(4, 1)] * 3, puma=[]), "maintenance", "lynx")
    assert said["seconds_a_gib"] == pytest.approx(20, abs=0.5)
    _, out, _ = run(
        tmp_path, "maintenance", "lynx", "--cluster", str(tmp_path / "cluster.xml"),
    )  # fmt: skip
    assert "lynx can be emptied: 3 VMs, 4 min one after another" in out


def shown_on(terminal: int, until: bytes, before: bytes = b"") -> bytes:
    """What a program has written to a terminal, when that is among it, and not before."""
    shown = before
    while until not in shown:
        shown += os.read(terminal, 1000)
    return shown


@contextlib.contextmanager
def on_terminal(tmp_path, *words):
    """The program with a terminal for its standard error, and that terminal."""
    terminal, theirs = os.openpty()
    try:
        with program(tmp_path / "state", *words, stdout=subprocess.PIPE, stderr=theirs) as running:
            os.close(theirs)
            yield running, terminal
    finally:
        os.close(terminal)


def test_a_terminal_shows_the_progress_and_nothing_of_it_at_the_end(tmp_path):
    """Of the questions that are asked of the policy, and by the name of the host that is lost."""
    words = ("capacity", "Default", "--cluster", "demo/cluster.xml")
    with on_terminal(tmp_path, *words) as (running, terminal):
        shown = shown_on(terminal, b"the loss of lynx: mail, placement ")
        shown = shown_on(terminal, b"the loss of ocelot: test, placement ", shown)
        out, _ = running.communicate(timeout=LONG)
        shown += os.read(terminal, 100_000)
    assert shown.endswith(b"\r\x1b[K")
    assert "placement" not in out


class TestAnEngineThatIsSilent:
    """A socket that listens, and whose connections nobody accepts."""

    @pytest.fixture
    def conf(self, tmp_path):
        password = tmp_path / "password"
        password.touch(0o600)
        password.write_text("secret\n")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            conf = tmp_path / "scheduler.conf"
            conf.write_text(
                f"[engine]\nurl = http://localhost:{port}/ovirt-engine/api\nusername = a@internal\n"
                f"password_file = {password}\n"
            )
            yield str(conf)

    @pytest.mark.parametrize(
        "words", [("maintenance", "lynx"), ("maintenance", "--all", "East"), ("capacity", "East")]
    )
    def test_the_answer_is_that_it_gave_none(self, tmp_path, conf, words, monkeypatch):
        monkeypatch.setattr(inventory, "PAGE_SECONDS", 0.2)
        status, out, err = run(tmp_path, *words, "--config", conf)
        assert (status, out) == (1, "")
        assert re.fullmatch(r"ovirt-scheduler: http://localhost\S+ Operation timed out .*\n", err)

    def test_a_terminal_shows_what_it_is_asked_and_ctrl_c_ends_the_waiting(self, tmp_path, conf):
        with on_terminal(tmp_path, "maintenance", "lynx", "--config", conf) as (running, terminal):
            shown_on(terminal, b"/ovirt-engine/api for hosts")
            running.send_signal(signal.SIGINT)
            assert running.wait(LONG) == 130
            assert os.read(terminal, 1000).startswith(b"\r\x1b[K")


class TestFromTheEngine:
    """Of the settings, which is asked one request a VM, and for nothing that changes it."""

    @pytest.fixture
    def engine(self, tmp_path):
        hosts = [Host("lynx"), Host("puma"), Host("serval")]
        vms = [Vm("web", host="lynx"), Vm("db", host="lynx"), Vm("mail", host="puma")]
        with RestServer(tmp_path, hosts, vms) as engine:
            (tmp_path / "scheduler.conf").write_text(engine.conf())
            yield engine

    @pytest.fixture
    def answer(self, tmp_path):
        def of(*words):
            conf = str(tmp_path / "scheduler.conf")
            status, out, err = run(tmp_path, *words, "--config", conf, "-o", "json")
            return status, json.loads(out) if out else err

        return of

    def test_a_vm_goes_where_the_engine_would_migrate_it(self, engine, answer):
        engine.refusing = lambda vm, host: "no" * ((vm.name, host.name) == ("web", "puma"))
        status, said = answer("maintenance", "lynx")
        assert (status, said["engine_filters"], said["silent"]) == (0, True, 0)
        hosts = {each["vm"]: {*each["hosts"]} for each in said["vms"]}
        assert hosts == {"web": {"serval"}, "db": {"puma", "serval"}}
        targets = [query.target_of for query in engine.queries if query.target_of]
        assert sorted(targets) == sorted(map(id_of, ("web", "db")))
        assert engine.requested == []

    def test_a_vm_that_the_engine_offers_no_host_blocks(self, engine, answer):
        engine.refusing = lambda vm, _: "no" * (vm.name == "web")
        status, said = answer("maintenance", "lynx")
        (web,) = [each for each in said["vms"] if each["vm"] == "web"]
        assert (status, web["obstacle"], web["hosts"]) == (1, "blocks", [])
        assert "2 hosts refused by the engine's filters" in web["why"]

    def test_an_engine_that_may_not_be_asked_is_told(self, engine, answer):
        engine.denying = {"migration_target_of"}
        status, said = answer("maintenance", "lynx")
        assert (status, said["silent"]) == (0, 2)

    def test_a_rule_of_vms_is_broken_where_the_engine_ignores_it(self, engine, answer):
        """Its filters refuse the hosts, and it empties the host all the same."""
        engine.groups.append(Group("apart", ["web", "mail"], apart=True))
        engine.hosts.pop()
        status, said = answer("maintenance", "lynx")
        (web,) = [each for each in said["vms"] if each["vm"] == "web"]
        assert (status, web["obstacle"], web["target"]) == (0, "breaks apart", "puma")

    @pytest.mark.usefixtures("engine")
    def test_a_host_that_the_engine_does_not_know_has_a_nearest_name(self, answer):
        status, said = answer("maintenance", "lnyx")
        assert (status, "the engine knows no host lnyx; did you mean lynx?" in said) == (2, True)

    def test_a_slow_engine_is_waited_for(self, tmp_path, engine):
        engine.answering.clear()
        words = ("maintenance", "lynx", "--config", tmp_path / "scheduler.conf", "-o", "json")
        with on_terminal(tmp_path, *words) as (running, terminal):
            shown = shown_on(terminal, b" for hosts")
            engine.answering.set()
            shown = shown_on(terminal, b"emptying lynx: ", shown)
            out, _ = running.communicate(timeout=LONG)
        assert (running.returncode, json.loads(out)["ready"]) == (0, True)
        assert b"hosts\r\x1b[K3 hosts" in shown

    def test_an_order_and_the_capacity_come_without_the_engines_filters(self, engine, answer):
        status, said = answer("maintenance", "--all", "Default")
        assert (status, said["engine_filters"], len(said["order"])) == (0, False, 3)
        status, said = answer("capacity", "Default")
        assert (status, said["worst"], said["engine_filters"]) == (0, "", False)
        assert not any(query.target_of for query in engine.queries)


@pytest.mark.parametrize("words", [("capacity", "Default"), ("maintenance", "lynx")])
def test_settings_that_are_not_there_are_named(tmp_path, monkeypatch, words):
    conf = tmp_path / "none.conf"
    monkeypatch.setattr(scheduler_conf, "DEFAULT_FILE", conf)
    status, _, err = run(tmp_path, *words)
    assert status == 78
    assert f"{conf} is not there: no [engine]; --config FILE names other settings" in err
    assert "name a --cluster FILE" in err
