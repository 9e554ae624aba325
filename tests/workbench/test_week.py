"""What is measured of simulations: a week under the default hold and margin, and how long one takes."""

from __future__ import annotations

import re
import sys

import pytest

from bench import week, week_rules
from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.settings import scheduler_conf
from tests.support.command import executed


@pytest.mark.long
def test_few_migrations_of_a_week_are_undone_and_the_hosts_are_less_unequal(tmp_path):
    """Less than one in ten within an hour, while load rises and falls and hosts fail.

    So it is if some are refused, fail or are undone by others; none is asked for again meanwhile.
    """
    conf = tmp_path / "scheduler.conf"
    conf.touch()
    with runtime.started(scheduler_conf.load(conf, {})) as running:
        driven, left_alone = (
            week.judged(week.play(running, tmp_path / "week.conf", policy=named))
            for named in ("evenly_distribute", "none")
        )
        hindered, outcome = week.hinder(running, tmp_path / "week.conf", policy="evenly_distribute")
    assert driven.migrations > 50
    assert driven.undone < driven.migrations / 10
    assert driven.imbalance < left_alone.imbalance
    assert left_alone.migrations == 0
    assert min(hindered.refused, hindered.failed, hindered.taken_back) > 0
    assert hindered.again == 0
    assert week.judged(outcome).imbalance <= week.MOST_TIMES * driven.imbalance


@pytest.mark.long
def test_the_benchmark_of_simulations_tells_what_one_takes():
    """On a few hosts."""
    ended = executed(
        sys.executable, "-m", "bench.simulate", "--hosts=6", "--vms=30", "--placements=4"
    )
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^VMs placed +4$", ended.stdout, re.MULTILINE)
    assert re.search(r"^simulated: [0-9.]+ s; processor time", ended.stdout, re.MULTILINE)


# A day in which web and batch are busy at other times, and a host fails.
_DAY = """\
hours = 24
[hosts]
[[host2]]
fails = 6.5
returns = 9
[load]
[[web-*]]
lowest = 20
highest = 170
peak = 14
[[batch-*]]
lowest = 30
highest = 180
peak = 3
"""


@pytest.mark.long
@pytest.mark.parametrize("may_ask", [True, False])
def test_no_hard_rule_is_broken_after_the_first_hour_of_a_day_with_groups(tmp_path, may_ask):
    """What was broken is mended, as a checker finds that knows only the groups and the moves."""
    conf = tmp_path / "scheduler.conf"
    conf.touch()
    with runtime.started(scheduler_conf.load(conf, {})) as running:
        outcome, course = week_rules.play(running, tmp_path / "day.conf", _DAY, may_ask)
    assert len(course[0][1]) >= 3
    assert [names for hour, names in course if hour >= 1 and names] == []
    assert not [name for name in outcome.views[-1].broken if "hard" in name]
    assert not (may_ask and outcome.refused)


def test_the_checker_of_rules_finds_each_kind_of_broken_rule():
    """By the groups and the moves alone."""
    where = {"web-0": "host9", "web-3": "host9", "web-15": "host1", "web-18": "host2"}
    where = {**where, "batch-10": "host5", "desk-11": "host0"}
    checker = week_rules.Checker(week_rules.GROUPS, where)
    names = ["web apart", "web pair", "licence", "no licence"]
    assert [*checker.broken()] == names
