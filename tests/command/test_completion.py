"""What a shell completes, asked by a real one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.command import executed
from tests.support.paths import PROJECT

pytest.importorskip("argcomplete", reason="there is no argcomplete here")

# As readline does it: the function that complete registered, with the words and the line.
ASK = """\
source "$1"
function=$(complete -p ovirt-scheduler | sed 's/.*-F \\([^ ]*\\).*/\\1/')
read -ra COMP_WORDS <<< "$2"
[[ $2 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )) COMP_LINE=$2 COMP_POINT=${#2} COMP_TYPE=9
$function ovirt-scheduler "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
echo "${COMPREPLY[@]}"
"""

PLUGINS = {
    "Plain": "def do_filter(hosts, vm, properties): ...\ndef do_score(hosts, vm, properties): ...\n",
    "Costs": "def do_score(hosts, vm, properties): ...\n",
    "old": "class OfClass:\n    def do_filter(self, hosts_ids, vm_id, args_map): ...\n",
    "broken": "def do_score(:\n",
    "deep": f"a = {'not ' * 50_000}1\n",
    "_help": "def do_score(hosts, vm, properties): ...\n",
}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("dis", {"discover"}),
        pytest.param("cert exp", {"export"}, marks=pytest.mark.long),
        pytest.param("filter Quiet --hosts x --pro", {"--property"}, marks=pytest.mark.long),
        ("discover -o ", {"table", "json", "names"}),
        pytest.param("why web --dec", {"--decision"}, marks=pytest.mark.long),
        ("score --plugins PLUGINS C", {"Costs"}),
        pytest.param("score --plugins PLUGINS P", {"Plain"}, marks=pytest.mark.long),
        ("replay --plugins PLUGINS --set ", {"Costs=", "Plain="}),
        pytest.param("filter --plugins PLUGINS OfC", {"OfClass"}, marks=pytest.mark.long),
        pytest.param("balance --plugins PLUGINS O", set(), marks=pytest.mark.long),
        pytest.param("replay --plugins PLUGINS --without O", {"OfClass"}, marks=pytest.mark.long),
        pytest.param("simulate --config CONF --section ", {"East", "West"}, marks=pytest.mark.long),
        # No files, where none is named.
        pytest.param("snapshot doc", set(), marks=pytest.mark.long),
        pytest.param("simulate doc", {"docs/"}, marks=pytest.mark.long),
        pytest.param("decisions --outcome r", {"raised", "refused"}, marks=pytest.mark.long),
    ],
)
def test_bash_completes(tmp_path, line, words):
    """Commands, options, what an option may be, units; with the file that packages bring."""
    plugins, conf = tmp_path / "plugins", tmp_path / "scheduler.conf"
    plugins.mkdir()
    for name, text in PLUGINS.items():
        (plugins / f"{name}.py").write_text(text)
    os.mkfifo(plugins / "pipe.py")
    conf.write_text("[clusters]\n[[East]]\n[[West]]\n")
    line = line.replace("PLUGINS", str(plugins)).replace("CONF", str(conf))
    program = tmp_path / "ovirt-scheduler"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ovirt_scheduler "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    file = PROJECT / "completion" / "bash" / "ovirt-scheduler"
    ended = executed(
        "bash", "-c", ASK, "bash", file, f"ovirt-scheduler {line}", env={**os.environ, "PATH": path}
    )
    assert set(ended.stdout.split()) == words, ended.stderr
