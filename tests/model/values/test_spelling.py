"""What may have been meant by a name that is not there."""

from __future__ import annotations

import pytest

from ovirt_scheduler.model.values import spelling


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Quit", "Quiet"),
        ("quiet", "Quiet"),
        ("Host-Memory", "host_memory"),
        ("Nobody", None),
        ("memory-size", None),
        ("port", "listening_port"),
        ("LYNX", "lynx.example.com"),
        ("example", None),
        ("", None),
        ("Quiet" * 100, None),
    ],
)
def test_the_nearest_name_is_found(name, meant):
    """However it is capitalised and joined, or the one that has it as a part; none is better than a far one."""
    there = ["Quiet", "host_memory", "listening_port", "lynx.example.com", "puma.example.com"]
    assert spelling.nearest(name, there) == meant
    assert spelling.hint(name, there) == ((meant and f"; did you mean {meant}?") or "")


def test_functions_that_are_named_almost_right_are_found_in_any_text():
    """With their lines; those that are called are none, nor are others."""
    source = b"def do_filter(h):\n  pass\n\xff(\nclass A:\n  async def do_fliter(self): 0\ndef do_it(): 0\n"
    assert list(spelling.misspelt(source, ["do_filter", "do_score"])) == [
        (5, "do_fliter", "do_filter")
    ]


def test_the_first_functions_of_a_file_are_looked_at():
    """The daemon does it: all of a megabyte of them took half a minute."""
    source = b"def do_filtre(): pass\n" * 40_000
    assert len(list(spelling.misspelt(source, ["do_filter"]))) == 500
