"""ovirt_scheduler.clusters.states: what a reader saw of hosts and VMs is checked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_scheduler.clusters import states
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
    states.unpack_hosts, states.unpack_vms, states.unpack_groups, states.unpack_labels
)  # fmt: skip
HARD, SOFT = Rule(positive=False, enforcing=True), Rule(positive=True, enforcing=False)


def test_groups_get_the_members_of_their_labels_and_labels_may_be_groups():
    """A label that is gone has none; a group without a rule is none."""
    groups = states.unpack_groups({
        "g": ["fw", 2, [False, True], None, ["a"], [], ["l", "gone"], []],
        "h": ["near", 1.0, None, [True, False], ["a"], ["h"], [], ["l"]],
        "i": ["off", 1.0, None, None, ["a", "b"], [], [], []],
    })  # fmt: skip
    labels = states.unpack_labels(
        {"l": ["gpu", True, ["b"], ["x"]], "m": ["bare", False, ["c"], []]}
    )
    expected = [
        AffinityGroup("fw", frozenset("ab"), vm_rule=HARD, priority=2.0),
        AffinityGroup("near", frozenset("a"), frozenset("hx"), host_rule=SOFT),
    ]
    assert [*states.resolve_labels(groups.values(), labels, False)] == expected
    implicit = AffinityGroup(
        "gpu", frozenset("b"), frozenset("x"), host_rule=Rule(positive=True, enforcing=True)
    )
    assert [*states.resolve_labels(groups.values(), labels, True)] == [*expected, implicit]


def test_what_is_used_arrives():
    """Of hosts, and of VMs with and without how busy they are."""
    vms = {
        "v": ["web", "up", "c", "h", "ovirt", True, ["h"], 2, 4096, 1.5],
        "w": ["mail", "up", "c", "h", "", False, [], 1, 4096],
    }
    assert states.unpack_hosts({"h": ["lynx", "up", "c", 16, 2.5, 8192, 4096, 2048]}) == {
        "h": HostState("lynx", "up", 16, 2.5, 8192, 4096, "c", 2048)
    }
    assert states.unpack_vms(vms) == {
        "v": VmState("web", "up", "h", 2, 4096, 1.5, "c", "ovirt", True, frozenset("h")),
        "w": VmState("mail", "up", "h", 1, 4096, cluster="c"),
    }


@pytest.mark.parametrize(
    ("told", "unpack"),
    [(None, states.unpack_hosts), ([], states.unpack_hosts), ([{}], states.unpack_vms),
     ({"h": ["n", "up"]}, states.unpack_hosts),
     ({"h": ["n", 7, None]}, states.unpack_hosts),
     ({"h": ["n", "up", None, -1]}, states.unpack_hosts),
     ({"h": ["n", "up", None, True]}, states.unpack_hosts),
     ({"h": ["n", "up", None, 2**63]}, states.unpack_hosts),
     ({"h": ["n", "up", None, 1, 2, 3, 4, 5, 6]}, states.unpack_hosts),
     ({"h": ["n", "up", None, float("nan")]}, states.unpack_hosts),
     ({"v": ["n", "up", None]}, states.unpack_vms),
     ({"v": ["n", "up", None, None, "", False, [], "1"]}, states.unpack_vms),
     ({"v": ["n", "up", None, None, "", 1]}, states.unpack_vms),
     ({"v": ["n", "up", None, None, "", False, [7]]}, states.unpack_vms),
     ({"v": ["n", "up", 7, None]}, states.unpack_vms),
     ({"v": ["n", "up", None, 7]}, states.unpack_vms),
     ({"v": [None, "up", None, None]}, states.unpack_vms),
     ({"g": ["n", 1.0, [True], None, [], [], [], []]}, states.unpack_groups),
     ({"g": ["n", 1.0, [1, 0], None, [], [], [], []]}, states.unpack_groups),
     ({"g": ["n", float("inf"), None, None, [], [], [], []]}, states.unpack_groups),
     ({"g": ["n", 1.0, None, None, "ab", [], [], []]}, states.unpack_groups),
     ({"g": ["n", 1.0, None, None, [], [], []]}, states.unpack_groups),
     ({"l": ["n", "yes", [], []]}, states.unpack_labels)],
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
