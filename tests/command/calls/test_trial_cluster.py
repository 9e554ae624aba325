"""A plugin tried on the cluster of a snapshot, with a fake engine; and tried again at each edit."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

import ovirt_scheduler.plugin.schedulers
from tests.support.command import program, run, spawned
from tests.support.paths import PROJECT
from tests.support.waiting import LONG

pytestmark = pytest.mark.usefixtures("one_executor")

CLUSTER = "demo/cluster.xml"
SHIPPED = Path(ovirt_scheduler.plugin.schedulers.__file__).with_name("default.py")

EACH = {  # what is told of serval, the fullest, and of the VM that is moved from there
    "EvenVms": r"serval .* 12$",
    "HostMemoryBalance": r"^ntp .* serval +puma ",
    "KsmScore": r"serval .* 0$",
    "MaxVms": r"serval .* rejected ",
    "Memory": r"serval .* rejected$",
    "VmBalance": r"^ntp .* serval +ocelot ",
}


def test_each_sample_is_told_of():
    """A new one is to be tried here, too."""
    assert {path.stem for path in (PROJECT / "plugins").glob("[!_]*.py")} == {*EACH}


@pytest.mark.parametrize(
    "name",
    [
        each if each in ("KsmScore", "Memory") else pytest.param(each, marks=pytest.mark.long)
        for each in EACH
    ],
)
def test_each_sample_runs_on_a_snapshot(tmp_path, name):
    """Without an engine, with the statistics, tags and VMs of the file."""
    status, out, err = run(tmp_path, "try", f"plugins/{name}.py", "--cluster", CLUSTER)
    assert (status, err) == (0, "")
    assert found(EACH[name], out)
    assert "not called" not in out


def test_the_default_scheduler_runs_on_a_snapshot(tmp_path):
    """It selects a host, balances, and empties one that goes into maintenance."""
    options = ("--cluster", CLUSTER, "--property", "policy=evenly_distribute")
    status, out, _ = run(tmp_path, "try", str(SHIPPED), *options, "-o", "json")
    selected, balanced, _ = json.loads(out)
    assert (status, selected["method"], bool(selected["host"])) == (0, "select_host", True)
    assert balanced["migrations"]
    changed = ("on_host_status_changed", "host=ocelot", "new_status=maintenance")
    status, out, _ = run(tmp_path, "try", str(SHIPPED), *options, "--call", *changed)
    assert status == 0
    assert found(r"^test +\S+ +\w+", out)


def test_a_vm_that_the_snapshot_does_not_have_is_one_of_which_nothing_is_known(tmp_path):
    """As for the daemon, if the engine does not have it."""
    (tmp_path / "ids").write_text("00000000-0000-4000-8000-00000000abcd")
    options = ("--cluster", CLUSTER, "--vm", str(tmp_path / "ids"))
    status, _, err = run(tmp_path, "try", str(SHIPPED), *options)
    assert (status, err) == (0, "")


ACTS = """
from ovirt_scheduler.plugin import engine_connection


def do_filter(hosts, vm, properties):
    system = engine_connection().system_service()
    (web,) = system.vms_service().list(search="name=web-1")
    system.vms_service().vm_service(web.id).migrate(host=hosts[1])
    try:
        system.disks_service().list()
    except Exception:
        pass
    print(vm.name, [tag.name for tag in system.tags_service().list()])
    print(system.clusters_service().list()[0].name)
    return hosts
"""


def test_without_a_cluster_it_is_told_what_one_would_be_for(tmp_path):
    """A plugin that asks the engine, and a VM by its name."""
    words = ("try", str(tmp_path / "Acts.py"), "--hosts", "demo/hosts.xml")
    (tmp_path / "Acts.py").write_text(ACTS)
    out = run(tmp_path, *words)[1]
    assert out.startswith("note: it asks the engine, and there is no [engine] in the settings: --c")
    assert "it asks the engine" not in run(tmp_path, *words[:2], "--cluster", CLUSTER)[1]
    told = "--vm wiki: there is no such file; it is the name of a VM only with --cluster"
    status, _, err = run(tmp_path, *words, "--vm", "wiki")
    assert (status, told in err) == (66, True)


def test_what_a_plugin_has_the_engine_do_is_told(tmp_path):
    """Migrations, and what the fake engine does not know, even where the plugin goes on."""
    (tmp_path / "Acts.py").write_text(ACTS)
    status, out, _ = run(tmp_path, "try", str(tmp_path / "Acts.py"), "--cluster", CLUSTER)
    assert status == 0
    assert "note: the VM to start: wiki\n" in out
    assert "note: it asked the engine to migrate web-1 to puma\n" in out
    assert found(r"^note: the fake engine has hosts, .* no disks \(GET /.*/disks\)$", out)
    assert "wiki ['rack-1', 'licence-oracle', 'rack-2', 'dedicated-test']\nDefault\n" in out
    options = ("--cluster", CLUSTER, "--vm", "mail")
    assert "\nmail [" in run(tmp_path, "try", str(tmp_path / "Acts.py"), *options)[1]


OLD = """
from ovirtsdk.api import API


