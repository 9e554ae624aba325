"""Cost functions that leave hosts out are told of: that favours the hosts."""

from __future__ import annotations

import ast

import pytest

from ovirt_scheduler.processes.loading import scores
from tests.support.command import run

pytestmark = pytest.mark.usefixtures("one_executor")

SOME = """\
def do_score(hosts, vm, properties):
    return {host.id: host.memory for host in hosts if host.memory}
"""
LOOP = """\
class Old:
    def do_score(self, hosts_ids, vm_id, args_map):
        costs = []
        for host in hosts_ids:
            if not known(host):
                continue
            costs.append((host, 1))
        print(costs)
"""
MOST = """\
def do_score(hosts, vm, properties):
    most = max([host.memory for host in hosts if host.memory])
    return {host.id: most for host in hosts}
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (SOME, [2]),
        (SOME.replace("return {", "return dict({").replace("memory}", "memory})"), [2]),
        (LOOP, [4]),
        (LOOP.replace("print(costs)", "print([(h, 1) for h in hosts_ids if known(h)])"), [4, 8]),
        (SOME.replace(" if host.memory", ""), []),
        (SOME.replace("do_score", "do_filter"), []),
        (SOME.replace("    return", "    reason(hosts[0], 'is new')\n    return"), []),
        (LOOP.replace("continue", "plugin.reason(host, 'is new')\n                continue"), []),
        (LOOP.replace("for host in hosts_ids", "for host in answers"), []),
        (MOST, []),
    ],
)  # fmt: skip
def test_an_answer_for_some_of_the_hosts_is_found_unless_it_gives_reasons(text, lines):
    found = [*scores.hosts_left_out(ast.parse(text))]
    assert [line for line, _ in found] == lines


def test_check_warns_of_a_function_that_leaves_hosts_out(tmp_path):
    """That is no mistake by itself."""
    (tmp_path / "Some.py").write_text(SOME)
    status, out, _ = run(tmp_path, "check", "--plugins", str(tmp_path))
    assert status == 0
    assert f"warning: {tmp_path}/Some.py:2: do_score leaves hosts out here: they cost 0" in out
