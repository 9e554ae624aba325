"""Where the pages of the manual lie: in a checkout, or where pip or a package has put them."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = "share/doc/ovirt-scheduler"  # below the prefix


def page(name: str) -> str:
    """A page as a message names it: with its whole path, where this machine has it.

    Args:
        name: of the file, such as ``engine.md``.
    """
    checkout = Path(__file__).resolve().parents[2]
    for folder in (checkout, Path(sys.prefix) / FOLDER):
        place = folder / "docs" / name
        if place.is_file():
            return str(place)
    return f"{name} of the manual"
