"""Which reasons of a call are kept, and what is told of the others."""

from __future__ import annotations

import pytest

from ovirt_scheduler.plugin.reasons import LONGEST, Reasons

CUT = (f"gave reasons of more than {LONGEST} characters for 1 host; the rest is dropped",)


@pytest.mark.parametrize(
    ("texts", "kept", "notes"),
    [
        (["x" * LONGEST], "x" * LONGEST, ()),
        (["x" * (LONGEST + 1)], "x" * LONGEST, CUT),
        (["x" + " " * (2 * LONGEST - 2) + "y"], "x y", ()),
        (["x" + " " * (2 * LONGEST) + "y"], "x", CUT),
        (["x" * 100, "y" * 98], "x" * 100 + "; " + "y" * 98, ()),
        (["x" * 100, "y" * 99], "x" * 100 + "; " + "y" * 98, CUT),
        (["", " ", "\n"], None, ()),
    ],
    ids=["as long as may be", "longer", "blanks", "behind many blanks", "two", "two long", "none"],
)
def test_what_does_not_fit_is_cut_and_told(texts, kept, notes) -> None:
    reasons = Reasons()
    reasons.begin(["a", "b"])
    for text in texts:
        reasons.add("a", text)
    assert reasons.texts.get("a") == kept
    assert reasons.notes == notes


def test_nothing_of_a_call_is_left_for_the_next_one() -> None:
    """Neither texts nor notes; nor may it give reasons for hosts of the call before."""
    reasons = Reasons()
    for hosts in (["a"], ["b"]):
        reasons.begin(hosts)
        assert (reasons.texts, reasons.notes) == ({}, ())
        reasons.add(hosts[0], "x" * (LONGEST + 1))
        reasons.add("a" if hosts == ["b"] else "b", "no")
        reasons.add(hosts[0], 7)
        assert list(reasons.texts) == hosts
        assert [note.partition(" (")[0] for note in reasons.notes] == [
            "gave reasons for hosts that it was not given",
            "gave reasons that are no text",
            *CUT,
        ]
        assert "(1 dropped, the first for" in reasons.notes[0]
