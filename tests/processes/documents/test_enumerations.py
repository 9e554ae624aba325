"""Words of enumerations in documents that this version of the SDK does not know."""

from __future__ import annotations

from ovirtsdk4.types import RngSource

from ovirt_scheduler.model.requests import Document
from tests.support.reading import read_hosts


def test_an_unknown_word_of_an_enumeration_is_left_out_of_a_list():
    """A None in it would end each loop over it; alone it is None, as there is no other way."""
    sources = "".join(
        f"<supported_rng_source>{word}</supported_rng_source>"
        for word in ("quantum", "random", "", "hwrng", "tide")
    )
    hardware = f"<hardware_information><supported_rng_sources>{sources}</supported_rng_sources>"
    (host,) = read_hosts(
        Document(
            f"<host id='a'><status>dancing</status>{hardware}</hardware_information></host>".encode()
        )
    )
    assert host.hardware_information.supported_rng_sources == [RngSource.RANDOM, RngSource.HWRNG]
    assert host.status is None
