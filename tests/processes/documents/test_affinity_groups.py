"""ovirt_scheduler.processes.documents.affinity_groups: what is told of affinity groups and labels."""

from __future__ import annotations

import pytest

from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.processes.documents import affinity_groups
from ovirt_scheduler.processes.documents.entity_states import read_states
from ovirt_scheduler.processes.documents.parser import AFFINITY_GROUPS, AFFINITY_LABELS

RULES = (
    "<vms_rule><enabled>{0}</enabled><enforcing>true</enforcing><positive>false</positive>"
    "</vms_rule><hosts_rule><enabled>true</enabled><positive>true</positive></hosts_rule>"
)


def groups(inside: str) -> dict:
    text = f"<affinity_groups><affinity_group id='g'>{inside}</affinity_group></affinity_groups>"
    return affinity_groups.groups(read_states(Document(text.encode()), AFFINITY_GROUPS)[0])


def test_a_group_is_told_with_its_rules_and_the_ids_of_its_members():
    told = groups(
        f"<name>fw</name><broken>true</broken><priority>2.5</priority>{RULES.format('true')}"
        "<vms><vm id='a' href='/vms/a'/><vm id='b'/></vms><hosts><host id='h'/></hosts>"
        "<vm_labels><affinity_label id='l'/></vm_labels><host_labels/>"
    )
    expected = ["fw", 2.5, [False, True], [True, False], ["a", "b"], ["h"], ["l"], []]
    assert told == {"g": expected}


@pytest.mark.parametrize(
    ("inside", "rule"),
    [
        # A rule that is not enabled counts for nothing, whatever else is in it.
        (RULES.format("false"), None),
        (RULES.format("true"), [False, True]),
        # As engines before 4.3 write a group; where both forms are, the newer one counts.
        ("<positive>true</positive><enforcing>true</enforcing>", [True, True]),
        ("<positive>false</positive>", [False, False]),
        (f"<positive>true</positive>{RULES.format('true')}", [False, True]),
        (f"<positive>true</positive>{RULES.format('false')}", None),
        ("", None),
    ],
)
def test_the_rule_of_vms_is_read_in_both_forms(inside, rule):
    assert groups(inside)["g"][2] == rule


def test_a_member_without_an_id_is_left_out_and_a_group_without_a_name_has_its_id():
    assert groups("<vms><vm><name>x</name></vm><vm id='a'/></vms>")["g"][0::4] == ["g", ["a"]]


def test_a_label_is_told_with_its_members():
    text = (
        "<affinity_labels><affinity_label id='l'><name>gpu</name>"
        "<has_implicit_affinity_group>true</has_implicit_affinity_group>"
        "<vms><vm id='a'/></vms><hosts><host id='h'/></hosts></affinity_label>"
        "<affinity_label id='m'><name>bare</name></affinity_label></affinity_labels>"
    )
    states, _ = read_states(Document(text.encode()), AFFINITY_LABELS)
    assert affinity_groups.labels(states) == {
        "l": ["gpu", True, ["a"], ["h"]], "m": ["bare", False, [], []]
    }  # fmt: skip


@pytest.mark.parametrize("report", [affinity_groups.groups, affinity_groups.labels])
def test_more_than_can_be_counted_with_are_refused(report):
    with pytest.raises(UnreadableDocument, match="more than 20,000"):
        report([{"_id": str(number)} for number in range(20_001)])
