"""The pytest plugin for authors of plugins: fixtures that make a cluster, and run plugins on it.

::

    PLUGIN = Path(__file__).parents[1] / "Quiet.py"

    def test_a_busy_host_is_rejected(make_host, run_filter):
        hosts = [make_host("idle", running=1), make_host("busy", running=30)]
        assert run_filter(PLUGIN, hosts, properties={"most": 20}) == ["idle"]

A plugin runs as in the daemon: its file is loaded with the conf file beside it, hosts and VMs
reach it as documents, and each call is made in a process of the plugin's own, under its limits.
Answers have the names of hosts and VMs. If the call fails, the test fails with the plugin's
traceback.

``engine_connection()`` reaches a fake engine on the loopback, which has the hosts and VMs of the
call. As with a real engine, tags, affinity labels and statistics need their own query.

pytest loads this module in every run where the package is installed. All else, such as the SDK,
is loaded by the first fixture that is used; processes start with the first plugin that is run.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Callable, Optional

import pytest

if TYPE_CHECKING:
    from ovirt_scheduler.testing.runs import Runs


@pytest.fixture(scope="session")
def _ovirt_scheduler_module() -> Any:
    return importlib.import_module("ovirt_scheduler.testing.runs")


@pytest.fixture(scope="session")
def _ovirt_scheduler_runs(
    _ovirt_scheduler_module: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runs]:
    with _ovirt_scheduler_module.started(tmp_path_factory.mktemp("ovirt-scheduler")) as started:
        yield started


@pytest.fixture
def make_host(_ovirt_scheduler_module: Any) -> Any:
    """``make_host(name, …)`` makes a ``types.Host``: up, with 64 GiB and 16 processors.

    Args:
        name: of the host; its id is made of it.
        running: VMs that run on it, for ``summary``.
        processors: for ``cpu``, in one socket.
        cluster: a ``types.Cluster``; one named Default unless said.
        tags, affinity_labels: their names.
        statistics: a dict of numbers by name, such as ``{"memory.free": 2**30}``.
        Others: attributes of ``types.Host``; ``max_scheduling_memory`` is ``memory`` unless said.
    """
    return _ovirt_scheduler_module.make_host


@pytest.fixture
def make_vm(_ovirt_scheduler_module: Any) -> Any:
    """``make_vm(name, …)`` makes a ``types.Vm``: up, with 4 GiB and one processor.

    Args:
        name: of the VM; its id is made of it.
        host: the ``types.Host`` that it runs on.
        processors, cluster, tags, affinity_labels, statistics: as for ``make_host``.
        Others: attributes of ``types.Vm``.
    """
    return _ovirt_scheduler_module.make_vm


@pytest.fixture
def make_cluster(_ovirt_scheduler_module: Any) -> Any:
    """``make_cluster(name, …)`` makes a ``types.Cluster``, with any of its attributes."""
    return _ovirt_scheduler_module.make_cluster


@pytest.fixture
def saved_cluster(_ovirt_scheduler_module: Any) -> Any:
    """``saved_cluster(path)`` gives the hosts and the VMs that ``ovirt-scheduler snapshot`` saved.

    Both are lists of entities, with their tags, affinity labels and statistics.
    """
    return _ovirt_scheduler_module.saved_cluster


@pytest.fixture
def run_filter(_ovirt_scheduler_runs: Runs) -> Callable[..., list[str]]:
    """``run_filter(plugin, hosts, vm, …)`` gives the names of the hosts that a filter keeps.

    Args:
        plugin: the path of its file.
        hosts: those to choose from.
        vm: the VM to start; one with the defaults of ``make_vm`` unless said.
        vms: all VMs of the cluster, for plugins that ask the engine.
        properties: values by name, as an administrator gives them.
        unit: the unit's name, where the file has several.
    """
    return functools.partial(_ovirt_scheduler_runs.run_unit, "filter")


@pytest.fixture
def run_score(_ovirt_scheduler_runs: Runs) -> Callable[..., dict[str, int]]:
    """``run_score(plugin, hosts, vm, …)`` gives the cost of each host by its name.

    Takes what ``run_filter`` takes.
    """
    return functools.partial(_ovirt_scheduler_runs.run_unit, "cost_function")


@pytest.fixture
def run_balance(_ovirt_scheduler_runs: Runs) -> Callable[..., Optional[tuple[str, list[str]]]]:
    """``run_balance(plugin, hosts, vms=…)`` gives the VM to migrate, and where it may go.

    Takes what ``run_filter`` takes, except ``vm``. None: nothing is to be done.
    """
    return functools.partial(_ovirt_scheduler_runs.run_unit, "balance")


@pytest.fixture
def run_scheduler(_ovirt_scheduler_runs: Runs) -> Callable[..., Any]:
    """``run_scheduler(plugin, method, hosts, vms, …)`` calls a method of a scheduler.

    Gives names of hosts, the best first, for ``candidates`` and ``select_host``; True or False
    for ``has_any_hosts``; for others a dict: the VM's name to the names of its hosts.

    Args:
        plugin: the path of its file.
        method: of one of the interfaces, such as ``load_balance``.
        hosts, vms: of the cluster; ``vm.host`` is the host that one runs on.
        vm: the VM to start, or whose status has changed.
        host: the one whose status has changed.
        old_status, new_status: the engine's words, such as ``maintenance``.
        properties: values by name.
        filters: paths of plugins whose filters run before.
        cost_functions: a dict of factors by the paths of plugins, for ``self.costs``.
        scheduler: its name, where the file has several.
    """
    return _ovirt_scheduler_runs.run_scheduler


@pytest.fixture
def run_topic(_ovirt_scheduler_runs: Runs) -> Callable[..., Any]:
    """``run_topic(plugin, method, **arguments)`` gives what a driver's own method returns."""
    return _ovirt_scheduler_runs.run_topic
