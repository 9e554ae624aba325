"""try on a scheduler's or driver's file: what is called, by itself and by name."""

from __future__ import annotations

import re

import pytest

from ovirt_scheduler.command.calls import trial
from ovirt_scheduler.command.calls.input_files import NO_VM, CommandInputs
from ovirt_scheduler.errors import BadUsage, UnreadableDocument
from ovirt_scheduler.settings import scheduler_conf
from tests.support.trials import HOSTS, IDS, VM_ID, run

DRIVER = """\
from ovirt_scheduler.plugin import Driver


class Night(Driver):
    topic = "night"

    def when(self):
        return 1
"""
SCHEDULER = """\
from ovirt_scheduler.plugin import LoadBalancer, Scheduler


class First(Scheduler):
    policies = ("first", "last")

    def candidates(self, hosts, vm, properties):
        return hosts if properties["policy"] == "first" else hosts[::-1]

    def load_balance(self, hosts, vms, properties):
        return {vms[0]: hosts[1:2], vms[1]: []}

    def on_host_status_changed(self, host, old_status, new_status, hosts, vms, properties):
        print(host.name, old_status, new_status, host.status, properties["policy"])
        return {vm: [] for vm in vms}


class Only(LoadBalancer):
    topic = None

    def load_balance(self, hosts, vms, properties):
        return {}
"""
VMS = f"<vms><vm id='{VM_ID}'><name>web</name></vm><vm id='{NO_VM}'/></vms>"

pytestmark = pytest.mark.usefixtures("one_executor")


def test_schedulers_are_asked_for_a_host_and_for_migrations(tmp_path):
    """Each for what it defines; without VMs a note says what is not called."""
    path = tmp_path / "Whole.py"
    path.write_text(SCHEDULER)
    shown = run(path, (), properties={"policy": "last"})
    (selected,) = shown.fields
    assert (selected["scheduler"], selected["host"]) == ("First", IDS[-1])
    assert "note: scheduler First: give --vms to call load_balance" in shown.text
    assert "nothing that is called" not in shown.text
    settings = trial.settings_for(scheduler_conf.load(None, {}), path)
    shown = trial.run(settings, path, (), CommandInputs(HOSTS, vms=VMS))
    methods = [(each["scheduler"], each["method"]) for each in shown.fields]
    balanced = ("First", "load_balance")
    assert {("First", "select_host"), balanced, ("Only", "load_balance")} <= {*methods}
    assert shown.fields[methods.index(balanced)]["migrations"] == {VM_ID: IDS[1:2], NO_VM: []}
    assert re.search(rf"^web +{VM_ID} +puma +{IDS[1]}$", shown.text, re.MULTILINE)
    assert re.search(rf"{NO_VM} +any host", shown.text)
    assert "scheduler Only, load_balance: ok, " in shown.text
    assert shown.text.endswith("nothing to do\n")


def test_a_scheduler_that_only_balances_wants_vms(tmp_path):
    """Without them there is nothing to call."""
    path = tmp_path / "Whole.py"
    path.write_text(SCHEDULER.replace("class First(Scheduler)", "class _First(Scheduler)"))
    with pytest.raises(BadUsage, match="scheduler Only: give --vms to call load_balance"):
        run(path, ())


def test_a_method_can_be_called_by_name(tmp_path):
    """A hook, with the status in a document of either version; a driver's own method."""
    path = tmp_path / "Whole.py"
    path.write_text(SCHEDULER + DRIVER.replace("def when(self)", "def when(self, hour, day=1)"))
    changed = ("on_host_status_changed", "host=lynx", "new_status=maintenance")
    (told,) = call(path, *changed, call_inputs=CommandInputs(HOSTS, vms=VMS)).fields
    assert told["stdout"] == "lynx up maintenance maintenance first\n"
    assert told["migrations"] == {VM_ID: [], NO_VM: []}
    (told,) = call(
        path, *changed, "old_status=down", call_inputs=CommandInputs(HOSTS, vms=VMS)
    ).fields
    assert told["stdout"].startswith("lynx down maintenance")
    version_3 = (
        "<hosts><host id='a'><name>lynx</name><status><state>up</state></status></host></hosts>"
    )
    (told,) = call(path, *changed, call_inputs=CommandInputs(version_3, vms=VMS)).fields
    assert told["stdout"] == "lynx up maintenance maintenance first\n"
    (counted,) = call(path, "when", 'hour={"a": 1}', "day=x").fields
    assert (counted["driver"], counted["result"]) == ("Night", 1)
    assert call(path, "has_any_hosts").text.endswith("\nthere is a host\n")
    both = call(path, "load_balance", call_inputs=CommandInputs(HOSTS, vms=VMS)).fields
    assert [each["scheduler"] for each in both] == ["First", "Only"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("on_host_status_chnged", r"no such method; .*; did you mean on_host_status_changed\?"),
        ("on_host_status_changed", "give host=… too"),
        ("on_host_status_changed host=lynx", "give new_status=… too"),
        ("on_host_status_changed hots=lynx", r"hots is no argument of it; did you mean host\?"),
        ("on_host_status_changed host=linx new_status=up",
         r"no host 'linx' among the 4; did you mean lynx\?"),
        ("on_host_status_changed host=lynx new_status=mantenance",
         r"no host has the status 'mantenance'; did you mean maintenance\?"),
        ("load_balance vm=web", "vm is no argument of it; it takes none, and --property"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_call_is_told_with_what_was_meant(tmp_path, words, told):
    """The method, its arguments, the host, the status."""
    path = tmp_path / "Whole.py"
    path.write_text(SCHEDULER)
    with pytest.raises(BadUsage, match=told):
        call(path, *words.split(), call_inputs=CommandInputs(HOSTS, vms=VMS))


def test_a_host_that_is_there_twice_is_told(tmp_path):
    """As the daemon tells of it, and not when its status is changed."""
    path = tmp_path / "Whole.py"
    path.write_text(SCHEDULER)
    twice = "<hosts><host id='a'/><host id='a'/></hosts>"
    words = "on_host_status_changed host=a old_status=down new_status=up"
    with pytest.raises(UnreadableDocument, match="host number 2 has the id a of another one"):
        call(path, *words.split(), call_inputs=CommandInputs(twice, vms=VMS))


def test_what_a_call_lacks_is_told(tmp_path):
    """VMs, hosts, or any call at all."""
    path = tmp_path / "Whole.py"
    path.write_text(SCHEDULER)
    with pytest.raises(BadUsage, match="load_balance is about VMs: give --vms FILE, or --cluster"):
        call(path, "load_balance")
    with pytest.raises(BadUsage, match="is about hosts: give --hosts FILE, or --cluster FILE"):
        call(path, "candidates", call_inputs=CommandInputs(()))
    note = "scheduler First: --call on_host_status_changed host=NAME new_status=STATUS calls this"
    assert note in run(path, ()).text
    path.write_text(DRIVER)
    with pytest.raises(BadUsage, match=r"driver Night: --call when calls when\(\)"):
        run(path, ())


def call(path, *called, call_inputs=None):
    settings = trial.settings_for(scheduler_conf.load(None, {}), path)
    return trial.run(settings, path, (), call_inputs or CommandInputs(HOSTS), called)