class fewest_vms:
    '''Of the old proxy's time, which names its engine.'''

    def do_score(self, hosts_ids, vm_id, args_map):
        connection = API(url="https://engine.example.com", username="a", password="b")
        hosts = connection.hosts.list(query=" or ".join("id=%s" % each for each in hosts_ids))
        print([(host.id, len(connection.vms.list("host=" + host.name))) for host in hosts])
"""


def test_a_plugin_for_version_3_of_the_sdk_runs_on_a_snapshot(tmp_path):
    """Whichever engine it names: nobody leaves the machine."""
    (tmp_path / "old.py").write_text(OLD)
    status, out, _ = run(tmp_path, "try", str(tmp_path / "old.py"), "--cluster", CLUSTER)
    assert status == 0, out
    assert found(r"^serval +\S+ +12$", out)


def test_the_trial_that_new_tells_of_works(tmp_path):
    """Of a driver, whose method wants arguments."""
    _, out, _ = run(tmp_path, "new", "Backups", "--driver", folder=tmp_path)
    command = re.search(r"or ovirt-scheduler (try .*);$", out, re.MULTILINE)
    status, out, err = run(tmp_path, *shlex.split(command[1]), folder=tmp_path)
    assert (status, err) == (0, "")
    assert out.endswith('{\n  "web": 100\n}\n')


@pytest.mark.parametrize(
    ("options", "status", "told"),
    [
        ("--vm mial", 2, "there is no VM 'mial' among the 23; did you mean mail?"),
        ("--vm nobody", 2, "there is no VM 'nobody' among the 23; there are "),
        ("--hosts demo/hosts.xml", 2, "leave out --hosts and --vms"),
        ("--cluster demo/hosts.xml", 66, "<cluster_snapshot>"),
        ("--watch --cluster -", 2, "name a file instead of -"),
        ("--kind filter --call x", 2, "not allowed with argument"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, options, status, told):
    """With what to do."""
    command = ("try", "plugins/MaxVms.py", "--cluster", CLUSTER, *options.split())
    ended, _, err = run(tmp_path, *command)
    assert (ended, told in err) == (status, True), err


@pytest.mark.long
def test_a_plugin_is_tried_again_at_each_edit(tmp_path):
    """Of the plugin, its helper, its conf file or a document; a mistake is told and waited out."""
    plugin, hosts = tmp_path / "Mine.py", tmp_path / "hosts"
    replace(plugin, "from _help import told\n\n\ndef do_filter(hosts, vm, properties):\n"
            "    print(told, properties, len(hosts))\n    return hosts\n")  # fmt: skip
    replace(tmp_path / "_help.py", "told = 'one'\n")
    replace(hosts, "a b")
    words = ("try", plugin, "--hosts", hosts, "--watch")
    with program(tmp_path / "state", *words, stdout=subprocess.PIPE) as watching:
        try:
            until(watching, "one {} 2\n")
            replace(tmp_path / "_help.py", "told = 'two'\n")
            replace(hosts, "a b c")
            until(watching, "two {} 3\n")
            replace(plugin, "x = (\n")
            until(watching, f"ovirt-scheduler: {plugin}:1: syntax error")
            replace(tmp_path / "Mine.conf", 'customProperties = "a={1-2}"\ndefaultValues = "2"\n')
            replace(plugin, "def do_score(hosts, vm, properties):\n    print(properties)\n")
            until(watching, "{'a': '2'}\n")
            watching.send_signal(signal.SIGINT)
            watching.communicate(timeout=LONG)
        finally:
            watching.kill()
    assert watching.returncode == 130


def test_a_disk_that_is_full_ends_the_watch(tmp_path):
    """Nobody would see what it shows."""
    plugin, hosts = tmp_path / "Mine.py", tmp_path / "hosts"
    plugin.write_text("def do_filter(hosts, vm, properties):\n    return hosts\n")
    hosts.write_text("a b")
    with Path("/dev/full").open("w") as full:
        ended = spawned(tmp_path, "try", plugin, "--hosts", hosts, "--watch", stdout=full)
    told = "ovirt-scheduler: could not write the output: No space left on device\n"
    assert ended == (1, None, told)


def until(watching, line):
    """Wait for a line, and until the plugin waits for an edit."""
    seen = []
    for wanted in (line, ": waiting for an edit; Ctrl-C ends\n"):
        for each in watching.stdout:
            seen.append(each)
            if wanted in each:
                break
        else:
            raise AssertionError("".join(seen))


def replace(path, text):
    """As editors do it."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def found(pattern, text):
    return re.search(pattern, text, re.MULTILINE)
