"""Texts for messages."""

from __future__ import annotations

import pytest

from ovirt_scheduler.model.values.text import with_names

PUMA, LYNX = (f"{digit * 8}-1111-2222-3333-{digit * 12}" for digit in "ab")
NAMES = {PUMA: "puma", LYNX: LYNX}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"a bad cost for host {PUMA}: x", f"a bad cost for host puma ({PUMA}): x"),
        (f"KeyError: '{PUMA}'", f"KeyError: 'puma ({PUMA})'"),
        (f"{PUMA}, {PUMA}", f"puma ({PUMA}), puma ({PUMA})"),
        (f"puma ({PUMA})", f"puma ({PUMA})"),
        (f"{LYNX} has its id for a name", f"{LYNX} has its id for a name"),
        (f"x{PUMA} and {PUMA}-1", f"x{PUMA} and {PUMA}-1"),
    ],
)
def test_an_id_has_its_name_before_it_once(text, told):
    assert with_names(text, NAMES) == told
