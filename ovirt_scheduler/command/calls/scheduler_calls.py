"""The calls of ``try`` to the schedulers and drivers of a file: its own, or that of ``--call``."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree

from ovirt_scheduler.command.calls import commands, input_files
from ovirt_scheduler.command.calls.daemon_client import MethodCaller
from ovirt_scheduler.command.calls.input_files import CommandInputs, HostsInput
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.errors import BadInput, BadUsage
from ovirt_scheduler.model.drivers import INTERFACE_METHODS, DriverUnit
from ovirt_scheduler.model.values import spelling

# The methods that --call takes: get_selected_hosts has no answer here, as no call knows another.
_CALLED_METHODS = [each for each in INTERFACE_METHODS if each != "get_selected_hosts"]
_MOST_NAMED = 10  # hosts or VMs in a message, where no name is like the one that was typed
_BY_ITSELF = ("select_host", "load_balance", "on_timer_invoked")
_WORDS = {"host": "host", "vm": "VM"}
_SUBJECTS = {"on_vm_status_changed": "vm", "on_host_status_changed": "host"}


def by_itself(driver: DriverUnit, call_inputs: CommandInputs) -> list[str]:
    """The methods that ``try`` calls without ``--call``."""
    defined = [method for method in _BY_ITSELF if driver.defines(method)]
    return [method for method in defined if method == "select_host" or call_inputs.vms]


def uncalled_notes(driver: DriverUnit, call_inputs: CommandInputs) -> Iterator[str]:
    """Notes on the methods that need VMs or ``--call``."""
    called = by_itself(driver, call_inputs)
    of_driver = f"{driver.label} {driver.name}"
    lacking = [each for each in _BY_ITSELF if driver.defines(each) and each not in called]
    if lacking:
        yield f"{of_driver}: give --vms to call {' and '.join(lacking)}"
    for method, subject in _SUBJECTS.items():
        if driver.defines(method):
            yield f"{of_driver}: --call {method} {subject}=NAME new_status=STATUS calls this hook"
    own = [each for each in driver.methods if each.name not in INTERFACE_METHODS]
    for published in own if driver.topic else ():
        yield f"{of_driver}: --call {published.name} calls {published.name}{published.signature}"


def with_method(drivers: Sequence[DriverUnit], path: str, method: str) -> list[DriverUnit]:
    """The drivers of a file that have a method.

    Raises:
        BadUsage: none has it; the text lists the methods, and the one that may be meant.
    """
    matching = [driver for driver in drivers if method in _callable(driver)]
    if not matching:
        there = list(dict.fromkeys(each for driver in drivers for each in _callable(driver)))
        offer = f"there are {', '.join(there)}" if there else "it has no scheduler and no driver"
        hint = spelling.hint(method, there)
        raise BadUsage(f"--call {method}: {path} has no such method; {offer}{hint}")
    return matching


def call_method(
    call: MethodCaller,
    driver: DriverUnit,
    method: str,
    words: Sequence[str],
    call_inputs: CommandInputs,
) -> Shown:
    """Call one of the methods that ``with_method`` knows.

    Args:
        words: its arguments as ``KEY=VALUE``; of a hook: ``host`` or ``vm`` by name or id,
            ``old_status`` unless that is the status in the document, ``new_status``.
        call_inputs: the other arguments of methods of the interfaces.

    Raises:
        BadUsage: an argument is missing or unknown.
        BadInput: a file that an argument names cannot be read.
    """
    if driver.defines(method) is None:
        return commands.schedule(call, str(driver.topic), method, input_files.json_pairs(words))
    named, subject = input_files.pairs(words, "--call"), _SUBJECTS.get(method)
    accepted = [] if subject is None else [subject, "old_status", "new_status"]
    for name in named:
        if name not in accepted:
            takes = f"it takes {', '.join(accepted)}" if accepted else "it takes none"
            raise BadUsage(
                f"--call {method}: {name} is no argument of it{spelling.hint(name, accepted)}; "
                f"{takes}, and --property gives properties"
            )
    if not call_inputs.hosts:
        raise BadUsage(f"{method} is about hosts: give --hosts FILE, or --cluster FILE")
    if method in ("candidates", "select_host"):
        return commands.select_host(call, driver.name, call_inputs)
    if method == "has_any_hosts":
        return commands.any_hosts(call, driver.name, call_inputs)
    if not call_inputs.vms:
        raise BadUsage(f"{method} is about VMs: give --vms FILE, or --cluster FILE")
    change: tuple[str, ...] = ()
    if subject is not None:
        change, call_inputs = _change(method, subject, named, call_inputs)
    first, *others = method.split("_")
    of_xml_rpc = "".join([first, *map(str.title, others)])
    return commands.migrations(call, of_xml_rpc, driver.name, call_inputs, change)


def _callable(driver: DriverUnit) -> list[str]:
    own = [each.name for each in driver.methods if each.name not in INTERFACE_METHODS]
    return [*filter(driver.defines, _CALLED_METHODS), *(own if driver.topic else ())]


def _change(
    method: str, subject: str, named: Mapping[str, str], call_inputs: CommandInputs
) -> tuple[tuple[str, ...], CommandInputs]:
    """The arguments of a hook, and the documents after the change."""
    for name in (subject, "new_status"):
        if not named.get(name):
            raise BadUsage(f"--call {method}: give {name}=… too")
    document = call_inputs.hosts if subject == "host" else call_inputs.vms
    identity = find(document, subject, named[subject])
    former, changed = _with_status(document, identity, named["new_status"])
    old = named.get("old_status") or former
    if not old:
        raise BadUsage(f"--call {method}: give old_status=… too; no document tells it")
    # The SDK is loaded here, as few commands need it.
    types = importlib.import_module("ovirtsdk4.types")
    statuses = [each.value for each in (types.HostStatus if subject == "host" else types.VmStatus)]
    for status in (old, named["new_status"]):  # a misspelt one would call a hook without effect
        if status not in statuses:
            hint = spelling.hint(status, statuses)
            raise BadUsage(f"--call {method}: no {_WORDS[subject]} has the status {status!r}{hint}")
    if subject == "host":
        call_inputs = call_inputs._replace(hosts=changed)
    else:
        call_inputs = call_inputs._replace(vms=changed)
    return (identity, old, named["new_status"]), call_inputs


def find(document: HostsInput, subject: str, name_or_id: str) -> str:
    """The id of the host or VM of that name or id.

    Raises:
        BadUsage: it is not among them; the text names the one that may be meant.
        BadInput: there is none at all.
    """
    names = input_files.names(document, subject)
    if not names:
        raise BadInput(f"the document of {_WORDS[subject]}s cannot be read, or there is none in it")
    for identity, name in names.items():
        if name_or_id in (identity, name):
            return identity
    named = [name or identity for identity, name in names.items()]
    more = ", …" if len(named) > _MOST_NAMED else ""
    hint = spelling.hint(name_or_id, named) or f"; there are {', '.join(named[:_MOST_NAMED])}{more}"
    raise BadUsage(f"there is no {_WORDS[subject]} {name_or_id!r} among the {len(names)}{hint}")


def _with_status(document: HostsInput, identity: str, status: str) -> tuple[str, HostsInput]:
    """The status in a document, and the document with another one."""
    if not isinstance(document, str):
        return "", document
    root = ElementTree.fromstring(document)  # noqa: S314  a file of whoever runs the command
    element = next(each for each in (root, *root) if each.get("id") == identity)
    state = element.find("status/state")  # version 3
    state = element.find("status") if state is None else state
    state = ElementTree.SubElement(element, "status") if state is None else state
    former, state.text = state.text or "", status
    return former, ElementTree.tostring(root, encoding="unicode")
