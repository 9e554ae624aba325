"""The calls of a running daemon, and of none, as a terminal shows them."""

from __future__ import annotations

import dataclasses
import json
import re
from xml.etree import ElementTree

import pytest

from ovirt_scheduler.command import tables
from ovirt_scheduler.command.calls import commands, daemon_client
from ovirt_scheduler.command.calls.daemon_client import Daemon
from ovirt_scheduler.command.calls.input_files import CommandInputs
from ovirt_scheduler.errors import BadUsage, NoAnswer, UnreadableDocument
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.store import FILE
from ovirt_scheduler.settings import scheduler_conf
from tests.support.command import run
from tests.support.paths import PROJECT

HOSTS = (PROJECT / "demo" / "hosts.xml").read_text("utf-8")
IDS = [host.get("id") for host in ElementTree.fromstring(HOSTS)]
VM_ID = "8a6e5b90-3f27-4d1c-8e44-91b7c05d2b01"

PLUGIN = f'''\
def do_filter(hosts, vm, properties):
    """Keep the first."""
    return hosts[:1]


def do_score(hosts, vm, properties):
    return {{host.id: -position for position, host in enumerate(hosts)}}


def do_balance(hosts, properties):
    return ("{VM_ID}", hosts[2:]) if properties else None
'''
TOPIC = """\
import datetime

from ovirt_scheduler.plugin import Driver


class Night(Driver):
    topic = "night"

    def when(self, hours=1):
        "When it begins."
        return {"at": datetime.datetime(2026, 1, 31, 22), "token": b"\\0", "hours": [hours]}

    def never(self):
        return None

    def is_none(self, value):
        return value is None

    def falls(self):
        print("at night")
        return 1 / 0
"""
FALLS = """\
def do_filter(hosts, vm, properties):
    print("before the fall")
    return 1 / 0


do_score = do_filter
"""


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "First.py").write_text(PLUGIN)
    (folder / "Falls.py").write_text(FALLS)
    (folder / "Empty.py").write_text("def do_filter(hosts, vm, properties):\n    return []\n")
    (folder / "night.py").write_text(TOPIC)
    (folder / "Looks.py").write_text(PLUGIN)
    (folder / "Looks.conf").write_text("shadow = true\n")
    return folder


@pytest.fixture(scope="module")
def daemon(start_daemon, plugins):
    return start_daemon(plugins)


@pytest.fixture(scope="module")
def plain(start_daemon, plugins):
    """One without TLS, which tells the sums of costs."""
    return start_daemon(plugins, "ssl = false\nengine_scores = summed")


@pytest.fixture(scope="module", params=["summed", "per_unit", "local"])
def call(request, daemon, plain, plugins):
    """Calls to a daemon, with either form of its answers, and the same without it."""
    if request.param != "local":
        asked = daemon if request.param == "per_unit" else plain
        certificate = None if asked is plain else asked.certificate
        yield Daemon(asked.url, certificate, RecordReader(asked.state / FILE))
    else:
        settings = scheduler_conf.load(None, {})
        settings = dataclasses.replace(
            settings,
            plugins_path=(plugins,),
            plugins_path_optional=frozenset(),
            conf_beside=True,
        )
        with daemon_client.local(settings) as here:
            yield here


def test_discover_lists_the_units(call):
    """A line for each, or all that is known of it."""
    shown = commands.discover(call)
    units = {(unit["name"], unit["kind"]): unit for unit in shown.fields}
    assert set(units) == {
        ("Falls", "filter"), ("Falls", "cost function"),
        ("First", "filter"), ("First", "cost function"), ("First", "balance"),
        ("Empty", "filter"),
    }  # fmt: skip
    assert units["First", "filter"]["description"] == "Keep the first."
    assert units["First", "filter"]["checksum"].startswith("sha256:")
    assert shown.text.splitlines()[0].split() == ["UNIT", "KIND", "PROPERTIES", "DESCRIPTION"]


def test_folders_of_plugins_are_for_a_call_without_the_daemon(tmp_path):
    """It has its own, and would answer from them."""
    status, out, err = run(tmp_path, "discover", "--plugins", str(tmp_path))
    assert (status, out) == (2, "")
    assert "--plugins needs --local: the daemon has folders of its own" in err


