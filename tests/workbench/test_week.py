"""A simulated week under the default hold and margin."""

from __future__ import annotations

import pytest

from bench import week
from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.settings import config


@pytest.mark.long
def test_few_migrations_of_a_week_are_undone_and_the_hosts_are_less_unequal(tmp_path):
    """Less than one in ten within an hour, while load rises and falls and hosts fail."""
    conf = tmp_path / "scheduler.conf"
    conf.touch()
    with runtime.started(config.load(conf, {})) as running:
        driven, left_alone = (
            week.judged(week.play(running, tmp_path / "week.conf", named))
            for named in ("evenly_distribute", "none")
        )
    assert driven.migrations > 50
    assert driven.undone < driven.migrations / 10
    assert driven.imbalance < left_alone.imbalance
    assert left_alone.migrations == 0
