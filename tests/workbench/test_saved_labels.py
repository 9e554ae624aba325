"""The labels of a saved cluster, as members of its affinity groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ovirt_scheduler.model.affinity import Rule
from ovirt_scheduler.workbench.simulated_rules import read_rules
from tests.support.rest_server import id_of
from tests.support.snapshots import host, snapshot, vm

LABEL = (
    '<affinity_labels><affinity_label id="gold"><name>gold</name>'
    "<has_implicit_affinity_group>true</has_implicit_affinity_group></affinity_label>"
    "</affinity_labels>"
)
OF_LABELS = (
    '<affinity_group id="g"><name>licence</name><hosts_rule><enabled>true</enabled>'
    "<positive>true</positive><enforcing>true</enforcing></hosts_rule>"
    '<vm_labels><affinity_label id="gold"/></vm_labels>'
    '<host_labels><affinity_label id="gold"/></host_labels></affinity_group>'
)


@pytest.mark.parametrize(
    ("minor", "groups", "names"),
    [(7, OF_LABELS, ["licence"]), (3, "", ["gold"]), (7, "", [])],
    ids=["named by a group", "implicit", "not counted"],
)
def test_what_has_a_label_is_a_member_of_its_groups(executor, minor, groups, names):
    """Of a group that names the label, or of the label's own in a cluster of 4.3."""
    labelled = vm("web", "lynx").replace("</vm>", f"{LABEL}</vm>")
    cluster = (
        f'<cluster id="c"><version><major>4</major><minor>{minor}</minor></version>'
        f"<affinity_groups>{groups}</affinity_groups></cluster>"
    )
    saved = replace(
        snapshot([host("lynx", more=LABEL), host("puma")], [labelled, vm("db", "puma")]),
        clusters={"c": cluster.encode()},
    )
    rules = read_rules(executor, saved)
    assert [
        (group.name, group.host_rule, {*group.vms}, {*group.hosts}) for group in rules.groups
    ] == [(name, Rule(True, True), {id_of("web")}, {id_of("lynx")}) for name in names]
