"""What pages of the engine's hosts and VMs come to, which change while they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from ovirt_scheduler.engine.inventory import Inventory, InventoryBounds
from ovirt_scheduler.errors import EngineUnavailable
from tests.support.rest_server import RestServer


@pytest.fixture
def engine(tmp_path) -> Iterator[RestServer]:
    with RestServer(tmp_path, tls=False) as server:
        yield server


def read(engine: RestServer, *pages: str) -> Mapping[str, str]:
    """What comes of pages of VMs with these letters as ids, each with the number of its page."""
    turns = iter([dict.fromkeys(page, number) for number, page in enumerate(pages, 1)])
    asking = Inventory(engine.settings(), bounds=InventoryBounds(page=2))
    try:
        return asking.read_pages("vms", "cluster=Default", lambda _: next(turns))
    finally:
        asking.close()


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        (["ab", "cd", ""], "abcd"),
        (["ab", "cd", "e"], "abcde"),
        (["ab", "bc", "d"], "abcd"),
        (["ab", "bc", "cd", "d"], "abcd"),
    ],
)
def test_a_vm_on_two_pages_is_that_of_the_first(engine, pages, expected):
    """Another that came meanwhile has pushed it on."""
    found = read(engine, *pages)
    assert "".join(found) == expected
    first = {vm: min(n for n, page in enumerate(pages, 1) if vm in page) for vm in expected}
    assert found == first
    assert len(engine.asked("vms")) == len(pages)


def test_a_page_that_is_longer_than_asked_for_is_all_there_is(engine):
    """As of an engine that knows no pages."""
    assert "".join(read(engine, "abc")) == "abc"
    assert len(engine.asked("vms")) == 1


@pytest.mark.parametrize("pages", [["ab", "ab"], ["ab", "cd", "cb"]])
def test_a_page_with_nothing_new_is_told_as_a_repetition(engine, pages):
    with pytest.raises(EngineUnavailable, match=f"page {len(pages)} of the engine's vms repeats"):
        read(engine, *pages)
