"""Converts documents of version 3 of the engine's REST representation to version 4.

The SDK knows only version 4; it reads version 3 without a complaint and loses what is written
differently. ``DIFFERENCES`` and ``SPELLINGS`` have each difference once: where it is, and how to
convert it. Every difference is found by a form that version 4 does not have, so no document has to
say its version, a mixed one works, and version 4 stays unchanged. Another spelling of a word counts
only if there is such a form as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Callable

from lxml import etree

# Attributes of version 3 that are elements of the same name in version 4.
_ATTRIBUTES = frozenset(
    {
        *("major", "minor", "build", "revision", "full_version"),  # every kind of version
        *("sockets", "cores", "threads", "index", "socket", "vcpu", "cpu_set", "mode"),  # CPU
        *("type", "name", "value", "regexp", "enabled", "percent"),
        *("address", "netmask", "gateway"),
    }
)

_Change = Callable[[Any], None]  # changes an lxml element
_Conversion = tuple[etree.XPath, _Change]


def to_version4(data: bytes) -> bytes:
    """Write a document in version 4.

    Args:
        data: well-formed UTF-8 without a document type.

    Returns:
        The document in UTF-8; ``data`` itself where nothing of version 3 is in it.

    Raises:
        lxml.etree.XMLSyntaxError: libxml2 refuses the document (its limits on depth and size).
    """
    parser = etree.XMLParser(
        encoding="utf-8", resolve_entities=False, no_network=True,
        remove_comments=True, remove_pis=True,
    )  # fmt: skip
    root = etree.fromstring(data, parser)
    if not _change(root, DIFFERENCES):
        return data
    _change(root, SPELLINGS)
    written: bytes = etree.tostring(root, encoding="utf-8")
    return written


def _change(root: Any, differences: Sequence[_Conversion]) -> bool:
    changed = False
    for select, change in differences:
        # From the inside out: a change may remove all that is in its element.
        for element in reversed(select(root)):
            change(element)
            changed = True
    return changed


def _drop(element: Any) -> None:
    # lxml removes the text behind an element with it: between elements that is white space.
    element.getparent().remove(element)


def _add(parent: Any, name: str, text: str) -> Any:
    child = etree.SubElement(parent, name)
    child.text = text
    return child


def _rename(name: str, element: Any) -> None:
    element.tag = name


def _wrap(children: str, name: str, element: Any) -> None:
    """Put the children of that name into one element."""
    moved = element.findall(children)
    etree.SubElement(element, name).extend(moved)


def _status(element: Any) -> None:
    detail = element.findtext("detail")
    if detail is not None:
        _add(element.getparent(), f"{element.tag}_detail", detail)
    state = element.findtext("state")
    element[:] = []
    element.text = state


def _storage_manager(host: Any) -> None:
    managers = host.findall("storage_manager")
    # Later engines of version 3 write <spm>, too, which has more.
    if host.find("spm") is None:
        spm = etree.SubElement(host, "spm")
        word = (managers[0].text or "").strip().lower()
        _add(spm, "status", {"true": "spm", "false": "none"}.get(word, word))
        if "priority" in managers[0].attrib:
            _add(spm, "priority", managers[0].get("priority"))
    for manager in managers:
        _drop(manager)


def _time_zone(machine: Any) -> None:
    if machine.find("time_zone") is None:
        _add(etree.SubElement(machine, "time_zone"), "name", machine.findtext("timezone"))


def _disks(element: Any) -> None:
    element.tag = "disk_attachments"
    for disk in element.findall("disk"):
        attachment = etree.Element("disk_attachment")
        element.replace(disk, attachment)
        attachment.append(disk)


def _boot(element: Any) -> None:
    devices = [boot.get("dev") for boot in element.findall("boot[@dev]")]
    for boot in element.findall("boot"):
        element.remove(boot)
    parent = etree.SubElement(etree.SubElement(element, "boot"), "devices")
    for device in devices:
        _add(parent, "device", device)


def _cpu_type(element: Any) -> None:
    _add(element, "type", element.attrib.pop("id"))


def _statistic(element: Any) -> None:
    for kind in element.findall("type"):
        kind.tag = "kind"
    _add(element, "type", element.find("values[@type]").attrib.pop("type"))


def _attributes(element: Any) -> None:
    for name in sorted(_ATTRIBUTES.intersection(element.attrib)):
        child = etree.Element(name)
        child.text = element.attrib.pop(name)
        element.insert(0, child)


def _lower(element: Any) -> None:
    element.text = element.text.lower()


def _set_text(text: str, element: Any) -> None:
    element.text = text


def _at(where: str, change: _Change) -> _Conversion:
    return etree.XPath(where), change


_ANY_ATTRIBUTE = " or ".join(f"@{name}" for name in sorted(_ATTRIBUTES))
_WITH_CAPITALS = "[not(*)][translate(., 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', '') != string(.)]"

# In this order: the attributes that become plain elements come after those that do not.
DIFFERENCES: tuple[_Conversion, ...] = (
    # <hosts><total>2</total>: counts and actions among the members of a collection.
    _at("/*[self::hosts or self::vms]/*[not(self::host or self::vm)]", _drop),
    # <status><state>up</state><detail>...</detail></status>
    _at("//*[self::status or self::external_status or self::creation_status][state]", _status),
    # <storage_manager priority="5">true</storage_manager>
    _at("//host[storage_manager]", _storage_manager),
    _at("//host/selinux", partial(_rename, "se_linux")),
    _at("//vm/vmpool", partial(_rename, "vm_pool")),
    _at("//memory_policy/overcommit", partial(_rename, "over_commit")),
    # <timezone>Europe/Prague</timezone>; <initialization> has one in version 4 too.
    _at("//*[self::vm or self::template or self::instance_type][timezone]", _time_zone),
    # <guest_info><fqdn>
    _at("//vm[guest_info/fqdn]", lambda vm: _add(vm, "fqdn", vm.findtext("guest_info/fqdn"))),
    # <placement_policy><host id="..."/>; later engines of version 3 write <hosts>, too.
    _at("//placement_policy[host][not(hosts)]", partial(_wrap, "host", "hosts")),
    # <disks><disk>, where version 4 has an attachment of each disk.
    _at("//vm/disks", _disks),
    # <os><boot dev="network"/><boot dev="hd"/></os>
    _at("//os[boot/@dev]", _boot),
    # <cpu_tune><vcpu_pin vcpu="0" cpu_set="1-4"/></cpu_tune>
    _at("//cpu_tune[vcpu_pin]", partial(_wrap, "vcpu_pin", "vcpu_pins")),
    # <cpu id="Intel Nehalem Family">
    _at("//cpu[@id]", _cpu_type),
    # <statistic><type>GAUGE</type><values type="INTEGER">
    _at("//statistic[values/@type]", _statistic),
    # <topology sockets="1" cores="4"/>, <version major="4"/>, <os type="rhel_6x64">, ...
    # Not those of a collection: the SDK takes each element in one for a member.
    _at(
        f"//*[not(self::hosts or self::vms)][not(text()[normalize-space()])][{_ANY_ATTRIBUTE}]",
        _attributes,
    ),
)
# Words of an enumeration that were spelled otherwise: the SDK would read None.
SPELLINGS: tuple[_Conversion, ...] = (
    _at(
        "//*[parent::cpu and (self::architecture or self::mode)"
        " or parent::statistic and (self::kind or self::type or self::unit)"
        " or parent::supported_rng_sources or parent::rng_device and self::source]"
        + _WITH_CAPITALS,
        _lower,
    ),
    _at("//host/type[. = 'rhev-h']", partial(_set_text, "rhev_h")),
    _at("//vm/status[. = 'migrating_from' or . = 'migrating_to']", partial(_set_text, "migrating")),
)
