"""The house: which room may import which. Imports go down only (docs of the levels below).

A level's rooms do not import each other. The daemon's process never loads a plugin, the SDK or
a reader of documents; the processes of plugin calls load nothing of the daemon.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, Set, Tuple

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "ovirt_scheduler"

# From the roof to the ground.
DAEMON = (
    ("the entrance", "__main__"),
    ("the command line", "cli"),
    ("the commands", "commands"),
    ("puts the parts together", "certificate_renewal check daemon installation terminal trial"),
    ("the parts, put together", "parts"),
    ("all clusters", "cluster_threads"),
    ("one cluster", "cluster_drive"),
    ("its migrations", "cluster_migrations"),
    ("where its VMs may go", "cluster_destinations"),
    ("sockets to calls, and what the calls are", "driver_methods methods server"),
    ("parts of the server", "connections dispatch request_body streams"),
    ("the operations", "scheduling service"),
    ("the units there are", "certificate_watch drive_memory last_good registry watchdog"),
    ("files to units, requests to processes, decisions to the log",
     "catalogue decision_log executor inventory loader policy_units"),
    ("values to requests, decisions to answers, calls to the log", "call_log driver_wire wire"),
    ("the engine's side of an installation", "engine_setup"),
    ("the steps of an installation", "install_steps"),
    ("the files of an installation", "shipped_file"),
    ("what an installation did", "install_record"),
    ("what the settings come to", "certificate_report cluster_report driver_units listening_report log_output settings_report"),
    ("the settings", "config"),
    ("a conf file held to its table", "conf_file"),
    ("the table of settings", "settings_table"),
    ("everything that runs below the daemon", "processes"),
    ("a plugin's processes, and a call in one of them", "plugin_call pool"),
    ("one task of a process", "exchange"),
    ("the ends of a zygote and what it forks", "workers"),
    ("where the log goes, if not to a file", "journal"),
    ("what its files say", "plugin_sources"),
    ("what lies in the folders of plugins", "plugin_files"),
    ("what stands alone, for the daemon's doing",
     "certificates clients conf_syntax finding launch listening log_file log_format machine notify slots state_lock trust"),
    ("and for its requests", "jobs request_head selections"),
    ("and for what is said",
     "call_report codec completion inputs log_fields setting_values skeleton tables wire_values"),
    ("how files are written", "whole_file"),
)  # fmt: skip
CALLS = (
    ("the warm process, and one that reads files for check", "names_check zygote"),
    ("a process that it forked", "worker"),
    ("what that becomes", "analysis plugin_process reader"),
    (
        "what these do, and the SDK of version 3 for whoever imports it",
        "answers baseline engine_use entities packed sdk3",
    ),
    (
        "the parts of it",
        "document_pass driver_analysis loaded_modules plugin put_back",
    ),
    (
        "what these are made of",
        "cluster_use interfaces plugin_imports plugin_modules python2 privileges sdk_fields version3",
    ),
    ("the state of an entity", "states"),
)
SHARED = (
    ("messages of both sides", "messages"),
    ("what is in them, and around them", "drivers frames shapes"),
    (
        "rules of both sides, and what a process is asked to do",
        "aggregate cluster_seen heap limits near properties secrecy tasks titles",
    ),
    ("what stands alone, for both sides", "java_regex xml_text"),
    ("what all speak of", "__init__ errors manual model"),
)
OPENS_DOCUMENTS = {"lxml", "ovirtsdk4"}

Levels = Tuple[Tuple[str, str], ...]


def rooms(levels: Levels) -> Set[str]:
    return {name for _, names in levels for name in names.split()}


def heights(levels: Levels) -> Dict[str, int]:
    """Each room with its level, counted from the ground."""
    return {
        name: height for height, (_, names) in enumerate(reversed(levels)) for name in names.split()
    }


HEIGHTS = {**heights(DAEMON + SHARED), **heights(CALLS + SHARED)}
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py"))


def tree_of(module: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{module}.py").read_bytes())


def imported(module: str) -> Iterator[str]:
    """Full names of all that a module imports, relative imports made absolute."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = [PACKAGE.name] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}" if base == PACKAGE.name else base


