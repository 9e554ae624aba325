"""What several test modules need: real documents, real plugins, a real daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Callable, Optional, Union

import pytest

from ovirt_scheduler.model.plugins import Candidate, Limits, PluginCode, Source
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.model.values import hidden
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.security import trust
from tests.support.daemon import Daemon, StartDaemon
from tests.support.driven import Driven
from tests.support.jobs import LIMITS, running
from tests.support.paths import PLUGINS, PROJECT
from tests.support.place import Place

# Their fixtures. The last is known without this where the project was installed since it is there.
pytest_plugins = [
    "tests.support.command", "tests.support.looks", "tests.support.served", "tests.support.settled_calls",
    "tests.support.site",
    "ovirt_scheduler.testing",
]  # fmt: skip

# Else each of hundreds of daemons would compile the whole project anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_sessionstart() -> None:
    """Give children Ctrl-C, and end where a plugin could be changed by others.

    The daemon loads no such plugin: that is said once, not in every test.
    """
    # A shell has what runs in its background ignore it, and each child would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for path in (PROJECT / "plugins", PLUGINS, *PLUGINS.glob("*.py")):
        distrust = trust.tampering(path)
        if distrust:
            pytest.exit(f"the tests need a checkout of your own: {path}: {distrust}", 1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Reports go between processes as UTF-8, and some tests log what has no place in it."""
    report = yield
    report.sections = [
        (title, text.encode("utf-8", "backslashreplace").decode())
        for title, text in report.sections
    ]
    return report


@pytest.fixture(autouse=True)
def no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another test had for a password is a plain word in this one."""
    monkeypatch.setattr(hidden, "_secrets", {})
    monkeypatch.setattr(hidden, "_written", ())


@pytest.fixture
def place(tmp_path: Path, executor: Executor) -> Iterator[Place]:
    """Folders of plugins in which a change counts at once, except in ``place.look()``."""
    place = Place(tmp_path, executor)
    yield place
    place.registry.stop()


@pytest.fixture
def marker() -> str:
    """Seconds for sleep(1) that no other process on the machine sleeps for."""
    return f"{uuid.uuid4().int % 10**9 + 10**6}"


@pytest.fixture(scope="session")
def executor() -> Iterator[Executor]:
    """One for all tests of a worker, which leave it as it is; ``tests/processes`` has others."""
    with running() as started:
        yield started


@pytest.fixture
def unit_named(executor: Executor) -> Callable[..., PolicyUnit]:
    """Gives a unit of the misbehaving plugins, analysed as the loader does."""

    def load(
        name: str, kind: Kind = Kind.FILTER, limits: Limits = LIMITS, folder: Path = PLUGINS
    ) -> PolicyUnit:
        path = folder / f"{name}.py"
        source = Source(name, str(path), path.read_bytes())
        analysis = executor.analyse(Candidate(source, str(folder), ()))
        assert analysis.fault is None
        (found,) = [unit for unit in analysis.units if unit.kind is kind]
        code = PluginCode(name, str(folder), analysis.modules)
        return PolicyUnit(found.name, kind, found.description, code, "sha256:", limits)

    return load


@pytest.fixture
def unit_of(unit_named: Callable[..., PolicyUnit], tmp_path: Path) -> Callable[..., PolicyUnit]:
    """Gives a filter of a plugin's text, with other limits where they are named."""

    def load(text: str, name: str = "plugin", **limits: object) -> PolicyUnit:
        (tmp_path / f"{name}.py").write_text(text)
        return unit_named(name, limits=replace(LIMITS, **limits), folder=tmp_path)

    return load


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    made = Driven(tmp_path, Daemon)
    with made.open:
        yield made


def _written(folder: Path, texts: Mapping[str, str], ending: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.{ending}").write_text(text, "utf-8")
    return folder


@pytest.fixture(scope="module")
def start_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartDaemon]:
    """Starts daemons; each is stopped when the module's tests are done, and has to end well."""
    started: list[Daemon] = []

    def run(
        plugins: Union[Path, str, Mapping[str, str], Sequence[str]] = ("keeps_all", "keeps_first"),
        settings: str = "",
        options: Optional[list[str]] = None,
        before: Sequence[str] = (),
        folder: Optional[Path] = None,
        confs: Optional[Mapping[str, str]] = None,
    ) -> Daemon:
        """Start one.

        Args:
            plugins: a folder of them, or the text of each by its name, or the names of some of
                ``PLUGINS``, which take seconds to load all.
            confs: the text of plugins' own conf files, by the plugin's name.
        """
        folder = folder or tmp_path_factory.mktemp("daemon")
        if not isinstance(plugins, (Path, str, Mapping)):
            plugins = {name: (PLUGINS / f"{name}.py").read_text("utf-8") for name in plugins}
        if isinstance(plugins, Mapping):
            plugins = _written(folder / "plugins", plugins, "py")
        if confs:
            settings = (
                f"plugins_conf_path = {_written(folder / 'confs', confs, 'conf')}\n{settings}"
            )
        daemon = Daemon(folder, plugins, settings, options or [], before)
        started.append(daemon)
        return daemon

    yield run
    for daemon in started:
        try:
            status = daemon.stop()
        except subprocess.TimeoutExpired:
            daemon.process.kill()
            daemon.process.wait()
            raise
        assert status in (0, -signal.SIGKILL), daemon.log  # some are killed
