"""Bodies of HTTP requests: chunks and gzip, built well and then damaged."""

from __future__ import annotations

import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_scheduler.server.http.request_reader import BodyReader, RequestRefused, Room
from tests.support.fuzzed_requests import BODIES, CHUNKED, LIMIT, SIZES, TOKENS, in_chunks
from tests.support.fuzzing import assert_told, bounded, damaged, peak_of, tries

STREAMS = damaged(st.one_of(CHUNKED, BODIES, BODIES.map(gzip.compress)), TOKENS)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "content-length": st.one_of(
            st.integers(0, LIMIT + 5).map(str),
            st.sampled_from(
                ["", "-1", "+5", "5 ", "5,5", "0x5", "\u00b2", "9" * 200, "1e3", "5_0"]
            ),
        ),
        "transfer-encoding": st.sampled_from(
            ["chunked", "Chunked", "gzip, chunked", "chunked, chunked", "", "identity"]
        ),
        "content-encoding": st.sampled_from(
            ["gzip", "x-gzip", "identity", "gzip, gzip", "br", "", "deflate", "identity,gzip"]
        ),
    },
)  # fmt: skip
CHUNKS = {"transfer-encoding": "chunked"}
PACKED = {**CHUNKS, "content-encoding": "gzip"}


@tries(400)
@given(st.one_of(st.just(CHUNKS), st.just(PACKED), HEADERS), STREAMS)
def test_a_body_is_read_or_refused(headers: dict[str, str], data: bytes) -> None:
    """Within the limit, and with a status and a line for whoever wrote the client."""
    try:
        with bounded():
            body = BodyReader(headers, io.BytesIO(data), LIMIT, Room(LIMIT)).read()
    except RequestRefused as refusal:
        assert 400 <= refusal.status < 600
        assert_told(str(refusal))
    else:
        assert len(body) <= LIMIT


@tries(100)
@given(BODIES.filter(lambda body: len(body) <= LIMIT), SIZES, SIZES)
def test_a_good_body_is_read_as_it_was_sent(body: bytes, size: int, other: int) -> None:
    """In chunks of any size, packed or not, and what follows it is left alone."""
    for headers, sent in ((CHUNKS, body), (PACKED, gzip.compress(body))):
        stream = io.BufferedReader(io.BytesIO(in_chunks(sent, size) + b"next"), other)
        assert BodyReader(headers, stream, LIMIT, Room(LIMIT)).read() == body
        assert stream.read() == b"next"


def test_what_a_bomb_unpacks_to_is_not_held() -> None:
    """A body that would be a thousand times as large takes little more memory than the limit."""
    limit = 1 << 20
    sent = in_chunks(gzip.compress(bytes(64 << 20), 1), 1 << 16)

    def read() -> None:
        with pytest.raises(RequestRefused, match="larger than"):
            BodyReader(PACKED, io.BytesIO(sent), limit, Room(limit)).read()

    assert peak_of(read) < 4 * limit