def test_filters_tell_who_is_out(call):
    """Not only who is in."""
    shown = commands.run_filters(call, ["First"], CommandInputs(HOSTS))
    assert shown.well
    assert (
        shown.fields.items() >= {"accepted": IDS[:1], "rejected": IDS[1:], "problems": []}.items()
    )
    assert shown.names == ["lynx"]
    assert f"lynx    {IDS[0]}  accepted\n" in shown.text
    assert f"puma    {IDS[1]}  rejected\n" in shown.text


def test_costs_are_multiplied_and_summed(call):
    """Whichever of the two the daemon is set to answer; the best host stands first."""
    shown = commands.run_cost_functions(call, {"First": 3}, CommandInputs(HOSTS))
    assert shown.fields["costs"] == {host: -3 * position for position, host in enumerate(IDS)}
    assert shown.text.splitlines()[1].endswith(f"{IDS[-1]}  -9")


def test_each_host_is_told_with_what_decided_it(call):
    """Which of several units removed it, what its costs are made of; the whole record for JSON."""
    shown = commands.run_filters(call, ["Falls", "First"], CommandInputs(HOSTS))
    assert shown.text.splitlines()[:3] == [
        f"HOST    ID{' ' * 36}VERDICT   WHY",
        f"lynx    {IDS[0]}  accepted",
        f"puma    {IDS[1]}  rejected  First",
    ]
    kept = shown.fields["decision"]
    assert kept["method"] == "runFilters"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", kept["time"])
    assert [host["verdicts"][1]["verdict"] for host in kept["hosts"]] == ["passed"] + 3 * [
        "removed"
    ]
    shown = commands.run_cost_functions(call, {"Falls": 2, "First": 3}, CommandInputs(HOSTS))
    assert shown.text.splitlines()[1].endswith(f"  {IDS[3]}  -9    First 3 × (-3)")


def test_who_removed_all_hosts_is_told(call, plugins):
    """By a selection that finds none."""
    properties = {"filters": "First;Empty"}
    shown = commands.select_host(call, "default", CommandInputs(HOSTS, VM_ID, properties))
    first, _, *lines = shown.text.splitlines()
    assert first == "no host: none left, 3 removed by First, 1 by Empty"
    assert [line.split()[-1] for line in lines] == ["Empty", "First", "First", "First"]


def test_a_balance_tells_what_to_move(call):
    """Or that there is nothing to do."""
    shown = commands.run_balance(call, "First", CommandInputs(HOSTS, properties={"move": "1"}))
    assert shown.fields["migration"] == {"vm": VM_ID, "hosts": IDS[2:]}
    assert commands.run_balance(call, "First", CommandInputs(HOSTS)).text == "nothing to do\n"


@pytest.mark.parametrize(
    ("unit", "told"),
    [
        ("Falls", "Falls: ZeroDivisionError: division by zero (Falls.py:3)"),
        ("Nobody", "there is no filter named 'Nobody'"),
        ("Frist", "there is no filter named 'Frist'; did you mean First?"),
    ],
)
def test_a_unit_that_fails_is_told(call, unit, told):
    """The answer stands without it, and all is not well."""
    shown = commands.run_filters(call, ["First", unit], CommandInputs(HOSTS))
    assert not shown.well
    assert shown.fields["accepted"] == IDS[:1]
    assert f"problem: {told}" in shown.text


@pytest.mark.parametrize("units", [["Nobody"], ["Nobody", "Falls"], ["Night"]])
def test_no_verdicts_are_shown_where_no_filter_gave_one(call, units):
    """As it is missing, fails, or is none."""
    shown = commands.run_filters(call, units, CommandInputs(HOSTS))
    assert shown.text.startswith("no filter has judged the hosts: the answer accepts them all\n")
    assert "VERDICT" not in shown.text
    assert shown.fields["accepted"] == IDS


