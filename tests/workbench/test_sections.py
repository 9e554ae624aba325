"""What a section with other keys says about who migrates VMs."""

from __future__ import annotations

import pytest

from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.workbench.sections import changed_section, used_policy


@pytest.mark.parametrize(
    ("changes", "used"),
    [
        ({}, {"policy": "none"}),
        ({"policy": "power_saving"}, {"policy": "power_saving"}),
        ({"scheduler": "Spread"}, {"scheduler": "Spread"}),  # whose first policy is not known here
        (
            {"scheduler": "Spread", "policy": "pack"},
            {"scheduler": "Spread", "policy": "pack"},
        ),
        ({"balance": "Quiet", "policy": "power_saving"}, {"balance": "Quiet"}),
    ],
)
def test_a_balance_comes_before_the_scheduler_and_its_policy(changes, used):
    assert used_policy(changed_section(ClusterSettings("Default"), changes, "--set")) == used
