"""One plugin's file, run without a daemon."""

from __future__ import annotations

import dataclasses

import pytest

from ovirt_scheduler.command.calls import trial
from ovirt_scheduler.command.calls.input_files import CommandInputs
from ovirt_scheduler.errors import BadInput, BadUsage, PluginError, UnreadableDocument
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.settings import scheduler_conf
from tests.support.paths import PLUGINS
from tests.support.trials import EVERY, HOSTS, IDS, VM_ID, run

PLUGIN = '''\
def do_filter(hosts, vm, properties):
    """Keep the first."""
    print("seen", len(hosts))
    return hosts[: int(properties["first"])]


def do_score(hosts, vm, properties):
    return {host.id: -position for position, host in enumerate(hosts)}


def do_balance(hosts, properties):
    return properties.get("vm") and (properties["vm"], hosts[1:])
'''
CONF = 'customProperties = "first={1-9}"\ndefaultValues = "1"\n'

pytestmark = pytest.mark.usefixtures("one_executor")


@pytest.fixture
def plugin(tmp_path):
    (tmp_path / "First.py").write_text(PLUGIN)
    (tmp_path / "First.conf").write_text(CONF)
    return tmp_path / "First.py"


def test_every_kind_that_the_file_has_is_run(plugin):
    """Accepted and rejected hosts, costs, nothing to do, what was printed."""
    shown = run(plugin)
    filtered, scored, balanced = shown.fields
    assert shown.well
    assert (filtered["accepted"], filtered["rejected"]) == (IDS[:1], IDS[1:])
    assert (filtered["outcome"], filtered["stdout"]) == ("ok", "seen 4\n")
    assert scored["costs"] == {host: -position for position, host in enumerate(IDS)}
    assert balanced["migration"] is None
    text = shown.text
    assert text.startswith("filter First: ok, ")
    assert f"lynx    {IDS[0]}  accepted\n" in text
    assert f"puma    {IDS[1]}  rejected\n" in text
    assert "\nFirst: stdout:\nseen 4\n" in text
    assert "\ncost function First: ok, " in text
    assert text.endswith("nothing to do\n")


def test_one_kind_can_be_chosen_and_properties_given(plugin):
    """The conf file beside the plugin says what is allowed."""
    (filtered,) = run(plugin, (Kind.FILTER,), properties={"first": "2"}).fields
    assert filtered["accepted"] == IDS[:2]
    shown = run(plugin, (Kind.FILTER,), properties={"first": "none"})
    assert not shown.well
    assert shown.fields[0]["outcome"] == "refused"
    assert "problem: filter First: property first: 'none' is not allowed" in shown.text


@pytest.mark.parametrize(("cost", "is_told"), [(3, True), (0, False), (-3, False)])
def test_hosts_that_a_cost_function_leaves_out_and_so_favours_are_named(tmp_path, cost, is_told):
    """They cost 0, which is more than a cost below 0."""
    path = tmp_path / "First.py"
    path.write_text(f"def do_score(hosts, vm, properties):\n    yield hosts[0], {cost}\n")
    told = "note: First leaves puma, serval and ocelot out, which counts as a cost of 0, and so favours"
    assert (told in run(path).text) is is_told


def test_a_migration_is_shown_with_its_hosts(plugin):
    """By name and id; an id that the engine would not take is a problem."""
    shown = run(plugin, (Kind.BALANCE,), properties={"vm": VM_ID})
    assert shown.fields[0]["migration"] == {"vm": VM_ID, "hosts": IDS[1:]}
    assert f"{VM_ID}             puma     {IDS[1]}\n" in shown.text
    shown = run(plugin, (Kind.BALANCE,), properties={"vm": "vm-1"})
    assert "problem: First: answered with 'vm-1', which is not the id of a VM\n" in shown.text


def test_a_failure_comes_with_its_traceback(tmp_path):
    """The plugin's own lines, none of ours; the answer is the one that the engine would get."""
    path = tmp_path / "Falls.py"
    path.write_text("def do_filter(hosts, vm, properties):\n    return 1 / 0\n")
    shown = run(path)
    assert not shown.well
    (fields,) = shown.fields
    assert fields["outcome"] == "raised"
    assert fields["accepted"] == IDS
    assert "no filter has judged the hosts: the answer accepts them all\n" in shown.text
    assert "VERDICT" not in shown.text
    assert "problem: Falls: ZeroDivisionError: division by zero (Falls.py:2)\n" in shown.text
    assert f'File "{path}", line 2, in do_filter\n    return 1 / 0\n' in shown.text
    assert "ovirt_scheduler/call.py" not in shown.text


