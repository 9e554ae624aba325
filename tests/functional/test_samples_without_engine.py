"""The samples in plugins/, run by a daemon that reaches no engine: none guesses (contract 5.6)."""

from __future__ import annotations

import json

import pytest

from tests.support.paths import PROJECT
from tests.support.rest_server import RestServer, id_of
from tests.support.samples import CONF, VM, three_hosts


@pytest.fixture(scope="module")
def lonely(start_daemon):
    """A daemon without an [engine] section."""
    return start_daemon(PROJECT / "plugins", CONF)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("runFilters", "MaxVms"),
        ("runFilters", "Memory"),
        ("runCostFunctions", "EvenVms"),
        ("runCostFunctions", "Memory"),
        ("runCostFunctions", "KsmScore"),
        ("runLoadBalancing", "VmBalance"),
        ("runLoadBalancing", "Memory"),
        ("runLoadBalancing", "HostMemoryBalance"),
    ],
)
def test_without_the_engine_a_sample_fails_and_does_not_guess(lonely, method, name):
    """Where only ids came: a sentence for the administrator in plugin_errors."""
    ids = [id_of("lynx"), id_of("puma")]
    arguments = {
        "runFilters": ([name], ids, VM.id, {}),
        "runCostFunctions": ([[name, 1]], ids, VM.id, {}),
        "runLoadBalancing": (name, ids, {}),
    }[method]
    with lonely.proxy("/engine") as proxy:
        answer = getattr(proxy, method)(*arguments)
    (message,) = answer["plugin_errors"][name]
    assert "the engine did not tell" in message or "no connection to the engine" in message
    nothing = {"runFilters": ids, "runCostFunctions": [], "runLoadBalancing": ["", []]}
    assert answer["result"] == nothing[method]


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("runCostFunctions", "KsmScore"),
        ("runLoadBalancing", "VmBalance"),
        ("runLoadBalancing", "HostMemoryBalance"),
    ],
)
def test_what_needs_vms_says_that_the_engine_is_missing(lonely, tmp_path, method, name):
    """Even where documents came along."""
    hosts, vms = three_hosts(6, 1)
    with RestServer(tmp_path, hosts, [*vms, VM]) as engine:
        document, vm = engine.hosts_document(), engine.vm_document(VM.name)
    arguments = {
        "runCostFunctions": ([[name, 1]], document, vm, {}),
        "runLoadBalancing": (name, document, {}),
    }[method]
    with lonely.proxy("/engine") as proxy:
        answer = getattr(proxy, method)(*arguments)
    assert "scheduler.conf has no [engine] section" in json.dumps(answer["plugin_errors"][name])
