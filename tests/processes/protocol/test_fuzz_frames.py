"""The bytes between the processes, as a plugin that found the socket might write them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ovirt_scheduler.model.results import CallOutcome
from ovirt_scheduler.model.tasks import CallInputs, Function, Returns
from ovirt_scheduler.model.values import typed_json
from ovirt_scheduler.processes.protocol import frames, messages
from ovirt_scheduler.processes.protocol.frames import Frame, FrameError, Unframer
from tests.support.fuzzing import assert_told, bounded, damaged, mostly, tries

LIMIT = 64
INPUTS = CallInputs(("a", "b", "c"), vms=("v",), vm="v")

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
PLACES = st.lists(st.integers(-1, 3), max_size=3)
STRANGERS = st.lists(TEXTS, max_size=3)
COUNTS = st.integers(-1, 5)
FORMS = st.sampled_from(["base64", "dateTime", "struct"])
ANSWERS = mostly(
    st.one_of(
        st.tuples(PLACES, COUNTS, STRANGERS),
        st.tuples(PLACES, PLACES, COUNTS, STRANGERS),
        st.tuples(TEXTS, PLACES, COUNTS, STRANGERS),
        st.lists(st.tuples(st.sampled_from("vw"), PLACES, COUNTS, STRANGERS), max_size=3),
        st.dictionaries(FORMS, JSON, min_size=1, max_size=1),
        st.lists(TEXTS, max_size=3),
    ),
    JSON,
)
READS = st.one_of(st.none(), st.tuples(COUNTS, COUNTS))
OUTCOMES = st.sampled_from(["ok"] * 5 + [outcome.value for outcome in CallOutcome] + ["?", None])
RESULTS = mostly(st.tuples(OUTCOMES, ANSWERS, TEXTS, TEXTS, READS), st.lists(JSON, max_size=6))
UNIT = {
    "name": "u", "kind": "filter", "description": "", "line": 1, "class_name": None,
    "properties": "",
}  # fmt: skip
MODULE = {"name": "u", "path": "/u.py", "source": "", "code": ""}
FAULT = {"file": "/u.py", "line": None, "message": "is empty"}


def changed(shape: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The shape with a few of its fields changed or gone."""
    keys = st.sampled_from(sorted(shape))
    changes = st.dictionaries(keys, mostly(SCALARS, JSON), max_size=2)
    return st.builds(
        lambda new, gone: {key: value for key, value in {**shape, **new}.items() if key != gone},
        changes,
        mostly(st.none(), keys),
    )


ANALYSES = st.fixed_dictionaries(
    {
        "units": st.one_of(st.lists(changed(UNIT), max_size=2), JSON),
        "drivers": mostly(st.just([]), JSON),
        "modules": st.one_of(st.lists(changed(MODULE), max_size=2), JSON),
        "wants_engine": JSON,
        "wants_statistics": JSON,
        "fault": st.one_of(st.none(), changed(FAULT), JSON),
        "doubts": mostly(st.just([]), st.lists(changed(FAULT), max_size=2)),
    }
)
DOCUMENTS = st.tuples(
    mostly(st.lists(st.tuples(st.lists(st.one_of(st.none(), TEXTS)), TEXTS, TEXTS)), JSON),
    mostly(
        st.tuples(
            st.dictionaries(TEXTS, st.tuples(TEXTS, TEXTS), max_size=2),
            st.dictionaries(TEXTS, st.tuples(TEXTS, TEXTS, SCALARS), max_size=2),
        ),
        JSON,
    ),
)
TOKENS = [
    b"{", b"}", b"[", b'"', b",", b"NaN", b"-", b"\xff", b"\0", b"\\ud800", b"9" * 5000, b"[" * 9999,
]  # fmt: skip


def written(value: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return damaged(value.map(lambda each: json.dumps(each).encode()), TOKENS)


@tries(200)
@given(
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=1), st.integers(0, 2**64 - 1),
                  st.binary(max_size=LIMIT + 2)),
        max_size=5,
    ),
    st.data(),
)  # fmt: skip
def test_a_stream_gives_its_frames_or_is_refused(sent: list[Frame], data: st.DataObject) -> None:
    """However it is cut: all up to the first frame over the limit."""
    stream = b"".join(frames.pack(*frame) for frame in sent)
    unframer = Unframer(LIMIT)
    good = []
    for frame in sent:
        if len(frame[2]) > LIMIT:
            break
        good.append(frame)
    got: list[Frame] = []
    try:
        while stream:
            size = data.draw(st.integers(1, len(stream)))
            for frame in unframer.feed(stream[:size]):
                got.append(frame)  # noqa: PERF402  those before a bad one count
            stream = stream[size:]
    except FrameError as error:
        assert_told(str(error))
        assert len(good) < len(sent)
    else:
        assert len(good) == len(sent)
    assert got == good


@tries(100)
@given(st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_are_cut_or_refused(pieces: list[bytes]) -> None:
    """A length that lies is a refusal, or a payload that never comes."""
    unframer = Unframer(LIMIT)
    try:
        for piece in pieces:
            assert all(len(frame[2]) <= LIMIT for frame in unframer.feed(piece))
    except FrameError as error:
        assert_told(str(error))


@tries(400)
@given(written(RESULTS), st.sampled_from(Returns))
def test_an_answer_is_read_or_refused(payload: bytes, returns: Returns) -> None:
    """What was read holds nothing that was not given, and can be shown."""
    function = Function("u", "filter", "do_filter", returns, parameters=("hosts",))
    try:
        with bounded():
            found, _ = messages.unpack_answer(payload, function, INPUTS)
    except FrameError as error:
        assert_told(str(error))
        return
    assert (found.outcome is CallOutcome.OK) or found.value is None
    for text in (found.message, found.traceback, *found.notes):
        text.encode()
    value = found.value
    if returns in (Returns.HOSTS, Returns.COSTS, Returns.SELECTION) and value is not None:
        assert isinstance(value, (tuple, dict))
        assert set(value) <= set(INPUTS.hosts)
        assert len(set(value)) == len(value)


@tries(200)
@given(written(ANALYSES))
def test_an_analysis_is_read_or_refused(payload: bytes) -> None:
    """What was read arrives as it is when it is sent again."""
    try:
        with bounded():
            found, _ = messages.unpack_analysis(payload)
    except FrameError as error:
        assert_told(str(error))
        return
    assert messages.unpack_analysis(typed_json.dump(found)) == found


@tries(200)
@given(written(DOCUMENTS))
def test_what_a_reader_tells_is_read_or_refused(payload: bytes) -> None:
    """What was seen in the documents is checked by whoever uses it."""
    try:
        with bounded():
            documents, _ = messages.unpack_read(payload, 1000)
            for document in documents:
                (document.problem + document.note).encode()
    except FrameError as error:
        assert_told(str(error))
