"""The measure of imbalance."""

from __future__ import annotations

import pytest

from ovirt_scheduler.model.cluster_state import imbalance


@pytest.mark.parametrize(
    ("used", "percent"),
    [
        ([], 0), ([0.7], 0), ([0, 0], 0), ([1, 1, 1], 0), ([0.4, 0.4, 0.4], 0),
        ([1, 0], 100), ([1, 1, 0, 0, 0], 100), ([1.7, 0, -0.3], 100),
        ([0.75, 0.25], 50),  # deviation 0.25; the largest with a mean of 0.5 is 0.5
        ([0.6, 0.4, 0.5, 0.5], 14.142),  # the root of 0.005, over 0.5
        ([0.02, 0], 10.050), ([0.5, 0], 57.735), ([1, 0.5, 0], 81.650),
    ],
)  # fmt: skip
def test_hosts_used_alike_are_0_and_packed_ones_100(used, percent):
    """Worked out by hand."""
    assert imbalance(used) == pytest.approx(percent, abs=0.001)
