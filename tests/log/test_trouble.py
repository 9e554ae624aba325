"""What is told of the failures of a thread that goes on after each of them."""

from __future__ import annotations

import pytest

from ovirt_scheduler.log.trouble import Trouble


def test_failures_in_a_row_are_told_once_and_begin_anew_after_a_turn_that_was_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trouble = Trouble("counting sheep")
    for turns in (1, 2):
        pauses = [trouble.note(IndexError("odd")) for _ in range(12)]
        assert pauses[:3] == [0.25, 0.5, 1.0]
        assert pauses[-1] == 60.0
        assert trouble.problem == "IndexError: odd"
        assert trouble.failures == 12 * turns
        assert caplog.text.count("counting sheep: IndexError: odd") == turns
        trouble.clear()
        assert trouble.problem == ""


def test_another_failure_is_told_and_pauses_longer_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trouble = Trouble("counting sheep")
    assert [trouble.note(IndexError(text)) for text in ("a", "b", "a")] == [0.25, 0.5, 1.0]
    assert len(caplog.records) == 3