def test_a_unit_in_shadow_is_told_of(call):
    """It counts for nothing, and explains nothing."""
    note = "note: Looks is in shadow and does not count; why shows what it said\n"
    alone = commands.run_cost_functions(call, {"First": 1}, CommandInputs(HOSTS)).text
    beside = commands.run_cost_functions(call, {"First": 1, "Looks": 2}, CommandInputs(HOSTS)).text
    assert beside == f"{alone}{note}"
    assert "WHY" not in alone
    shown = commands.run_filters(call, ["Looks"], CommandInputs(HOSTS))
    assert shown.text == (f"no filter has judged the hosts: the answer accepts them all\n{note}")
    assert shown.well


def test_nothing_is_said_of_an_answer_that_a_failure_emptied(call):
    """No hosts have costs, but that is not what there is to tell."""
    shown = commands.run_cost_functions(call, {"Falls": 1}, CommandInputs(HOSTS))
    assert shown.text.startswith("problem: Falls: ZeroDivisionError")
    assert "no hosts" not in shown.text
    shown = commands.run_filters(call, ["First"], CommandInputs(()))
    assert shown.text == "no hosts\n"


def test_what_plugins_print_right_here_is_shown_with_their_tracebacks(call, request):
    """A daemon's answer tells nothing of it."""
    here = "local" in request.node.callspec.id
    scored = commands.run_cost_functions(call, {"Falls": 1}, CommandInputs(HOSTS))
    selected = commands.select_host(
        call, "default", CommandInputs(HOSTS, VM_ID, {"filters": "Falls"})
    )
    for shown in (scored, selected):
        assert ("Falls: stdout:\nbefore the fall\n" in shown.text) is here
        assert ("Falls: traceback:\nTraceback" in shown.text) is here
    shown = commands.schedule(call, "night", "falls", {})
    assert shown.text.startswith("problem: Night: ZeroDivisionError")
    assert ("Night: stdout:\nat night\n" in shown.text) is here
    called = shown.fields.get("calls")
    assert (called is not None and called[0]["stdout"] == "at night\n") is here


def test_a_document_that_is_none_is_refused(call):
    """As the caller's mistake."""
    with pytest.raises(UnreadableDocument, match="hosts, line 1"):
        commands.run_filters(call, ["First"], CommandInputs("<hosts"))


def test_a_certificate_that_is_not_trusted_is_told(daemon):
    """With what to do."""
    with pytest.raises(NoAnswer, match="--ca"):
        commands.discover(Daemon(daemon.url, None))


def test_a_certificate_that_was_renewed_is_told(tmp_path, daemon):
    """The daemon has the former one until its next reload; the settings name the new one."""
    conf = tmp_path / "scheduler.conf"
    conf.write_text(f"listening_port = {daemon.url.rpartition(':')[2]}\n")
    assert run(tmp_path, "cert", "make", "--config", str(conf))[0] == 0
    status, out, err = run(tmp_path, "discover", "--config", str(conf))
    assert (status, out) == (69, "")
    assert "; if it was renewed, systemctl reload ovirt-scheduler has the daemon use" in err
    assert run(tmp_path, "discover", "--config", str(conf), "--ca", str(daemon.certificate))[0] == 0


@pytest.mark.parametrize("kept", [True, False])
def test_a_daemon_is_asked_for_reasons_where_its_history_cannot_be_read(
    tmp_path, start_daemon, plugins, kept
):
    """Once if it keeps none: nobody waits for a record that never comes."""
    settings = f"ssl = false\npages = loopback\nhistory = {kept}\n"
    daemon = start_daemon(plugins, settings)
    (tmp_path / "s.conf").write_text(f"{settings}listening_port = {daemon.url.rpartition(':')[2]}")
    asked = ("filter", "Empty", "First", "--hosts", "demo/hosts.xml", "-o", "table")
    places = (("--url", daemon.url), ("--config", str(tmp_path / "s.conf")))
    for where in places:
        status, out, _ = run(tmp_path, *asked, *where)
        assert status == 0
        assert ("WHY" in out.splitlines()[0]) is kept
    assert daemon.stop() == 0  # its log has each question
    assert kept or len(re.findall(r" decision, design form", daemon.log)) == len(places)


