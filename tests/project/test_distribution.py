"""What setup.py makes: a wheel's files, and a source distribution."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.command import executed
from tests.support.paths import PROJECT

NAMED = {
    "README.md", "demo/hosts.xml", "demo/vm.xml", "demo/cluster.xml",
    "packaging/prometheus/ovirt-scheduler.rules.yml", "packaging/grafana/ovirt-scheduler.json",
}  # fmt: skip

SETUP_PY = (PROJECT / "setup.py").read_text("utf-8")

pytest.importorskip("setuptools", reason="there is no setuptools here")


def test_a_wheel_has_all_that_setup_needs(tmp_path):
    """What setup.py builds is enough: nothing is looked for in the project's folder."""
    source = tmp_path / "source"
    for folder in ("ovirt_scheduler", "plugins", "etc", "systemd"):
        leftovers = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / folder, source / folder, ignore=leftovers)
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / file, source)
    run_in(source, "setup.py", "-q", "build", "--build-lib", str(tmp_path / "lib"))
    assert (tmp_path / "lib/ovirt_scheduler/py.typed").exists()  # for who checks a plugin's types
    root = tmp_path / "root"
    for folder in ("etc", "usr/bin"):
        (root / folder).mkdir(parents=True)
    (root / "usr/bin/ovirt-scheduler").touch()
    user = f"ovirt-scheduler:x:{os.geteuid()}:{os.getegid()}::/:/usr/sbin/nologin\n"
    (root / "etc" / "passwd").write_text(user)
    run_in(tmp_path / "lib", "-m", "ovirt_scheduler", "setup", "--root", str(root))
    shipped = (PROJECT / "etc" / "scheduler.conf").read_text("utf-8")
    assert (root / "etc/ovirt/scheduler/scheduler.conf").read_text("utf-8") == shipped
    assert (root / "etc/systemd/system/ovirt-scheduler.service").exists()
    assert (root / "etc/ovirt/scheduler/plugins/Memory.conf").exists()


@pytest.mark.long
def test_a_source_distribution_is_the_whole_project(tmp_path):
    """Whoever has it can run the tests, make the manual and build the RPM."""
    listed = ["git", "ls-files", "-z"]
    try:
        ended = executed(*listed, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no checkout")
    files = {name for name in ended.stdout.split("\0") if (PROJECT / name).is_file()}
    for name in files:
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, tmp_path / "source" / name)
    run_in(tmp_path / "source", "setup.py", "-q", "sdist", "--formats=tar", "--dist-dir", "..")
    (made,) = tmp_path.glob("*.tar")
    with tarfile.open(made) as archive:
        there = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert files <= there


def test_the_manual_is_installed_and_messages_name_it_there(tmp_path):
    """Every page with what it shows, below the prefix; one that is not there is named alone."""
    source, prefix = tmp_path / "source", tmp_path / "prefix"
    for folder in ("ovirt_scheduler", "docs", "completion", "demo", "packaging"):
        leftovers = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / folder, source / folder, ignore=leftovers)
    for file in (PROJECT / "setup.py", *PROJECT.glob("*.md")):
        shutil.copy(file, source)
    run_in(source, "setup.py", "-q", "install_data", "--install-dir", str(prefix))
    shutil.rmtree(source / "docs")
    for file in PROJECT.glob("docs/*.*"):
        there = (prefix / "share/doc/ovirt-scheduler/docs" / file.name).exists()
        assert there is (file.suffix != ".py"), file
    for file in NAMED:
        assert (prefix / "share/doc/ovirt-scheduler" / file).exists(), file
    assert (prefix / "share/man/man5/ovirt-scheduler.conf.5").exists()
    asked = "import sys; sys.prefix = sys.argv[1]; from ovirt_scheduler.model.manual import page; "
    asked += "print(page('engine.md'), page('none.md'), sep='\\n')"
    assert run_in(source, "-c", asked, str(prefix)).splitlines() == [
        f"{prefix}/share/doc/ovirt-scheduler/docs/engine.md", "none.md of the manual",
    ]  # fmt: skip


def test_no_message_names_a_page_by_its_place_in_the_checkout():
    """On an installed machine there is no docs/ where somebody stands."""
    shipped = [*PROJECT.glob("etc/**/*.conf"), *PROJECT.glob("systemd/**/*.*"),
               *PROJECT.glob("plugins/*.py")]  # fmt: skip
    lines = [line for file in shipped if file.is_file() for line in file.read_text().splitlines()]
    for module in PROJECT.glob("ovirt_scheduler/**/*.py"):
        tree = ast.parse(module.read_text())
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and isinstance(node.body[0], ast.Expr)
        }
        texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
        lines += [
            text.value
            for text in texts
            if isinstance(text.value, str) and id(text) not in docstrings
        ]
    assert [line for line in lines if "docs/" in line] == []


def test_the_readme_names_what_pip_compiles_with():
    """The packages that .ci/prerequisites would install."""
    lines = re.findall(r"install='(.+)'", (PROJECT / ".ci/prerequisites").read_text())
    readme = (PROJECT / "README.md").read_text()
    assert [f"    {line}\n" in readme for line in lines] == [True, True]


def test_the_manual_has_the_least_versions_that_are_required():
    """In its table of what each Enterprise Linux has."""
    required = dict(
        re.findall(r'"([\w-]+)>=([\d.]+)(?:,<\d+)?",', SETUP_PY.partition("extras_require")[0])
    )
    required["ovirt-engine-sdk4"] = required.pop("ovirt-engine-sdk-python")
    page = (PROJECT / "docs/install.md").read_text("utf-8")
    assert dict(re.findall(r"(?m)^\| `python3-([\w-]+)`.*? \| ([\d.]+) \|", page)) == required


def run_in(folder: Path, *arguments: str) -> str:
    ended = executed(
        sys.executable,
        *arguments,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
