"""The house: what import-linter cannot see. Its contracts are in pyproject.toml (``make lint``)."""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.command import executed, script
from tests.support.paths import PROJECT

TESTS = PROJECT / "tests"
PACKAGE = PROJECT / "ovirt_scheduler"
OPENS_DOCUMENTS = {"lxml", "ovirtsdk4"}
PARSER = "import ovirt_scheduler.command.cli as cli; cli"
NOT_THE_DAEMONS = (
    "ovirt_scheduler.processes.worker.",
    "ovirt_scheduler.processes.loading.",
    "ovirt_scheduler.processes.documents.",
    "ovirt_scheduler.plugin",
)

# One line of code that breaks each contract of import-linter: its name, the module, the line.
BREACHES = [
    ("imports go down the house only", "settings/table.py", "import ovirt_scheduler.daemon.lifecycle"),
    ("imports go down the house only", "clusters/section_check.py", "import ovirt_scheduler.server.methods"),
    ("imports go down the house only", "stray.py", ""),
    ("the daemon's side and the worker's side share protocol and kernel", "processes/executor.py", "import ovirt_scheduler.processes.worker.main"),
    ("the daemon's side and the worker's side share protocol and kernel", "processes/kernel/limits.py", "import ovirt_scheduler.processes.pool"),
    ("the daemon's side and the worker's side share protocol and kernel", "processes/stray.py", ""),
    ("the daemon's process loads no plugin, no SDK and no reader of documents", "engine/inventory.py", "import lxml.etree"),
    ("the worker's side loads nothing of the daemon", "processes/loading/imports.py", "import configobj"),
    ("what both sides share needs the standard library alone", "model/values/spelling.py", "import pycurl"),
    ("the core knows no feature", "decisions/service.py", "import ovirt_scheduler.history.store"),
    ("the core knows no feature", "server/methods.py", "import ovirt_scheduler.decisions.shadows"),
    ("the core knows no feature", "server/http/connection_handler.py", "import ovirt_scheduler.server.pages.site"),
    ("the core knows no feature", "processes/worker/reader.py", "import ovirt_scheduler.processes.documents.splitting"),
    ("the core knows no feature", "engine/inventory.py", "import ovirt_scheduler.model.cluster_state"),
    ("the server knows no settings", "server/methods.py", "import ovirt_scheduler.settings.table"),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("contract", "module", "line"), BREACHES)
def test_each_contract_of_imports_can_be_broken(tmp_path, contract, module, line):
    """A rule that never fails holds nothing: one forbidden line in a copy breaks each."""
    pytest.importorskip("importlinter", reason="make lint installs it")
    python_files = shutil.ignore_patterns("__pycache__", "data", "*.pyc")
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=python_files)
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    with (tmp_path / PACKAGE.name / module).open("a", encoding="utf-8") as changed:
        changed.write(f"{line}\n")
    done = executed(
        Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo", cwd=tmp_path
    )
    assert done.returncode == 1
    assert contract in re.findall(r"^(.*) BROKEN$", done.stdout, re.MULTILINE)


