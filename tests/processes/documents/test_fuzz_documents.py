"""Hosts and VM documents, built from what engines write and then damaged."""

from __future__ import annotations

from typing import Any, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.requests import Document
from tests.support.fuzzing import (
    XML_TOKENS,
    Node,
    assert_told,
    bounded,
    damaged,
    encoded,
    mostly,
    tree,
    tries,
    written,
)
from tests.support.reading import read_hosts, read_vm

NAMES = st.sampled_from(
    ["host", "hosts", "vm", "vms", "template", "instance_type", "status", "external_status",
     "creation_status", "state", "detail", "storage_manager", "spm", "priority", "selinux",
     "se_linux", "vmpool", "timezone", "time_zone", "guest_info", "fqdn", "placement_policy",
     "disks", "disk", "disk_attachments", "os", "boot", "devices", "device", "cpu_tune", "vcpu_pin",
     "vcpu_pins", "cpu", "topology", "cores", "architecture", "mode", "statistics", "statistic",
     "values", "value", "datum", "type", "kind", "unit", "memory", "memory_policy", "overcommit",
     "over_commit", "version", "full_version", "link", "actions", "total", "name", "comment",
     "supported_rng_sources", "supported_rng_source", "rng_device", "source", "creation_time",
     "ksm", "enabled", "custom_properties", "custom_property", "nics", "nic", "mac", "tags", "tag",
     "initialization", "cluster", "id", "affinity_labels", "numa_nodes", "hooks", "summary",
     "active", "sessions", "user", "domain", "permissions", "made-up"]
)  # fmt: skip
ATTRIBUTES = st.dictionaries(
    st.sampled_from(
        ["id", "href", "rel", "dev", "type", "name", "value", "major", "minor", "cores",
         "sockets", "full_version", "mode", "priority", "percent", "xml:lang", "made-up"]
    ),
    st.sampled_from(["", " ", "a", "b", "1", "-1", "9" * 30, "/hosts/a/nics", "disks", "é\u2028"]),
    max_size=3,
)  # fmt: skip
TEXTS = st.sampled_from(
    ["", " ", "\n", "up", "UP", "1", "-1", "1.5", "1e999", "NaN", "9" * 30, "9" * 5000, "true",
     "False", "GAUGE", "INTEGER", "rhev-h", "migrating_from", "2026-07-21T10:11:12+02:00",
     "2026-13-41", "Z", "é", "\u2028", "\U0001f600", "<![CDATA[<host/>]]>", "<!-- c -->",
     "&amp;"]
)  # fmt: skip
IDS = st.builds(dict, id=st.sampled_from("abcdefgh"))
TREES = tree(NAMES, ATTRIBUTES, TEXTS)


def entity(name: str) -> st.SearchStrategy[Node]:
    """A host or VM with an id, and whatever in it."""
    return st.tuples(st.just(name), mostly(IDS, ATTRIBUTES), st.lists(TREES, max_size=4))


def documents(one: str, many: str) -> st.SearchStrategy[bytes]:
    single = entity(one)
    members = st.lists(mostly(single, TREES), max_size=3)
    collection = st.tuples(st.just(many), st.just({}), members)
    whole = encoded(mostly(st.one_of(single, collection), TREES).map(written))
    return damaged(whole, XML_TOKENS)


@pytest.mark.parametrize("encoding", [None, "utf-8"])
@pytest.mark.parametrize("read", [read_hosts, read_vm])
def test_a_document_is_read_or_refused(read: Callable[[Document], Any], encoding: Any) -> None:
    """Entities that each have an id of their own, or one line that says what is wrong."""
    names = ("host", "hosts") if read is read_hosts else ("vm", "vms")

    @tries(100)
    @given(documents(*names))
    def check(data: bytes) -> None:
        try:
            with bounded():
                found = read(Document(data, encoding))
        except UnreadableDocument as error:
            assert_told(str(error))
        else:
            if read is read_hosts:
                ids = [host.id for host in found]
                assert all(isinstance(one, str) and one.strip() for one in ids)
                assert len(set(ids)) == len(ids)

    check()