def test_nothing_is_sent_as_nil(plain):
    """JSON has a null."""
    call = Daemon(plain.url, None)
    shown = commands.schedule(call, "night", "is_none", {"value": None})
    assert shown.fields["result"] is True


def test_an_integer_that_cannot_be_sent_is_wrong_usage(plain):
    """XML-RPC has 32 bits for one."""
    with pytest.raises(BadUsage, match="32 bits"):
        commands.run_cost_functions(
            Daemon(plain.url, None), {"First": 1 << 40}, CommandInputs(HOSTS)
        )


def test_the_wrong_scheme_is_told(daemon, plain):
    """Which of the two it may be."""
    wrong = (
        (daemon.url.replace("https:", "http:"), "this port speaks TLS; use https"),
        (plain.url.replace("http:", "https:"), "--url http://"),
    )
    for url, told in wrong:
        with pytest.raises(NoAnswer, match=told):
            commands.discover(Daemon(url, None))


@pytest.mark.parametrize("name", ["\udcff", "\0"])
def test_what_xml_does_not_have_is_not_sent(plain, name):
    """As a word of the command line that is not UTF-8; the daemon could only tell a line of XML."""
    with pytest.raises(BadUsage, match=r"runFilters: cannot be sent with .*, which XML does not"):
        commands.run_filters(Daemon(plain.url, None), [name], CommandInputs(HOSTS))


def test_schedulers_are_listed(call):
    """With what each takes; a driver that is none is not among them."""
    shown = commands.schedulers(call)
    assert [each["name"] for each in shown.fields] == ["default"]
    headings, row = shown.text.splitlines()
    assert headings.split()[:3] == ["SCHEDULER", "TOPIC", "INTERFACES"]
    assert row.split()[:3] == ["default", "compute", "HostSelector,"]
    assert "; policy=none|" in row


def test_topics_are_listed_with_their_methods(call):
    """A line for each method."""
    shown = commands.topics(call)
    assert [each["topic"] for each in shown.fields] == ["compute", "night"]
    lines = [line.split() for line in shown.text.splitlines()]
    assert ["night", "Night", "when(hours=1)", "When", "it", "begins."] in lines


def test_a_scheduler_is_asked_for_a_host(call):
    """By name and id; none is said, and so is what failed."""
    shown = commands.select_host(call, "default", CommandInputs(HOSTS, VM_ID, {"filters": "First"}))
    assert (shown.fields["host"], shown.names, shown.problems) == (IDS[0], ["lynx"], [])
    assert [line.split()[1:] for line in shown.text.splitlines()[1:]] == [
        [IDS[0], "selected"], *([each, "not", "selected", "First"] for each in IDS[1:])
    ]  # fmt: skip
    shown = commands.select_host(call, "default", CommandInputs((), VM_ID, {}))
    assert (shown.text, shown.fields["host"], shown.well) == ("no host\n", None, True)
    shown = commands.select_host(call, "defualt", CommandInputs(HOSTS, VM_ID, {}))
    assert shown.text == (
        "problem: there is no scheduler named 'defualt'; there are default; did you mean default?\n"
    )
    assert not shown.well


def test_a_method_of_a_topic_is_called(call):
    """What it gives back is shown as JSON: dates as text, bytes in base64."""
    shown = commands.schedule(call, "night", "when", {"hours": 3})
    told = {"at": "2026-01-31T22:00:00", "token": "AA==", "hours": [3]}
    assert json.loads(shown.text) == told
    assert json.loads(tables.document(shown.fields))["result"] == told
    shown = commands.schedule(call, "night", "never", {})
    assert shown.fields["problems"] == [
        'Night: never returned None, which has no form in XML-RPC; return "" for nothing'
    ]
    problem = commands.schedule(call, "night", "nosuch", {}).fields["problems"][0]
    assert problem.startswith("the topic night has no method 'nosuch'; Night publishes falls, ")
    chosen = CommandInputs(HOSTS, VM_ID, {"policy": "odd"})
    problem = commands.select_host(call, "default", chosen).fields["problems"][0]
    assert problem.startswith("scheduler default: property policy: 'odd' is not allowed")
