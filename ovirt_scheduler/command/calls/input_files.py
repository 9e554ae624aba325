"""What a command reads for a call: hosts, a VM, properties, and the names of hosts."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Optional, Union
from xml.etree import ElementTree

from ovirt_scheduler.command import arguments
from ovirt_scheduler.errors import BadInput, BadUsage, UnreadableDocument
from ovirt_scheduler.model.requests import is_document
from ovirt_scheduler.security.atomic_file import read_whole

HostsInput = Union[str, tuple[str, ...]]  # a document, or ids (contract 1.4)

# The id of a VM that does not exist: for a call without a VM.
NO_VM = "00000000-0000-0000-0000-000000000000"


class CommandInputs(NamedTuple):
    """What a call is about."""

    hosts: HostsInput
    vm: str = NO_VM  # a document, or an id
    properties: Mapping[str, str] = {}
    vms: HostsInput = ()  # all of the cluster

    def parameters(self, with_vm: bool = True) -> tuple[object, ...]:
        """Hosts, VM and properties, as the methods of XML-RPC take them."""
        hosts = self.hosts if isinstance(self.hosts, str) else list(self.hosts)
        return (hosts, self.vm, self.properties) if with_vm else (hosts, self.properties)


def add(command: argparse.ArgumentParser, with_vm: bool, required: bool = True) -> None:
    """Add the options of a call about hosts."""
    command.add_argument(
        "--hosts", metavar="FILE", type=Path, required=required,
        help="a file with the XML document of the hosts, or with their ids; - is standard input",
    )  # fmt: skip
    if with_vm:
        arguments.add_options(command, {
            "--vm FILE": "a file with the XML document of the VM, or with its id (default: a VM of "
            "which nothing is known)",
        })  # fmt: skip
    text = "a property for the units; may be given several times"
    arguments.add_options(command, {"--property KEY=VALUE": text})


def read_options(options: argparse.Namespace) -> CommandInputs:
    """Read what the options of ``add`` name."""
    vm_file = getattr(options, "vm", None)  # of a balance there is none
    vm_input = NO_VM if vm_file is None else vm(vm_file)
    hosts_input = () if options.hosts is None else hosts(options.hosts)
    return CommandInputs(hosts_input, vm_input, pairs(options.property, "--property"))


@contextlib.contextmanager
def naming_files(options: argparse.Namespace) -> Iterator[None]:
    """Name the file in the message on a document that cannot be read.

    Raises:
        BadInput: a document of a file cannot be read.
    """
    files = {"hosts": getattr(options, "hosts", None), "vm": getattr(options, "vm", None)}
    for item in getattr(options, "argument", ()):
        key, _, value = item.partition("=")
        files[key] = Path(value[1:]) if value.startswith("@") else None
    try:
        yield
    except UnreadableDocument as error:
        subject = str(error).partition(":")[0].partition(",")[0].lower()
        file = files.get(subject)
        if file is None:
            raise
        raise BadInput(f"{_named(file)}: {error}") from None


_STDIN = Path("-")
_MOST_BYTES = 256 << 20  # of a file
_ID = re.compile(r"[\w.:-]+")


def hosts(file: Path, what: str = "host") -> HostsInput:
    """Read an XML document, or ids with white space between them; ``-`` is standard input.

    Args:
        what: the ids are those of: host or VM.

    Raises:
        BadInput: it cannot be read, is empty or holds neither.
    """
    text = _read(file)
    if is_document(text):
        return text
    ids = tuple(text.split())
    stray = next((word for word in ids if not _ID.fullmatch(word)), None)
    if stray is not None or not ids:
        path = f"{what.lower()}s"
        problem = "is empty, or was read before" if file == _STDIN else "is empty"
        if stray is not None:
            problem = f"{stray!r:.40} in it is no id of a {what}"
        raise BadInput(
            f"{_named(file)}: {problem}; give an XML document of {what}s "
            f"(/ovirt-engine/api/{path}), or ids"
        )
    return ids


def vm(file: Path) -> str:
    """Read an XML document, or one id; ``-`` is standard input.

    Raises:
        BadInput: it cannot be read, or is neither.
    """
    vms = hosts(file, "VM")
    if isinstance(vms, str):
        return vms
    if len(vms) > 1:
        raise BadInput(
            f"{_named(file)}: holds {len(vms)} ids; give the document or the id of one VM"
        )
    return vms[0]


def pairs(items: Iterable[str], option: str = "argument") -> dict[str, str]:
    """Read items of the form ``key=value``.

    Args:
        option: to which they were given, for the message.

    Raises:
        BadUsage: one has no ``=``.
    """
    values = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise BadUsage(f"{option} {item!r} is not of the form key=value")
        values[key] = value
    return values


def factors(option: str, items: Iterable[str]) -> Iterator[tuple[str, Optional[int]]]:
    """Read items of the form ``NAME`` or ``NAME=FACTOR``.

    Args:
        option: the option or command that has them, for the message.

    Raises:
        BadUsage: a factor is no integer of 32 bits, or a name occurs twice.
    """
    names: set[str] = set()
    for item in items:
        name, equals, factor = item.partition("=")
        if name in names:
            raise BadUsage(f"{option}: {name} occurs twice")
        names.add(name)
        try:
            number = int(factor) if equals else None
        except ValueError:
            raise BadUsage(f"{option} {item}: the factor of {name} has to be an integer") from None
        if number is not None and not -(2**31) <= number < 2**31:
            raise BadUsage(f"{option} {item}: the factor of {name} is beyond 32 bits")
        yield name, number


def json_pairs(items: Iterable[str]) -> dict[str, object]:
    """Read items of the form ``key=value``, where a value is JSON, or else text.

    ``key=@FILE`` stands for the text of a file, such as a document of hosts.

    Raises:
        BadUsage: one has no ``=``, or begins like a list or a dict of JSON, but is no JSON.
        BadInput: its file cannot be read.
    """
    values: dict[str, object] = {}
    for key, value in pairs(items).items():
        if value.startswith("@"):
            values[key] = _read(Path(value[1:]))
            continue
        try:
            values[key] = json.loads(value)
        except (ValueError, RecursionError) as error:
            if value.startswith(("{", "[")):
                raise BadUsage(
                    f"{key}: {value!r:.60} is no JSON: {error}; put a text that begins with {{ or "
                    "[ in double quotes"
                ) from None
            values[key] = value
    return values


def names(hosts: HostsInput, tag: str = "host") -> dict[str, str]:
    """The name of each host by its id, in the order of the document.

    Args:
        tag: of the elements: host or vm.

    Returns:
        Nothing for a document that cannot be read: the answer to the call says what is wrong with
        it.
    """
    if not isinstance(hosts, str):
        return dict.fromkeys(hosts, "")
    return {host.get("id", ""): host.findtext("name") or "" for host in _elements(hosts, tag)}


def running_on(vms: HostsInput) -> dict[str, str]:
    """The id of the host that each VM of a document runs on, as far as it says so, by its id."""
    elements = _elements(vms, "vm") if isinstance(vms, str) else []
    hosts = ((vm.get("id", ""), vm.find("host")) for vm in elements)
    return {vm: host.get("id", "") for vm, host in hosts if host is not None}


def _elements(document: str, tag: str) -> list[ElementTree.Element]:
    """The elements of a document with an id; none of one that cannot be read."""
    try:
        root = ElementTree.fromstring(document)  # noqa: S314  a file of whoever runs the command
    except (ElementTree.ParseError, ValueError):
        return []
    elements = [root] if root.tag == tag else root.findall(tag)
    return [element for element in elements if element.get("id")]


def _named(file: Path) -> str:
    return "standard input" if file == _STDIN else str(file)


def _read(file: Path) -> str:
    try:
        return read_whole(sys.stdin.fileno() if file == _STDIN else file, _MOST_BYTES).decode()
    except OSError as error:
        raise BadInput(f"{_named(file)}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{_named(file)}: is not UTF-8; save the document as UTF-8") from None
