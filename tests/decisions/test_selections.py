"""The last selection of each scheduler."""

from __future__ import annotations

from ovirt_scheduler.decisions.selections import Selections


def test_the_last_selection_counts_until_its_scheduler_is_gone():
    """One of none is one, too."""
    selections = Selections()
    assert selections.last("a") == ()
    selections.keep("a", ("h1", "h2"))
    selections.keep("b", ("h3",))
    assert selections.last("a") == ("h1", "h2")
    selections.forget_others({"a"})
    assert (selections.last("a"), selections.last("b")) == (("h1", "h2"), ())
    selections.keep("a", ())
    assert selections.last("a") == ()


def test_a_selection_is_kept_up_to_a_limit():
    """The best hosts of it."""
    selections = Selections()
    hosts = [str(number) for number in range(5000)]
    selections.keep("a", hosts)
    assert selections.last("a") == tuple(hosts[:1000])
