"""The package for RPM, built from the project as it is here, and installed into a folder."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

import ovirt_scheduler
from ovirt_scheduler.settings.table import SCHEDULER
from tests.support.command import executed
from tests.support.paths import PROJECT

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not shutil.which("rpmbuild") or not shutil.which("rpm"), reason="there is no rpmbuild here"
    ),
]

SPEC = PROJECT / "packaging" / "ovirt-scheduler.spec"
CONFS = {
    f"/etc/ovirt/scheduler/{path.relative_to(PROJECT / 'etc')}": path
    for path in (PROJECT / "etc").rglob("*.conf")
}
CONFS["/etc/logrotate.d/ovirt-scheduler"] = PROJECT / "etc" / "logrotate.d" / "ovirt-scheduler"
SYSTEM = {
    f"/usr/lib/{'systemd/system' if path.suffix == '.service' else path.parent.name}/{path.name}": path
    for path in (PROJECT / "systemd").rglob("ovirt-scheduler.*")
}
PACKED = (
    "ovirt_scheduler", "plugins", "etc", "systemd", "completion", "demo", "docs", "packaging", "LICENSE",
)  # fmt: skip
LISTED = "[%{FILENAMES}|%{FILEUSERNAME}|%{FILEGROUPNAME}|%{FILEMODES:octal}|%{FILEFLAGS:fflags}\n]"

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="installing takes root")


class File(NamedTuple):
    owner: str
    group: str
    mode: int
    flags: str  # c: configuration, n: not replaced, d: documentation, l: license


def run(*command: object, **options: object) -> str:
    ended = executed(*command, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """Built as ``make rpm`` does, but of the files as they are, with this test's Python.

    That takes as long as hundreds of tests: the first worker that needs it builds it for all.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with (shared / "rpm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not any((shared / "rpm" / "RPMS").rglob("*.rpm")):
            _build(shared / "rpm")
    (built,) = (shared / "rpm" / "RPMS").rglob("*.rpm")
    return built


def _build(top: Path) -> None:
    name = f"ovirt-scheduler-{re.search('(?m)^Version: (.+)$', SPEC.read_text()).group(1)}"
    (top / "SOURCES").mkdir(parents=True, exist_ok=True)
    with tarfile.open(top / "SOURCES" / f"{name}.tar.gz", "w:gz") as source:
        for path in (*map(PROJECT.joinpath, PACKED), *filter(Path.is_file, PROJECT.glob("*.*"))):
            source.add(path, f"{name}/{path.name}", filter=_without_leftovers)
    defined = ("--define", f"_topdir {top}", "--define", f"__python3 {sys.executable}")
    run("rpmbuild", "-bb", *defined, SPEC)


def _without_leftovers(entry: tarfile.TarInfo):
    return None if "__pycache__" in entry.name or ".egg-info" in entry.name else entry


def asked(package: Path, *options: str) -> list[str]:
    return run("rpm", "-qp", *options, package).splitlines()


@pytest.fixture(scope="module")
def files(package) -> dict[str, File]:
    rows = (line.split("|") for line in asked(package, "--qf", LISTED) if line)
    return {
        name: File(owner, group, int(mode, 8) & 0o7777, flags.strip())
        for name, owner, group, mode, flags in rows
    }


@pytest.fixture(scope="module")
def installed(package, tmp_path_factory) -> Path:
    """A root in which the package is the only one; its scripts would need a shell there."""
    root = tmp_path_factory.mktemp("root")
    run("rpm", "--root", root, "--nodeps", "--noscripts", "--install", package)
    return root


@pytest.fixture
def root(installed, tmp_path) -> Path:
    """The same, for one test to change."""
    shutil.copytree(installed, tmp_path / "root", symlinks=True)
    return tmp_path / "root"


def started(root: Path, *arguments: object) -> str:
    """What the installed program says."""
    (packages,) = root.glob("usr/lib/python3*/site-packages")
    own = {"PYTHONPATH": str(packages), "STATE_DIRECTORY": str(root / "state")}
    program, environment = root / "usr/bin/ovirt-scheduler", {**os.environ, **own}
    return run(sys.executable, program, *arguments, cwd="/", env=environment)


def test_the_versions_agree(package):
    """The spec's and the program's, each in its own spelling."""
    (version,) = asked(package, "--qf", "%{VERSION}\n")
    assert version.replace("~", ".") == ovirt_scheduler.__version__


def test_it_takes_the_old_proxys_place(package):
    """dnf replaces the one by the other."""
    name, version = asked(package, "--qf", "%{NAME}\n%{VERSION}-%{RELEASE}\n")
    assert f"ovirt-scheduler-proxy = {version}" in asked(package, "--provides")
    assert asked(package, "--obsoletes") == [f"ovirt-scheduler-proxy < {version}"]
    assert name == "ovirt-scheduler"


def test_it_requires_what_setup_py_does(package):
    """With the same least versions, under the distributions' names."""
    names = {"ovirt-engine-sdk-python": "ovirt-engine-sdk4"}
    wanted = re.findall(
        r'"([\w-]+)>=([\d.]+)(?:,<\d+)?",',
        (PROJECT / "setup.py").read_text().partition("extras_require")[0],
    )
    assert len(wanted) > 4
    required = [*asked(package, "--requires"), *asked(package, "--recommends")]
    for name, version in wanted:
        assert f"python3-{names.get(name, name)} >= {version}" in required


def test_configuration_is_the_administrators(files):
    """An upgrade replaces no edited file."""
    for name in CONFS:
        assert files[name] == File("root", "root", 0o644, "cn")


def test_every_file_has_its_place_and_owner(files, package):
    """The unit, its user and folders, the program, the manual, all of the modules and samples."""
    for name in (*SYSTEM, "/etc/ovirt/scheduler/plugins", "/usr/bin/ovirt-scheduler"):
        assert (files[name].owner, files[name].group) == ("root", "root")
    assert files["/usr/bin/ovirt-scheduler"].mode == 0o755
    assert files["/var/lib/ovirt-scheduler"][:3] == ("ovirt-scheduler", "ovirt-scheduler", 0o700)
    assert files["/var/log/ovirt-scheduler"][:3] == ("ovirt-scheduler", "ovirt-scheduler", 0o750)
    assert next(name for name, file in files.items() if file.flags == "l").endswith("/LICENSE")
    documents = {name.split("/", 5)[-1] for name, file in files.items() if file.flags == "d"}
    assert {"README.md", "CHANGELOG.md", "docs/operations.md", "demo/hosts.xml"} <= documents
    assert "packaging/prometheus/ovirt-scheduler.rules.yml" in documents
    assert not [name for name in documents if name.endswith((".py", ".spec"))]
    pages = {path.name for path in (PROJECT / "docs" / "man").glob("*.[158]")}
    assert pages <= {name.rpartition("/")[2].replace(".gz", "") for name in files}
    modules = {name.partition("/site-packages/")[2] for name in files if "/site-packages/" in name}
    sources = {
        str(path.relative_to(PROJECT)) for path in (PROJECT / "ovirt_scheduler").rglob("*.py")
    }
    sources |= {
        f"ovirt_scheduler/plugins/{path.name}" for path in (PROJECT / "plugins").glob("*.py")
    }
    assert sources <= modules


def test_nothing_else_is_in_it(files):
    """No tests, no leftovers, nothing outside of its folders."""
    places = (
        "/etc/ovirt", "/etc/logrotate.d/ovirt-scheduler",
        "/usr/bin/ovirt-scheduler", "/usr/lib/", "/usr/share/doc/ovirt-scheduler",
        "/usr/share/licenses/ovirt-scheduler", "/usr/share/man/", "/var/lib/ovirt-scheduler",
        "/var/log/ovirt-scheduler",
        "/usr/share/bash-completion/completions/ovirt-scheduler",
        "/usr/share/zsh/site-functions/_ovirt-scheduler",
    )  # fmt: skip
    assert [name for name in files if not name.startswith(places)] == []
    assert [name for name in files if "tests" in name or "egg-info" in name] == []


def test_the_scripts_make_the_user_and_tell_systemd(package):
    """The user before the files that belong to it; the shell understands each."""
    scripts = "\n".join(asked(package, "--scripts"))
    before, _, after = scripts.partition("postinstall")
    assert re.search("useradd .*ovirt-scheduler", before, re.DOTALL)
    assert not re.search(r"\b(pip|dnf|curl|wget)\b", scripts)  # none reaches out to a registry
    for words in ("preset", "disable --now", "daemon-reload", "try-restart"):
        assert words in after
    for script in re.split(r"(?m)^\w+ scriptlet \(using /bin/sh\):$", scripts)[1:]:
        run("sh", "-n", "-c", script)


@root_only
def test_the_installed_program_runs(installed):
    """It finds the samples that were installed with it, and they load."""
    told = started(installed, "check")
    assert f"{installed}/usr/lib/python3" in told
    assert "all is well\n" in told


@root_only
def test_setup_leaves_to_the_package_what_is_its(root):
    """Unit, users, folders and configuration are there; what is left is to start it."""
    (root / "etc/passwd").write_text("ovirt-scheduler:x:0:0::/:/bin/false\n")
    told = started(root, "setup", "--root", root)
    steps = told.partition("next:\n")[0].splitlines()
    written = [line for line in steps if not line.startswith(("already so", "left", "skipped"))]
    assert written in ([], ["run systemctl enable ovirt-scheduler.service"])
    assert "already so: /usr/lib/systemd/system/ovirt-scheduler.service, of a package\n" in told
    for name, source in {**SYSTEM, **CONFS}.items():
        assert (root / name[1:]).read_bytes() == source.read_bytes()


@root_only
def test_removal_leaves_no_bytecode(root):
    """Not of modules that root's commands have imported either."""
    started(root, "check")
    run("rpm", "--root", root, "--nodeps", "--noscripts", "--erase", "ovirt-scheduler")
    assert [path for path in root.rglob("*") if "ovirt_scheduler" in path.name] == []


def test_the_package_says_for_which_python_it_is(package, files):
    """dnf refuses it where python3 is another, which would not find the modules."""
    (folder,) = {name.split("/")[3] for name in files if name.endswith("-packages/ovirt_scheduler")}
    assert f"python(abi) = {folder[len('python') :]}" in asked(package, "--requires")


def test_the_changelog_is_of_this_version(package):
    """With the release."""
    (version,) = asked(package, "--qf", "%{VERSION}-%{RELEASE}\n")
    assert f" - {version}" in asked(package, "--changelog")[0]


def test_the_firewall_knows_the_port(installed):
    """The one that the daemon has where nothing is set."""
    service = installed / "usr/lib/firewalld/services/ovirt-scheduler.xml"
    (port,) = ElementTree.parse(service).getroot().iter("port")
    (key,) = [each for each in SCHEDULER if each.name == "listening_port"]
    assert port.attrib == {"protocol": "tcp", "port": key.default}


@root_only
def test_removal_keeps_an_edited_file(root):
    """As scheduler.conf.rpmsave."""
    conf = root / "etc/ovirt/scheduler/scheduler.conf"
    conf.write_text("log_level = debug\n")
    run("rpm", "--root", root, "--nodeps", "--noscripts", "--erase", "ovirt-scheduler")
    assert conf.with_name("scheduler.conf.rpmsave").read_text() == "log_level = debug\n"
    assert not (root / "usr/bin/ovirt-scheduler").exists()
