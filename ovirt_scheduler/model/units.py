"""Policy units: what kinds there are, and what one of them is."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Optional

from ovirt_scheduler.model.plugins import Limits, PluginCode, PropertySet
from ovirt_scheduler.model.tasks import Function, Returns, Setup

LONGEST_NAME = 128  # characters of the name of a unit or a driver (contract 3.1)
MOST_UNITS = 256  # that one call may name


_OF_KIND = {
    "filter": ("runFilters", "do_filter", ("hosts", "vm", "properties"), Returns.HOSTS),
    "cost_function": (
        "runCostFunctions", "do_score", ("hosts", "vm", "properties"), Returns.COSTS
    ),
    "balance": ("runLoadBalancing", "do_balance", ("hosts", "properties"), Returns.MIGRATION),
}  # fmt: skip


class Kind(enum.Enum):
    """What a policy unit does; the value is the word of conf files.

    Attributes:
        method: of XML-RPC, which calls units of the kind.
        function: the name of the plugin's function.
        parameters: what the function takes, in this order.
        returns: what the function returns.
        label: the kind in all that is shown, to people and to programs: ``cost function``.
    """

    FILTER = "filter"
    COST_FUNCTION = "cost_function"
    BALANCE = "balance"

    def __init__(self, value: str) -> None:
        self.method, self.function, self.parameters, self.returns = _OF_KIND[value]
        self.label = value.replace("_", " ")

    @classmethod
    def _missing_(cls, value: object) -> Optional[Kind]:
        """The kind of another spelling, as that of the label."""
        spelt = str(value).strip().lower().replace(" ", "_").replace("-", "_")
        return next((kind for kind in cls if kind.value == spelt), None)


class OnFailure(enum.Enum):
    """What a failed filter does to the hosts: nothing, or it rejects them all."""

    IGNORE = "ignore"
    REJECT = "reject"


@dataclass(frozen=True)
class PolicyUnit:
    """One filter, cost function or balance, ready to be called."""

    name: str
    kind: Kind
    description: str
    plugin: PluginCode
    checksum: str  # "sha256:" and hex digits, over the plugin file and its conf file
    limits: Limits
    properties: Optional[PropertySet] = None
    on_failure: OnFailure = OnFailure.IGNORE
    class_name: Optional[str] = None  # of a class unit; None: a function unit
    shadow: bool = False  # it looks on, and counts for nothing

    @functools.cached_property
    def function(self) -> Function:
        """The function to call; nothing in it depends on the call."""
        return Function(
            self.name,
            self.kind.label,
            self.kind.function,
            self.kind.returns,
            self.class_name,
            self.kind.parameters,
            takes_ids=self.class_name is not None,
            properties=self.properties,
        )

    @functools.cached_property
    def setup(self) -> Setup:
        """The first task of its processes."""
        return Setup(self.plugin, self.limits)

    @property
    def label(self) -> str:
        """The kind of unit in a sentence: ``cost function``, ``filter in shadow``."""
        return f"{self.kind.label} in shadow" if self.shadow else self.kind.label

    @property
    def mode(self) -> str:
        """Whether it counts, in the record's words."""
        return "shadow" if self.shadow else "live"


class UnitCall(NamedTuple):
    """One unit to call, with the properties as they were given."""

    unit: PolicyUnit
    properties: Mapping[str, str]
    factor: int = 1  # of a cost function
    functions: int = 1  # cost functions that the request names, which bound each one's costs