def test_a_plugin_in_shadow_is_told_of(tmp_path):
    """Whoever tries it may have forgotten the line in its conf file."""
    path = tmp_path / "Looks.py"
    path.write_text("def do_filter(hosts, vm, properties):\n    return hosts\n")
    assert "shadow" not in run(path).text
    path.with_suffix(".conf").write_text("shadow = true\n")
    assert "note: its conf file says shadow = true: the daemon records" in run(path).text


def test_a_property_that_was_not_given_is_named(tmp_path):
    """Without a conf file, too."""
    path = tmp_path / "Needs.py"
    path.write_text("def do_filter(hosts, vm, properties):\n    return properties['least']\n")
    (fields,) = run(path).fields
    assert "KeyError: 'property least was not given, and has no default; " in fields["message"]


def test_limits_hold_as_in_the_daemon():
    """A plugin that never returns is killed by its timeout."""
    path = PLUGINS / "sleeps_forever.py"
    settings = trial.settings_for(scheduler_conf.load(None, {}), path)
    settings = dataclasses.replace(settings, plugin_timeout=0.5)
    shown = trial.run(
        settings, path, (Kind.FILTER,), CommandInputs(HOSTS, properties={"marker": "1000000"})
    )
    assert shown.fields[0]["outcome"] == "timed out"


LEAVES = """\
import os
import threading


def do_filter(hosts, vm, properties):
    what = properties.get("leaves")
    if what == "thread":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    elif what == "file":
        os.open("/dev/null", os.O_RDONLY)
    elif what == "signal":
        __import__("signal").signal(10, lambda *_: None)
    elif what == "module":
        import builtins
        builtins.len = lambda _: 0
    return hosts


def do_balance(hosts, properties):
    return None
"""


@pytest.mark.parametrize(
    ("leaves", "why"),
    [
        ("thread", "a call left something behind: threads"),
        ("file", "a call left something behind: descriptors"),
        ("signal", "a call changed its process: signals"),
        ("module", "a call changed its process: builtins.len"),
        ("", ""),
    ],
)
def test_what_costs_a_plugin_its_process_is_told(tmp_path, leaves, why):
    """At the call that left it, and at no other."""
    path = tmp_path / "Leaves.py"
    path.write_text(LEAVES)
    shown = run(path, (Kind.FILTER, Kind.BALANCE), properties={"leaves": leaves})
    assert shown.well
    of_filter, of_balance = (fields["notes"] for fields in shown.fields)
    assert len(of_filter) == bool(why)
    for note in of_filter:
        assert f"process cannot be kept: {why}" in note
    assert of_balance == []
    assert shown.text.count("note: after this call") == len(of_filter)


def test_ids_do_without_a_document(plugin):
    """The entities hold nothing but their id then."""
    (filtered,) = run(plugin, (Kind.FILTER,), hosts=("a", "b")).fields
    assert (filtered["accepted"], filtered["rejected"]) == (["a"], ["b"])


def test_no_hosts_call_nothing(plugin):
    """That is told, and is no failure."""
    shown = run(plugin, (Kind.FILTER,), hosts="<hosts/>")
    assert shown.well
    assert shown.text == "filter First: not called\nno hosts\n"


def test_mistakes_are_named(plugin, tmp_path):
    """No file, no such unit, a file that does not load, hosts that are none."""
    with pytest.raises(BadInput, match="no such file"):
        run(tmp_path / "Nobody.py")
    (tmp_path / "Only.py").write_text("def do_filter(hosts, vm, properties):\n    return hosts\n")
    with pytest.raises(BadUsage, match="has no balance; it has filter Only"):
        run(tmp_path / "Only.py", (Kind.BALANCE,))
    (tmp_path / "Bad.py").write_text("x = (\n")
    with pytest.raises(PluginError, match=r"Bad\.py:1: syntax error"):
        run(tmp_path / "Bad.py")
    with pytest.raises(UnreadableDocument):
        run(plugin, hosts="<hosts")


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("first.py", "there is no such file; did you mean .*/First.py"),
        ("Frist", "there is no such file; did you mean .*/First.py"),
        ("First.conf", r"is no plugin's file: those are named NAME\.py"),
        (".", "is a folder"),
    ],
)
def test_a_name_that_is_no_plugins_is_told_with_the_one_that_was_meant(plugin, named, told):
    """Capitals, the ending, the folder."""
    with pytest.raises(BadInput, match=told):
        run(plugin.parent / named)


