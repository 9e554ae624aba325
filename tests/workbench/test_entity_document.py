"""The elements of hosts and VMs that change while a cluster is simulated."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from ovirt_scheduler.workbench.entity_document import EntityDocument
from ovirt_scheduler.workbench.snapshot import Snapshot
from tests.support.paths import PROJECT

DEMO = Snapshot.read(PROJECT / "demo" / "cluster.xml")


@pytest.mark.parametrize("data", [*DEMO.hosts.values(), *DEMO.vms.values()][::4])
def test_all_that_is_not_changed_stays(data):
    """Each other element in it is there as it was."""
    document = EntityDocument(data)
    assert document.written() == data
    document.set("status", "image_locked")
    before, after = map(ElementTree.fromstring, (data, document.written()))
    assert after.attrib == before.attrib
    assert after.findtext("status") == "image_locked"
    before.find("status").text = "image_locked"
    said = [sorted(ElementTree.tostring(each).strip() for each in one) for one in (before, after)]
    assert said[0] == said[1]
    assert document.values["name"] == before.findtext("name")


def test_values_are_changed_where_they_stand():
    """And nowhere else; texts are escaped, a host comes and goes."""
    document = EntityDocument(
        b'<vm id="v"><name>a &amp; b</name><cpu><name>status</name></cpu><status>down</status><nics>'
        b"<nic><name>n</name></nic></nics></vm>"
    )
    assert (document.values["name"], document.values["status"]) == ("a & b", "down")
    document.set("status", "<up>")
    document.set("memory", 7)  # which it does not tell
    document.set("host", 'h"1')
    written = document.written()
    assert written == (
        b"""<vm id="v"><host href='/ovirt-engine/api/hosts/h"1' id='h"1'/><name>a &amp; b</name><cpu>"""
        b"<name>status</name></cpu><status>&lt;up&gt;</status><nics><nic><name>n</name></nic></nics>"
        b"</vm>"
    )
    document.set("host", "")
    assert b"<host" not in document.written()
    assert EntityDocument(written).values["host"] == 'h"1'


def test_an_empty_element_can_be_given_a_host():
    """A VM of which nothing is known."""
    document = EntityDocument(b"<vm id='v' />")
    assert ElementTree.fromstring(document.written()).find("host") is None
    document.set("host", "h")
    assert ElementTree.fromstring(document.written()).find("host").get("id") == "h"
