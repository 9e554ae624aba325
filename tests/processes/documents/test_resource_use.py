"""What is used of hosts and by VMs, counted of documents."""

from __future__ import annotations

import pytest

from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.processes.documents import entity_states, parser, resource_use

TOPOLOGY = "<cpu><topology><sockets>2</sockets><cores>4</cores></topology></cpu>"
SIZE = "<memory>100</memory><max_scheduling_memory>30</max_scheduling_memory>"
UNMEASURED = {f"cpu_current_{name}": 0 for name in ("user", "system", "idle")}


def statistics(**values):
    return "<statistics>{}</statistics>".format(
        "".join(
            f"<statistic id='{name}'><name>{name.replace('_', '.')}</name>"
            f"<values><value><datum>{datum}</datum></value></values></statistic>"
            for name, datum in values.items()
        )
    )


def state(kind, content):
    one = "host" if kind is parser.HOSTS else "vm"
    document = f"<{one}s><{one} id='a'>{content}</{one}></{one}s>"
    return entity_states.read_states(Document(document.encode()), kind)[0][0]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", [0, 0, 0, 0]),
        ("<memory>100</memory>", [0, 0, 0, 0]),
        (SIZE, [0, 0, 100, 70, 30]),
        ("<memory>100</memory>" + statistics(memory_free=40), [0, 0, 100, 60]),
        ("<memory>100</memory>" + statistics(memory_used=20, memory_free=40), [0, 0, 100, 20]),
        (TOPOLOGY, [0, 0, 0, 0]),
        (TOPOLOGY + statistics(cpu_current_idle=75), [8, 2, 0, 0]),
        (TOPOLOGY + statistics(cpu_current_user=20, cpu_current_system=5), [8, 2, 0, 0]),
        (TOPOLOGY + statistics(cpu_current_user=200), [8, 8, 0, 0]),
        (TOPOLOGY + statistics(**UNMEASURED), [0, 0, 0, 0]),
        (
            f"<memory>100</memory>{TOPOLOGY}" + statistics(**UNMEASURED, memory_used=20),
            [0, 0, 100, 20],
        ),
        (f"{SIZE}{TOPOLOGY}" + statistics(**UNMEASURED, memory_used=0), [0, 0, 100, 70, 30]),
        (TOPOLOGY + statistics(**{**UNMEASURED, "cpu_current_user": 100}), [8, 8, 0, 0]),
        ("<memory>100</memory>" + statistics(memory_used="1e99"), [0, 0, 0, 0]),
        ("<memory>100</memory>" + statistics(memory_used="NaN"), [0, 0, 0, 0]),
        ("<memory>100</memory>" + statistics(memory_used="-1"), [0, 0, 0, 0]),
        (f"<memory>{10**30}</memory>" + statistics(memory_used=1), [0, 0, 1 << 62, 1]),
    ],
)
def test_of_a_host_is_counted_what_it_tells(content, expected):
    """What it does not tell how much is used of counts as though it had none."""
    assert resource_use.of_host(state(parser.HOSTS, content)) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", [1, 0]),
        ("<memory>100</memory>" + TOPOLOGY, [8, 100]),
        (TOPOLOGY + statistics(cpu_current_total=150), [8, 0, 1.5]),
    ],
)
def test_of_a_vm_is_counted_what_it_tells(content, expected):
    """Where nobody says how busy it is, that is not said."""
    assert resource_use.of_vm(state(parser.VMS, content)) == expected
