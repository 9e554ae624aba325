"""What is shown of a cluster that is looked after."""

from __future__ import annotations

import pytest

from ovirt_scheduler.clusters import overview
from ovirt_scheduler.model.requests import RequestedUnit
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.settings.value_types import Drive
from tests.support.looks import Looks
from tests.support.rest_server import GIB, Host, Vm


def test_hosts_have_their_vms_now_and_their_use_of_the_last_balancing(looks: Looks) -> None:
    looks.engine.hosts = [Host(name, measured=True) for name in ("lynx", "puma")]
    looks.engine.vms = [Vm("web", "lynx", memory=4 * GIB), Vm("db", "puma", memory=8 * GIB)]
    looks.begin(Drive.DRY_RUN, load_balance_interval=600.0, policy="none")
    assert looks.cluster.state().hosts == ()
    looks.look()
    looks.engine.vms[0].host = looks.engine.vms[1].host
    looks.cluster._reader.note_named(None)
    looks.look(2.0)  # without statistics
    lynx, puma = looks.cluster.state().hosts
    assert ({name for _, name in puma.vms}, lynx.vms) == ({"web", "db"}, ())
    assert (lynx.name, lynx.status, [*lynx.used]) == ("lynx", "up", ["memory"])
    assert lynx.used["memory"] > 0
    looks.look(10.0)
    times, course = zip(*looks.cluster.state().course)
    assert (len(course), sorted(times) == [*times]) == (2, True)
    assert course[-1] == pytest.approx(looks.cluster.state().imbalance)


def test_a_section_is_shown_in_words() -> None:
    section = ClusterSettings(
        "Default", filters=(RequestedUnit("MaxVms"),), cost_functions=(RequestedUnit("Even", 3),),
        hold=90.0, margin=7.5, policy="power_saving",
        properties={"policy": "power_saving", "high_utilization": "80"},
    )  # fmt: skip
    words = overview.policy(section)
    assert [words[each] for each in ("Filters", "Cost functions", "Hold", "Margin")] == [
        "MaxVms", "Even × 3", "1.5 min", "7.5 %",
    ]  # fmt: skip
    assert "Balance" not in words
    assert (words["Policy"], words["Properties"]) == ("power_saving", "high_utilization=80")
