"""What a driver is: it publishes methods under a topic, or is a scheduler, in whole or in part.

``INTERFACE_METHODS`` is the table of what a scheduler may define; ``interfaces`` has the same as
classes, for plugins to derive from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from ovirt_scheduler.model.analysis import PublishedMethod
from ovirt_scheduler.model.plugins import Limits, PluginCode, PropertySet
from ovirt_scheduler.model.tasks import Function, Returns, Setup


class InterfaceMethod(NamedTuple):
    """One method of the interfaces of a scheduler; it gets its arguments by position."""

    interface: str
    parameters: tuple[str, ...]
    returns: Returns


_SELECTS = ("hosts", "vm", "properties")
_BALANCES = ("hosts", "vms", "properties")
_STATUSES = ("old_status", "new_status")

INTERFACE_METHODS: Mapping[str, InterfaceMethod] = {
    "candidates": InterfaceMethod("HostSelector", _SELECTS, Returns.SELECTION),
    "select_host": InterfaceMethod("HostSelector", _SELECTS, Returns.SELECTION),
    "has_any_hosts": InterfaceMethod("HostSelector", _SELECTS, Returns.TRUTH),
    "get_selected_hosts": InterfaceMethod("HostSelector", (), Returns.IDS),
    "load_balance": InterfaceMethod("LoadBalancer", _BALANCES, Returns.MIGRATIONS),
    "on_timer_invoked": InterfaceMethod("TimerInvokedScheduler", _BALANCES, Returns.MIGRATIONS),
    "on_vm_status_changed": InterfaceMethod(
        "VmStatusChanged", ("vm", *_STATUSES, *_BALANCES), Returns.MIGRATIONS
    ),
    "on_host_status_changed": InterfaceMethod(
        "HostStatusChanged", ("host", *_STATUSES, *_BALANCES), Returns.MIGRATIONS
    ),
}
INTERFACES = tuple(dict.fromkeys(method.interface for method in INTERFACE_METHODS.values()))

# Properties that the daemon reads itself before it asks a scheduler for a host.
FILTERS, COST_FUNCTIONS = "filters", "cost_functions"
POLICY = "policy"  # the property that names one of a scheduler's policies


class DriverUnit(NamedTuple):
    """One driver, ready to be called."""

    name: str
    class_name: str
    id: str  # a UUID, made of the name
    version: str
    checksum: str  # as a policy unit's
    description: str
    plugin: PluginCode
    limits: Limits
    properties: PropertySet
    topic: Optional[str] = None  # None: it publishes nothing
    interfaces: tuple[str, ...] = ()  # of a scheduler: those that it defines
    methods: tuple[PublishedMethod, ...] = ()
    policies: tuple[str, ...] = ()
    written_for: Optional[str] = None
    line: int = 1  # of its class
    shipped: bool = False  # gives way to any other of its name, or on its topic

    @property
    def setup(self) -> Setup:
        """The first task of its processes."""
        return Setup(self.plugin, self.limits)

    def function(self, method: str) -> Function:
        """A method of an interface, or one that the driver publishes, as a process calls it."""
        defined = self.defines(method)
        returns = Returns.VALUE if defined is None else defined.returns
        parameters = None if defined is None else defined.parameters
        return Function(
            self.name, self.label, method, returns, self.class_name, parameters,
            properties=self.properties,
        )  # fmt: skip

    @property
    def label(self) -> str:
        """What it is, in a sentence."""
        return "scheduler" if self.interfaces else "driver"

    def method(self, name: str) -> Optional[PublishedMethod]:
        """The published method of that name; None if there is none."""
        return next((method for method in self.methods if method.name == name), None)

    def defines(self, method: str) -> Optional[InterfaceMethod]:
        """The method of an interface, if the driver defines it; else None."""
        defined = INTERFACE_METHODS.get(method)
        return defined if defined is not None and defined.interface in self.interfaces else None


# VM id to host ids, the best first; none for any host.
Migrations = Mapping[str, tuple[str, ...]]
# VM id to the hosts that it may go to, each with its cost; any other VM may go to any host.
Destinations = Mapping[str, Mapping[str, int]]
# Host id to what VMs will use there that come to it: by VM id, its processors and bytes of memory.
Coming = Mapping[str, Mapping[str, tuple[int, int]]]


def listed_units(text: str) -> list[str]:
    """The items in the value of ``filters`` or ``cost_functions``: ``MaxVms;Memory=2``."""
    return [name.strip() for name in text.split(";") if name.strip()]
