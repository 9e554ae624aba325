"""Plugins that read what an engine sends as a link, and never ask it, are told of it."""

from __future__ import annotations

import ast

import pytest

from ovirt_scheduler.processes.loading import entity_links
from tests.support.command import run
from tests.support.paths import PROJECT

pytestmark = pytest.mark.usefixtures("one_executor")

TAGGED = """\
def do_filter(hosts, vm, properties):
    return [h for h in hosts if any(t.name == "licence-oracle" for t in h.tags or [])]
"""
PASSED_ON = """\
class Old:
    def do_score(self, hosts, vm, properties):
        for number, host in enumerate(hosts):
            yield host, nodes(host)


def nodes(one):
    return len(one.numa_nodes)
"""
OF_VM = """\
def do_filter(hosts, vm, properties):
    return hosts[: len(vm.nics)]
"""
ASKS = "from ovirt_scheduler.plugin import engine_connection\n"
OF_NICS = "engine_connection().follow_link(vm.nics)"
OF_HOSTS = 'engine_connection().system_service().hosts_service().list(follow="'


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (TAGGED, f"2: h.tags is empty: the engine sends a link alone; ask it, with {OF_HOSTS}tags"),
        (PASSED_ON, "8: one.numa_nodes is empty: "),
        (OF_VM, "2: vm.nics is empty: the engine sends a link alone; ask it, with " + OF_NICS),
        (ASKS + TAGGED, ""),
        (TAGGED.replace("h.tags or", "known.tags or"), ""),
        (TAGGED.replace("h.tags or", "engine.hosts_service().list()[0].tags or h.tags or"), ""),
        (TAGGED.replace("in hosts", "in mine(hosts)"), ""),
        (TAGGED.replace("h.tags", "h.custom"), ""),
        ("def do_filter(hosts, vm, properties):\n    vm.nics = []\n", ""),
    ],
)  # fmt: skip
def test_check_and_try_note_a_link_that_is_read_and_never_asked_for(tmp_path, text, note):
    """Once, with the query to send; nothing is noted of what is not a host's or VM's."""
    (tmp_path / "A.py").write_text(text)
    for words in (
        ("check", "--plugins", str(tmp_path)),
        ("try", str(tmp_path / "A.py"), "--cluster", str(PROJECT / "demo" / "cluster.xml")),
    ):
        _, out, _ = run(tmp_path, *words)
        assert out.count("a link alone") == bool(note), out
        assert not note or f"A.py:{note}" in out


def test_a_file_that_names_no_link_is_not_searched(monkeypatch):
    """The analysis of a long one has only so many seconds."""
    tree = ast.parse(TAGGED)
    with monkeypatch.context() as patched:
        patched.setattr(ast, "walk", lambda _: 1 // 0)
        assert [*entity_links.read_unasked(tree, {"hosts", "name"})] == []
    (remark,) = entity_links.read_unasked(tree, {"hosts", "name", "tags"})
    assert remark[0] == 2
