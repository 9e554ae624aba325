"""ovirt_scheduler.clusters.reader_reports: what a reader saw of hosts and VMs is checked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_scheduler.clusters import reader_reports
from ovirt_scheduler.errors import UnreadableDocument
from ovirt_scheduler.model.affinity import AffinityGroup, Rule
from ovirt_scheduler.model.cluster_state import HostState, VmState
from tests.support.fuzzing import assert_told, bounded, tries

VALUES = st.one_of(
    st.none(), st.text(max_size=3), st.integers(-1, 1 << 64), st.floats(), st.booleans(),
    st.just([]), st.just("\ud800"),
)  # fmt: skip
STATES = st.one_of(VALUES, st.dictionaries(st.text(max_size=3), st.lists(VALUES, max_size=9)))


UNPACKERS = (
    reader_reports.HOSTS.unpack, reader_reports.VMS.unpack, reader_reports.GROUPS.unpack, reader_reports.LABELS.unpack
)  # fmt: skip
HARD, SOFT = Rule(positive=False, enforcing=True), Rule(positive=True, enforcing=False)


def test_groups_get_the_members_of_their_labels_and_labels_may_be_groups():
    """A label that is gone has none; a group without a rule is none."""
    groups = reader_reports.GROUPS.unpack({
        "g": ["fw", 2, [False, True], None, ["a"], [], ["l", "gone"], []],
        "h": ["near", 1.0, None, [True, False], ["a"], ["h"], [], ["l"]],
        "i": ["off", 1.0, None, None, ["a", "b"], [], [], []],
    })  # fmt: skip
    labels = reader_reports.LABELS.unpack(
        {"l": ["gpu", True, ["b"], ["x"]], "m": ["bare", False, ["c"], []]}
    )
    expected = [
        AffinityGroup("fw", frozenset("ab"), vm_rule=HARD, priority=2.0),
        AffinityGroup("near", frozenset("a"), frozenset("hx"), host_rule=SOFT),
    ]
    assert [*reader_reports.resolve_labels(groups.values(), labels, False)] == expected
    implicit = AffinityGroup(
        "gpu", frozenset("b"), frozenset("x"), host_rule=Rule(positive=True, enforcing=True)
    )
    assert [*reader_reports.resolve_labels(groups.values(), labels, True)] == [*expected, implicit]


def test_what_is_used_arrives():
    """Of hosts, and of VMs with and without how busy they are."""
    vms = {
        "v": ["web", "up", "c", "h", "ovirt", True, ["h"], 2, 4096, 1.5],
        "w": ["mail", "up", "c", "h", "", False, [], 1, 4096],
    }
    assert reader_reports.HOSTS.unpack({"h": ["lynx", "up", "c", 16, 2.5, 8192, 4096, 2048]}) == {
        "h": HostState("lynx", "up", 16, 2.5, 8192, 4096, "c", 2048)
    }
    assert reader_reports.VMS.unpack(vms) == {
        "v": VmState("web", "up", "h", 2, 4096, 1.5, "c", "ovirt", True, frozenset("h")),
        "w": VmState("mail", "up", "h", 1, 4096, cluster="c"),
    }


@pytest.mark.parametrize(
    ("told", "unpack"),
    [(None, reader_reports.HOSTS.unpack), ([], reader_reports.HOSTS.unpack), ([{}], reader_reports.VMS.unpack),
     ({"h": ["n", "up"]}, reader_reports.HOSTS.unpack),
     ({"h": ["n", 7, None]}, reader_reports.HOSTS.unpack),
     ({"h": ["n", "up", None, -1]}, reader_reports.HOSTS.unpack),
     ({"h": ["n", "up", None, True]}, reader_reports.HOSTS.unpack),
     ({"h": ["n", "up", None, 2**63]}, reader_reports.HOSTS.unpack),
     ({"h": ["n", "up", None, 1, 2, 3, 4, 5, 6]}, reader_reports.HOSTS.unpack),
     ({"h": ["n", "up", None, float("nan")]}, reader_reports.HOSTS.unpack),
     ({"v": ["n", "up", None]}, reader_reports.VMS.unpack),
     ({"v": ["n", "up", None, None, "", False, [], "1"]}, reader_reports.VMS.unpack),
     ({"v": ["n", "up", None, None, "", 1]}, reader_reports.VMS.unpack),
     ({"v": ["n", "up", None, None, "", False, [7]]}, reader_reports.VMS.unpack),
     ({"v": ["n", "up", 7, None]}, reader_reports.VMS.unpack),
     ({"v": ["n", "up", None, 7]}, reader_reports.VMS.unpack),
     ({"v": [None, "up", None, None]}, reader_reports.VMS.unpack),
     ({"g": ["n", 1.0, [True], None, [], [], [], []]}, reader_reports.GROUPS.unpack),
     ({"g": ["n", 1.0, [1, 0], None, [], [], [], []]}, reader_reports.GROUPS.unpack),
     ({"g": ["n", float("inf"), None, None, [], [], [], []]}, reader_reports.GROUPS.unpack),
     ({"g": ["n", 1.0, None, None, "ab", [], [], []]}, reader_reports.GROUPS.unpack),
     ({"g": ["n", 1.0, None, None, [], [], []]}, reader_reports.GROUPS.unpack),
     ({"l": ["n", "yes", [], []]}, reader_reports.LABELS.unpack)],
)  # fmt: skip
def test_what_is_not_seen_of_a_cluster_is_refused(told, unpack):
    """Texts and amounts, and as many as there have to be."""
    with pytest.raises(UnreadableDocument, match="not the states of hosts, VMs or groups"):
        unpack(told)


@tries(200)
@given(STATES, st.sampled_from(UNPACKERS))
def test_whatever_a_reader_sends_is_read_or_refused(
    sent: object, unpack: Callable[[object], object]
) -> None:
    """Nothing else is raised."""
    try:
        with bounded():
            unpack(sent)
    except UnreadableDocument as error:
        assert_told(str(error))