@pytest.mark.parametrize(
    ("source", "conf", "told"),
    [
        (
            "def do_fliter(hosts, vm, properties):\n    return hosts\n",
            "",
            "1: do_fliter is never called; did you mean do_filter",
        ),
        (PLUGIN, "enabled = false\n", "its conf file says enabled = false"),
    ],
)
def test_a_file_without_a_unit_is_told_why(tmp_path, source, conf, told):
    """A misspelt function, one that is switched off."""
    (tmp_path / "Odd.py").write_text(source)
    (tmp_path / "Odd.conf").write_text(conf)
    with pytest.raises(PluginError, match=rf"Odd\.py:.*{told}"):
        run(tmp_path / "Odd.py")


def test_a_property_that_no_unit_has_is_told_with_the_one_that_was_meant(plugin):
    """The units get it all the same, as an engine's policy may have it for others."""
    shown = run(plugin, (Kind.FILTER,), properties={"frist": "2"})
    told = "property frist: nothing that is called knows it; did you mean first?"
    assert shown.text.startswith(f"note: {told}\nfilter First: ok")
    assert shown.fields[0]["notes"] == [told]


def test_a_problem_with_a_host_has_its_name_beside_its_id(tmp_path):
    path = tmp_path / "Odd.py"
    path.write_text("def do_score(hosts, vm, properties):\n    return {hosts[1].id: 'x'}\n")
    told = f"bad cost for host puma ({IDS[1]}): 'x' is not a finite number"
    assert told in run(path, (Kind.COST_FUNCTION,)).text


def test_a_misspelt_function_beside_a_good_one_is_told(tmp_path):
    """It would be silently without effect."""
    path = tmp_path / "Half.py"
    path.write_text(f"{PLUGIN}\n\ndef do_scor(hosts, vm, properties):\n    pass\n")
    told = f"note: {path}:15: do_scor is never called; did you mean do_score?\n"
    assert run(path, (Kind.COST_FUNCTION,)).text.startswith(told)


def test_the_conf_file_that_counts_is_the_one_that_serve_reads(tmp_path):
    """The one beside the plugin counts with --plugins, and in no folder of the settings."""
    path, conf = tmp_path / "Own.py", tmp_path / "scheduler.conf"
    path.write_text(
        "def do_filter(hosts, vm, properties):\n    return hosts[: int(properties['n'])]\n"
    )
    path.with_suffix(".conf").write_text("customProperties = n=[0-9]\ndefaultValues = 1\n")
    (tmp_path / "confs").mkdir()
    (tmp_path / "confs" / "Own.conf").write_text("customProperties = n=[0-9]\ndefaultValues = 2\n")
    told = f"note: {path.with_suffix('.conf')}: is not read: move it to {tmp_path}/confs"
    for folder, number, is_told in ((tmp_path, 2, True), (tmp_path / "other", 1, False)):
        conf.write_text(f"plugins_path = {folder}\nplugins_conf_path = {tmp_path}/confs\n")
        settings = trial.settings_for(scheduler_conf.load(conf, {}), path)
        shown = trial.run(settings, path, EVERY, CommandInputs(HOSTS))
        assert (len(shown.fields[0]["accepted"]), told in shown.text) == (number, is_told)


def test_reasons_of_costs_and_of_a_balance_are_shown_and_the_host_that_a_vm_leaves(tmp_path):
    path = tmp_path / "Says.py"
    path.write_text(
        "from ovirt_scheduler.plugin import reason\n"
        "def do_score(hosts, vm, properties):\n"
        "    reason(hosts[0], 'is old')\n"
        "    return [(host, 3) for host in hosts]\n"
        "def do_balance(hosts, properties):\n"
        "    reason(hosts[0], 'is full')\n"
        f"    return {VM_ID!r}, hosts[1:2]\n"
    )
    vms = f"<vms><vm id='{VM_ID}'><name>web</name><host id='{IDS[0]}'/></vm></vms>"
    settings = trial.settings_for(scheduler_conf.load(None, {}), path)
    text = trial.run(settings, path, EVERY, CommandInputs(HOSTS, vms=vms)).text
    assert f"lynx    {IDS[0]}  3     Says 1 × 3 (is old)\n" in text
    assert f"puma    {IDS[1]}  3     Says 1 × 3\n" in text
    assert f"web  {VM_ID}  lynx       puma     {IDS[1]}\n" in text
    assert f"lynx  {IDS[0]}  Says: is full\n" in text.replace("lynx    ", "lynx  ")