def test_each_contract_of_imports_has_a_line_that_breaks_it():
    """So that a new one is tried, too."""
    contracts = re.findall(
        r"^name = \"(.*)\"$", (PROJECT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert {contract for contract, *_ in BREACHES} == set(contracts)


def test_no_function_imports():
    """An import within a function is a cycle in disguise."""
    modules = sorted(PACKAGE.rglob("*.py"))
    assert PACKAGE / "server" / "http" / "server.py" in modules
    inside = [
        f"{module.relative_to(PACKAGE)}:{node.lineno}"
        for module in modules
        for function in ast.walk(ast.parse(module.read_bytes()))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    assert inside == []


def test_every_folder_says_what_lives_there():
    """A folder without an ``__init__.py`` would be no part of what import-linter holds."""
    folders = {module.parent for module in PACKAGE.rglob("*.py")}
    assert PACKAGE / "processes" / "kernel" in folders
    silent = [
        str(folder.relative_to(PACKAGE))
        for folder in sorted(folders)
        if not (folder / "__init__.py").is_file()
        or not ast.get_docstring(ast.parse((folder / "__init__.py").read_bytes()))
    ]
    assert silent == []


def test_no_file_has_450_lines_or_more():
    """Tests and tools neither."""
    project = PACKAGE.parent
    files = [path for path in project.glob("*/**/*.py") if ".venv" not in path.parts]
    assert PACKAGE / "server" / "http" / "server.py" in files
    lengths = {path: len(path.read_bytes().splitlines()) for path in files}
    assert {str(path): length for path, length in lengths.items() if length >= 450} == {}


def test_no_name_stands_for_two_modules_or_two_types():
    """Except for the zygote, on each side of the border, and an error that SDK version 3 names."""
    modules = [path for path in PACKAGE.rglob("*.py") if path.stem != "__init__"]
    names = Counter(path.stem for path in modules)
    assert {name for name, count in names.items() if count > 1} == {"zygote"}
    types = Counter(
        node.name.lstrip("_")
        for path in modules
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in types.items() if count > 1} == {"RequestError"}


def test_the_tests_stand_as_the_package_does():
    """A folder for each of its folders, and each name once; no test imports from another."""
    modules = sorted(TESTS.rglob("test_*.py"))
    names = [module.name for module in modules]
    assert len(names) > 100
    assert [name for name in names if names.count(name) > 1] == []
    rooms = {folder.relative_to(PACKAGE) for folder in PACKAGE.rglob("*") if folder.is_dir()}
    rooms |= {Path("functional"), Path("project")}
    assert {
        str(module) for module in modules if module.parent.relative_to(TESTS) not in rooms
    } == set()
    imported = {
        f"{module.name}:{node.lineno}"
        for module in modules
        for node in ast.walk(ast.parse(module.read_bytes()))
        if isinstance(node, ast.ImportFrom)
        and f".{node.module}".rpartition(".")[2].startswith(("test_", "conftest"))
    }
    assert imported == set()


@pytest.mark.parametrize(
    "code", ["import ovirt_scheduler.daemon.lifecycle", f"{PARSER}.parser()"], ids=["daemon", "cli"]
)
def test_the_daemons_process_loads_neither_the_sdk_nor_lxml(code):
    """Not by way of another package either."""
    shown = loaded_by(code)
    assert "ovirt_scheduler.daemon.lifecycle" in shown
    assert {name.partition(".")[0] for name in shown} & OPENS_DOCUMENTS == set()
    # Each takes megabytes, and is loaded where it is used: with an engine, for a page.
    assert {"pycurl", "jinja2", "prometheus_client"} & {*shown} == set()
    assert [name for name in shown if name.startswith(NOT_THE_DAEMONS)] == []


def test_the_daemon_loads_what_tls_needs_only_where_it_speaks_tls():
    """pyOpenSSL and cryptography take 10 MB."""
    shown = loaded_by("import ovirt_scheduler.daemon.lifecycle")
    assert {name.partition(".")[0] for name in shown} & {"OpenSSL", "cryptography"} == set()


def test_the_daemon_loads_what_looks_after_clusters_only_where_one_is_looked_after():
    """It takes a megabyte."""
    shown = {*loaded_by("import ovirt_scheduler.daemon.lifecycle")}
    modules = ("drive", "threads", "planning", "destinations", "migrations", "placing")
    assert {f"ovirt_scheduler.clusters.{module}" for module in modules} & shown == set()


def test_a_command_does_not_load_what_other_commands_need():
    """The command line with ``status`` has no daemon, and with ``serve`` no workbench."""
    rooms = ("command.calls.trial", "daemon.lifecycle", "workbench", "clusters", "processes")
    for command, expected in (("status", set()), ("serve", {*rooms[1:]} - {"workbench"})):
        shown = loaded_by(f"{PARSER}.parser(command={command!r})")
        assert {room for room in rooms if f"ovirt_scheduler.{room}" in shown} == expected


def loaded_by(code):
    return script(f"{code}; import sys; print(*sys.modules, sep='\\n')").stdout.split()
