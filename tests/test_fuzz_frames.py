"""The bytes between the processes, as a plugin that found the pipe might write them."""

from __future__ import annotations

import json
from typing import Any, Dict, List

from fuzzing import assert_told, bounded, damaged, mostly, tries
from hypothesis import given
from hypothesis import strategies as st

from ovirt_scheduler import frames
from ovirt_scheduler.model import Analysis, CallResult, Kind

LIMIT = 64

TEXTS = st.sampled_from(
    ["", "a", "ok", "raised", "filter", "balance", "\ud800", "\x00\n", "é", "eA==", "x" * 5000]
)
NUMBERS = st.sampled_from(
    [0, 1, -1, 0.5, 1e308, float("nan"), float("inf"), 2**31, 2**64, 10**400, 10**4000]
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inside: st.one_of(
        st.lists(inside, max_size=3), st.dictionaries(TEXTS, inside, max_size=3)
    ),
    max_leaves=6,
)
RESULT = {
    "unit": "u", "outcome": "ok", "value": None, "message": "", "seconds": 0.5, "notes": [],
    "stdout": "", "stderr": "", "traceback": "", "position": 0,
}  # fmt: skip
UNIT = {
    "name": "u", "kind": "filter", "description": "", "line": 1, "class_name": None,
    "properties": "",
}  # fmt: skip
MODULE = {"name": "u", "path": "/u.py", "source": "", "code": ""}
FAULT = {"file": "/u.py", "line": None, "message": "is empty"}


def changed(shape: Dict[str, Any]) -> st.SearchStrategy[Dict[str, Any]]:
    """The shape with a few of its fields changed or gone."""
    keys = st.sampled_from(sorted(shape))
    changes = st.dictionaries(keys, mostly(SCALARS, JSON), max_size=2)
    return st.builds(
        lambda new, gone: {key: value for key, value in {**shape, **new}.items() if key != gone},
        changes,
        mostly(st.none(), keys),
    )


ANSWERS = mostly(
    st.one_of(
        st.lists(TEXTS, max_size=3),
        st.dictionaries(TEXTS, st.integers(-9, 9), max_size=3),
        st.tuples(TEXTS, st.lists(TEXTS, max_size=3)),
    ),
    JSON,
)
RESULTS = st.builds(lambda fields, value: {**fields, "value": value}, changed(RESULT), ANSWERS)
ANALYSES = st.fixed_dictionaries(
    {
        "units": st.one_of(st.lists(changed(UNIT), max_size=2), JSON),
        "modules": st.one_of(st.lists(changed(MODULE), max_size=2), JSON),
        "wants_engine": JSON,
        "wants_statistics": JSON,
        "fault": st.one_of(st.none(), changed(FAULT), JSON),
    }
)
MESSAGES = damaged(
    st.builds(
        lambda kind, fields: json.dumps({"type": kind, **fields}).encode(),
        st.sampled_from(["result"] * 9 + [None, 1, "", []]),
        st.one_of(RESULTS, ANALYSES),
    ),
    [b"{", b"}", b"[", b'"', b",", b"NaN", b"-", b"\xff", b"\0", b"\\ud800", b"9" * 5000, b"[" * 9999],
)  # fmt: skip


@tries(200)
@given(st.lists(st.binary(max_size=LIMIT + 2), max_size=5), st.data())
def test_a_stream_gives_its_payloads_or_is_refused(
    payloads: List[bytes], data: st.DataObject
) -> None:
    """However it is cut, up to the first frame over the limit, and holding no more than a frame."""
    stream = b"".join(piece for payload in payloads for piece in frames.frame(payload))
    unframer = frames.Unframer(LIMIT)
    good = []
    for payload in payloads:
        if len(payload) > LIMIT:
            break
        good.append(payload)
    got: List[bytes] = []
    try:
        while stream:
            size = data.draw(st.integers(1, len(stream)))
            got += unframer.feed(stream[:size])
            stream = stream[size:]
    except frames.FrameError as error:
        assert_told(str(error))
        assert len(good) < len(payloads)
        assert got == good[: len(got)]
    else:
        assert got == good == payloads


@tries(100)
@given(st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_are_cut_or_refused(pieces: List[bytes]) -> None:
    """A length that lies is a refusal, or a payload that never comes."""
    unframer = frames.Unframer(LIMIT)
    try:
        for piece in pieces:
            assert all(len(payload) <= LIMIT for payload in unframer.feed(piece))
    except frames.FrameError as error:
        assert_told(str(error))


@tries(400)
@given(MESSAGES, st.sampled_from(Kind))
def test_a_message_is_read_or_refused(payload: bytes, kind: Kind) -> None:
    """As a result and as an analysis; what was read can be sent on and shown."""
    try:
        with bounded():
            name, fields = frames.unpack(payload)
    except frames.FrameError as error:
        assert_told(str(error))
        return
    assert isinstance(name, str)
    for read in (
        lambda: frames.unpack_result(fields, kind),
        lambda: frames.unpack_analysis(fields),
    ):
        try:
            with bounded():
                found = read()
        except frames.FrameError as error:
            assert_told(str(error))
        else:
            check_found(found, kind)


def check_found(found: Any, kind: Kind) -> None:
    """What the reader let through arrives at the next process as it is."""
    if isinstance(found, Analysis):
        again = frames.unpack_analysis(frames.unpack(frames.pack_analysis(found))[1])
        assert again == found
        return
    position, result = found
    assert isinstance(result, CallResult)
    if isinstance(result.value, dict):
        "".join(result.value).encode()  # a host's name is text that can be written
    again = frames.unpack_result(frames.unpack(frames.pack_result(result, position))[1], kind)
    assert again == (position, result)
