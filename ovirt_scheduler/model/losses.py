"""What the loss of a host of a cluster would do: which VMs would find no place."""

from __future__ import annotations

from typing import NamedTuple, Optional

from ovirt_scheduler.model.values.text import count_of


class UnplacedVm(NamedTuple):
    """A VM that has no place when its host fails.

    Attributes:
        vm: its name.
        why: no host takes it, in words; empty: nobody looked for that.
    """

    vm: str
    highly_available: bool
    why: str


class Loss(NamedTuple):
    """What the loss of a host does.

    Attributes:
        host: its name; empty: no host is lost.
        homeless: the VMs that have no place; those that are highly available first.
        more: how many more of the VM that is asked about fit then; None: none is.
        is_best: whether no other placement has a place for more VMs.
    """

    host: str
    homeless: tuple[UnplacedVm, ...] = ()
    more: Optional[int] = None
    is_best: bool = True

    @property
    def urgent(self) -> int:
        """How many of the VMs without a place are highly available."""
        return sum(vm.highly_available for vm in self.homeless)

    @property
    def severity(self) -> tuple[int, int]:
        """How many VMs have no place: first those that are highly available, then all."""
        return self.urgent, len(self.homeless)


class WorstLoss(NamedTuple):
    """The worst loss of a host of a cluster that is looked after.

    Attributes:
        loss: of the host whose VMs find a place least.
        time: when it was counted, in seconds since 1970.
        without: the filters that failed, and so do not count.
        reservation: how the cluster's ``ha_reservation`` differs from it; empty: it does not.
        is_logged: whether the log last said that VMs find no place.
    """

    loss: Loss
    time: float
    without: tuple[str, ...] = ()
    reservation: str = ""
    is_logged: bool = False


def reservation_words(reserves: Optional[bool], worst: Loss, has_urgent: bool) -> str:
    """How the ``ha_reservation`` of a cluster differs from what is counted; empty: it does not.

    Args:
        reserves: whether it is on; None: not known.
        worst: the worst loss that was counted.
        has_urgent: whether highly available VMs run in the cluster.
    """
    if reserves and worst.urgent:
        number = count_of(worst.urgent, "highly available VM")
        return (
            "ha_reservation of the cluster is on, and the engine counts without the site's rules: "
            f"by them {number} would have no place"
        )
    if reserves is False and has_urgent and not worst.urgent:
        return (
            "ha_reservation of the cluster is off: the engine does not watch that highly available "
            "VMs find a place, though all would"
        )
    return ""
