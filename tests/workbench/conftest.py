"""What these tests share: the parts of a daemon that answer, and simulations with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Callable

import pytest

from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.daemon.runtime import Runtime
from ovirt_scheduler.settings import scheduler_conf
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.workbench import scenario
from ovirt_scheduler.workbench.sections import changed_section
from ovirt_scheduler.workbench.simulation import Simulation, SimulationResult
from ovirt_scheduler.workbench.snapshot import Snapshot
from tests.support.paths import PROJECT


@pytest.fixture(scope="module")
def plugin_texts() -> Mapping[str, str]:
    """The module's plugins: names and what their files hold."""
    return {}


@pytest.fixture(scope="module")
def running(
    plugin_texts: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runtime]:
    """The parts that answer calls, with plugins of the module and the samples."""
    plugins = tmp_path_factory.mktemp("plugins")
    for name, text in plugin_texts.items():
        (plugins / f"{name}.py").write_text(text, "utf-8")
    conf = plugins / "scheduler.conf"
    conf.write_text(
        f"plugins_path = {plugins}:{PROJECT / 'plugins'}\nplugins_conf_path = {plugins}"
    )
    with runtime.started(scheduler_conf.load(conf, {})) as started:
        started.registry.refresh()
        yield started


@pytest.fixture
def simulate(running: Runtime, tmp_path: Path) -> Callable[..., SimulationResult]:
    """Plays a snapshot under a section's keys."""

    def play(
        taken: Snapshot,
        happens: str = "",
        seed: int = 0,
        most: int = 100,
        tell: Callable[[str], None] = lambda _: None,
        **keys: str,
    ) -> SimulationResult:
        file = tmp_path / "scenario.conf"
        file.write_text(happens)
        read = scenario.read(file)
        settings = changed_section(ClusterSettings("Default"), keys, "--set")
        return Simulation(running, taken, settings, read, seed, most, tell).run()

    return play
