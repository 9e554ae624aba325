"""What a driver is: it publishes methods under a topic, or is a scheduler, in whole or in part.

``INTERFACE_METHODS`` is the table of what a scheduler may define; ``interfaces`` has the same as
classes, for plugins to derive from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from ovirt_scheduler.model.analysis import PublishedMethod
from ovirt_scheduler.model.decisions import Execution, ShadowCall
from ovirt_scheduler.model.plugins import Limits, PluginCode, PropertySet
from ovirt_scheduler.model.requests import AnswerForm, Caller, Hosts, Vm, WantedUnit
from ovirt_scheduler.model.tasks import Returns
from ovirt_scheduler.model.units import UnitCall


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
    def only_ours(self) -> bool:
        """Whether it comes with the package, and no caller can name it."""
        return self.shipped and not self.interfaces and self.topic is None

    @property
    def words(self) -> str:
        """What it is, in a sentence."""
        return "scheduler" if self.interfaces else "driver"

    def method(self, name: str) -> Optional[PublishedMethod]:
        """The published method of that name; None where there is none."""
        return next((method for method in self.methods if method.name == name), None)

    def defines(self, method: str) -> Optional[InterfaceMethod]:
        """The method of an interface that it defines; None for any other."""
        found = INTERFACE_METHODS.get(method)
        return found if found is not None and found.interface in self.interfaces else None


Vms = Hosts  # ids, or a document of <vms>


class Subjects(NamedTuple):
    """What a scheduler's method is about: documents, or ids (contract 1.4)."""

    hosts: Hosts = ()
    vms: Vms = ()
    vm: Optional[Vm] = None
    host: Optional[Vm] = None  # whose status has changed: an id, or a document


# Ids of hosts; a yes or no; VM id to host ids; or what a method of the driver's own gave back.
Migrations = Mapping[str, tuple[str, ...]]
# VM id to the hosts that it may go to, each with its cost; a VM that is not there may go to any.
Destinations = Mapping[str, Mapping[str, int]]
# ``Returns`` says which of them it is: no union could hold a driver's own values apart.
DriverAnswer = Any


class StatusChange(NamedTuple):
    """What one call of a hook is about."""

    subject: str  # the id of the host or VM, as the hook is one for hosts or for VMs
    old_status: str
    new_status: str


class DriverRequest(NamedTuple):
    """A call of one method of a driver, decoded.

    Attributes:
        arguments: those beside the subjects and the properties, by their names.
        filters, cost_functions: policy units that run before, where the method selects hosts.
        destinations: as far as they are known, where the method migrates VMs.
    """

    caller: Caller
    driver: DriverUnit
    method: str
    subjects: Subjects = Subjects()
    arguments: Mapping[str, object] = {}
    properties: Mapping[str, str] = {}
    filters: tuple[WantedUnit, ...] = ()
    cost_functions: tuple[WantedUnit, ...] = ()
    destinations: Destinations = {}  # noqa: RUF012  nobody changes it

    @property
    def defined(self) -> Optional[InterfaceMethod]:
        """The method of an interface that is called; None where the driver publishes its own."""
        return self.driver.defines(self.method)

    @property
    def returns(self) -> Returns:
        """What the method returns."""
        return Returns.VALUE if self.defined is None else self.defined.returns

    @property
    def strict(self) -> bool:
        """Whether a property's value that is refused ends it all (contract 1.5)."""
        return self.caller.form is AnswerForm.DESIGN

    def of(self, change: StatusChange) -> DriverRequest:
        """The same for a change of a status, under an id of its own."""
        if self.method == "on_host_status_changed":
            subjects = self.subjects._replace(host=change.subject)
        else:
            subjects = self.subjects._replace(vm=change.subject)
        statuses = {"old_status": change.old_status, "new_status": change.new_status}
        caller = Caller.of_cluster(self.caller.cluster)
        return self._replace(caller=caller, subjects=subjects, arguments=statuses)


class DriverDecision(NamedTuple):
    """The whole record of one answered request."""

    request: DriverRequest
    execution: Execution
    answer: DriverAnswer  # where there is none of the driver's: that nothing is to be done
    errors: tuple[str, ...] = ()
    unit_errors: Mapping[str, tuple[str, ...]] = {}
    filters: tuple[UnitCall, ...] = ()  # those that were to be called
    cost_functions: tuple[UnitCall, ...] = ()
    time: float = 0.0  # when it was asked for, in seconds since 1970
    seconds: float = 0.0  # that it took
    secret: str = ""  # the token for the engine that plugins were given
    shadows: tuple[ShadowCall, ...] = ()

    @property
    def failure(self) -> Optional[str]:
        """Why the driver gave no answer; None where it gave one, or was not called."""
        result = self.execution.result
        return None if result is None or result.ok else result.message
