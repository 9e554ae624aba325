"""What check tells of Python 2 and of unknown names, and of what cannot have been meant."""

from __future__ import annotations

import json
import os

import pytest

from ovirt_scheduler.command import check as command_check
from tests.support.command import run

pytest.importorskip("pyflakes", reason="without pyflakes check does not look at names")

from ovirt_scheduler.processes.loading import lint

pytestmark = pytest.mark.usefixtures("one_executor")


def check(folder, *options):
    """Status and output of the command, on a folder of plugins."""
    conf = folder.parent / "scheduler.conf"
    conf.write_text(f"plugins_path = {folder}\n")
    status, out, _ = run(folder.parent, "check", "--config", str(conf), *options)
    return status, out


@pytest.fixture
def plugins(tmp_path):
    folder = tmp_path / "plugins"
    folder.mkdir()
    return folder


OLD = """\
import urllib2, dummy_threading.more
import helper
class Old:
    def do_filter(self, hosts, vm, args):
        try:
            print 'so many', hosts
            count = 0777
        except Exception, e:
            print >>sys.stderr, e
        if isinstance(vm, basestring) or long(count) > 3L:
            print (vm, hosts)
            print [host for host in hosts]
        return [h for h in API(url='u').list() if h.status == 'up']
"""


BALANCE = "class Old:\n    def do_balance(self, hosts, args):\n        vm = hosts[0]\n        {}\n"


@pytest.mark.parametrize(
    "answer", ["print(vm, hosts)", "if vm:\n            print(vm, hosts)\n        return"]
)
def test_a_balance_that_can_only_answer_with_two_printed_values_is_told(answer):
    """As the published vm_balance does, which says it is Python 3."""
    remarks = lint.remarks(BALANCE.format(answer).encode(), "/nowhere/a.py")
    (message,) = [message for _, message in remarks]
    assert message.startswith("print(a, b) prints 'a b', which is no answer; write print((a, b))")


def test_check_tells_all_of_a_file_at_once_with_lines(plugins):
    """Also where one of its lines cannot be parsed, so that it does not load."""
    (plugins / "old.py").write_text(OLD)
    (plugins / "helper.py").write_text("x = 1\n")
    status, told = check(plugins)
    assert status == 1
    assert "all is well" not in told
    for line, words in (
        (1, "urllib2 is a module of Python 2"),
        (1, "dummy_threading is a module that Python 3.9 has no more"),
        (6, "this line is Python 2"),
        (7, "this line is Python 2"),
        (8, "this line is Python 2"),
        (10, "this line is Python 2"),
        (9, "this line is Python 2"),
        (9, "nothing defines sys"),
        (11, "print (a, b) is Python 2"),
        (12, "this line is Python 2"),
        (13, "nothing defines API"),
    ):
        assert f"{plugins / 'old.py'}:{line}: {words}" in told
    assert "helper" not in told.replace(str(plugins / "helper.py"), "")
    assert "nothing defines e;" not in told


def test_all_is_told_of_a_file_that_mixes_tabs_and_spaces(plugins):
    """As Python 2 allows, with a tab for eight spaces."""
    text = (
        "class Old:\n    def do_filter(self, hosts, vm, args):\n\tprint hosts\n        print vm\n"
    )
    (plugins / "old.py").write_text(text)
    status, told = check(plugins)
    assert status == 1
    for line in (3, 4):
        assert f"{plugins / 'old.py'}:{line}: this line is Python 2" in told


def test_a_file_that_loads_is_not_well_with_names_that_nobody_defines(plugins):
    """They fail when they are called; in JSON too."""
    text = "def do_filter(hosts, vm, properties):\n    return [unicode(h.id) for h in nobody]\n"
    (plugins / "a.py").write_text(text)
    status, told = check(plugins)
    assert status == 1
    assert f"{plugins / 'a.py'}:2: nothing defines nobody; define or import it\n" in told
    assert f"{plugins / 'a.py'}:2: unicode is Python 2; port the file" in told
    assert "2 to mend" in told
    status, told = check(plugins, "-o", "json")
    found = json.loads(told)
    assert (status, found["ok"], found["faults"]) == (1, False, [])
    assert [remark["line"] for remark in found["remarks"]] == [2, 2]


def test_what_is_no_file_keeps_no_other_from_being_looked_at(plugins):
    """Whoever opens a pipe waits for its other end."""
    os.mkfifo(plugins / "pipe.py")
    (plugins / "a.py").write_text("def do_filter(hosts, vm, properties):\n    return nobody\n")
    _, told = check(plugins)
    assert f"{plugins / 'pipe.py'}: is not a plain file" in told
    assert "a.py:2: nothing defines nobody" in told


def test_a_look_that_takes_too_long_is_told_in_a_sentence(plugins, monkeypatch):
    """Without the command that was run for it."""
    monkeypatch.setattr(command_check, "_READ_SECONDS", 0.001)
    (plugins / "a.py").write_text("def do_filter(hosts, vm, properties):\n    return hosts\n")
    _, told = check(plugins)
    words = "the names in the plugins' files are not looked at: it was not done after 0.001 s\n"
    assert f"warning: {words}" in told


@pytest.mark.parametrize(
    "text",
    [
        "print(1, 2)\n",
        "print((1, 2))\n",
        "print ('one')\n",
        "import sys\nprint(1, file=sys.stderr)\n",
        "from os.path import *\njoin\n",
        "try:\n    unicode = unicode\nexcept NameError:\n    unicode = str\n",
        "class A:\n    status = 'up'\n    ok = status == 'up'\n",
        "def f(host, answer):\n    return host.status.value == 'up' or answer.status == 'ready'\n",
        BALANCE.format("print(vm, hosts)\n        return vm, hosts"),
        BALANCE.format("print(vm, hosts)\n        print((vm, hosts))"),
        BALANCE.format("print('so many', hosts)\n        return None"),
        BALANCE.format("print(vm, hosts, args)"),
        BALANCE.format("print(vm, hosts, sep='-')"),
        BALANCE.format("return vm, hosts").replace(
            "class Old", "def f(vm, hosts): print(vm, hosts)\nclass Old"
        ),
    ],
)
def test_what_is_meant_is_not_told(text):
    """Nor what may come from elsewhere."""
    assert lint.remarks(text.encode(), "/nowhere/a.py") == []


def test_a_status_compared_with_a_text_is_told_by_check(plugins):
    """It rejects every host, and says nothing."""
    (plugins / "a.py").write_text(
        "def do_filter(hosts, vm, properties):\n"
        "    hosts = [host for host in hosts if host.status == 'up']\n"
        "    hosts = [host for host in hosts if 'maintenance' != host.status]\n"
        "    hosts = [host for host in hosts if host.status in ('up', 'down')]\n"
        "    return [host for host in hosts if host.status not in ['up']]\n"
    )
    status, told = check(plugins)
    assert status == 1
    for line in (2, 3, 4, 5):
        place = f"{plugins / 'a.py'}:{line}"
        assert f"{place}: host.status is an enumeration, and never equal to a text" in told


def test_a_status_compared_with_a_text_is_once_in_the_log(place, caplog):
    """When the plugin is loaded, and not at each look."""
    path = place.write(
        "a",
        "def do_filter(hosts, vm, properties):\n    return [h for h in hosts if h.status == 'up']\n",
    )
    for _ in range(3):
        place.registry.refresh()
    (noted,) = [each for each in caplog.records if "h.status is an enumeration" in each.message]
    assert noted.levelname == "WARNING"
    assert noted.message.startswith(f"a plugin should be looked at: {path}:2: h.status")