def imported_rooms(module: str) -> Set[str]:
    found = set()
    for name in imported(module):
        package, _, room = name.partition(".")
        if package == PACKAGE.name:
            room = room.partition(".")[0]
            found.add(room if (PACKAGE / f"{room}.py").exists() else "__init__")
    return found


def test_every_module_has_its_place_in_the_house():
    """A new one is entered in the table above before it is used."""
    placed = rooms(DAEMON) | rooms(CALLS) | rooms(SHARED)
    strays = sorted(set(MODULES) - placed)
    assert strays == [], (
        f"no level for {', '.join(strays)}: enter each in DAEMON, CALLS or SHARED of "
        f"{Path(__file__).name}, above all that it imports and below all that import it"
    )
    gone = sorted(placed - set(MODULES))
    assert gone == [], f"take {', '.join(gone)} out of the table: there is no such module"


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down_only(module):
    """Never up, and never to another room on the same level."""
    if module not in HEIGHTS:
        pytest.skip("has no place yet")
    here = HEIGHTS[module]
    not_below = [room for room in sorted(imported_rooms(module)) if HEIGHTS.get(room, 0) >= here]
    assert not_below == [], f"{module} imports {', '.join(not_below)}, which is not below it"


@pytest.mark.parametrize("module", sorted(rooms(DAEMON)))
def test_the_daemons_side_imports_nothing_of_the_plugin_calls(module):
    """Its process opens no document and loads no plugin."""
    assert imported_rooms(module) & rooms(CALLS) == set()
    assert {name.partition(".")[0] for name in imported(module)} & OPENS_DOCUMENTS == set()


@pytest.mark.parametrize("module", sorted(rooms(CALLS)))
def test_the_plugin_calls_side_imports_nothing_of_the_daemon(module):
    """What both sides know is shared, and small."""
    assert imported_rooms(module) <= rooms(CALLS) | rooms(SHARED)


@pytest.mark.parametrize("module", sorted(rooms(SHARED)))
def test_what_is_shared_imports_what_is_shared(module):
    """And of others nothing but the standard library."""
    assert imported_rooms(module) <= rooms(SHARED)
    foreign = {name.partition(".")[0] for name in imported(module)} - {PACKAGE.name}
    if hasattr(sys, "stdlib_module_names"):  # Python 3.10
        assert foreign <= sys.stdlib_module_names


@pytest.mark.parametrize("module", MODULES)
def test_no_function_imports(module):
    """An import within a function is a cycle in disguise."""
    inside = [
        f"{module}.py:{node.lineno}"
        for function in ast.walk(tree_of(module))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    assert inside == []


def test_no_file_is_past_500_lines():
    """Tests and tools neither."""
    project = PACKAGE.parent
    files = [path for path in project.glob("*/**/*.py") if ".venv" not in path.parts]
    assert PACKAGE / "server.py" in files
    lengths = {path: len(path.read_bytes().splitlines()) for path in files}
    assert {str(path): length for path, length in lengths.items() if length > 500} == {}


@pytest.mark.parametrize("module", ["daemon", "cli"])
def test_the_daemons_process_loads_neither_the_sdk_nor_lxml(module):
    """Not by way of another package either."""
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys, ovirt_scheduler.{module}; print(*sys.modules, sep='\\n')",
        ],
        cwd=PACKAGE.parent,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.split()
    assert f"ovirt_scheduler.{module}" in shown
    assert {name.partition(".")[0] for name in shown} & OPENS_DOCUMENTS == set()
    assert {f"ovirt_scheduler.{room}" for room in rooms(CALLS)} & set(shown) == set()
