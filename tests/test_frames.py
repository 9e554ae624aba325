"""The messages between the processes: whole, bounded, and read with suspicion."""

from __future__ import annotations

import json
import pickle

import pytest

from ovirt_scheduler import frames
from ovirt_scheduler.model import (
    Analysis,
    CallResult,
    Candidate,
    Document,
    FileFault,
    FoundDriver,
    FoundUnit,
    Job,
    Kind,
    Migration,
    Module,
    Outcome,
    PublishedMethod,
    Source,
)

RESULT = {
    "unit": "u", "outcome": "ok", "value": ["h"], "message": "", "seconds": 0.5, "notes": [],
    "stdout": "", "stderr": "", "traceback": "", "position": 0,
}  # fmt: skip
HALF_A_PAIR = "\ud800"


@pytest.mark.parametrize("step", [1, 7, 8, 9, 1000])
def test_frames_come_out_whole_however_the_stream_is_cut(step):
    """Empty ones too, and several in one piece."""
    payloads = [b"", b"x", b"y" * 100, b""]
    stream = b"".join(piece for payload in payloads for piece in frames.frame(payload))
    unframer = frames.Unframer(limit=100)
    pieces = [stream[start : start + step] for start in range(0, len(stream), step)]
    assert [payload for piece in pieces for payload in unframer.feed(piece)] == payloads


def test_a_frame_over_the_limit_is_refused_at_its_length():
    """Before a byte of it has come, so that it takes no memory."""
    unframer = frames.Unframer(limit=10)
    assert unframer.feed(frames.frame(b"x" * 10)[0]) == []
    with pytest.raises(frames.FrameError, match="a frame of 11 bytes; at most 10"):
        frames.Unframer(limit=10).feed(frames.frame(b"x" * 11)[0])


@pytest.mark.parametrize(
    "task",
    [
        Job(Kind.FILTER, (), Document(b"<hosts/>", "utf-8"), "vm", deadline=1.5),
        Candidate(Source("a", "/p/a.py", b"x = 1"), "/p", (Source("b", "/p/b.py", b""),)),
    ],
)
def test_a_task_arrives_as_it_was_sent(task):
    """Downwards they are pickled."""
    assert frames.unpack_task(frames.pack_task(task)) == task


def test_anything_but_a_task_is_refused():
    """Even from the daemon."""
    with pytest.raises(frames.FrameError, match="a task of type list"):
        frames.unpack_task(pickle.dumps([]))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Kind.FILTER, ("h1", "h2")),
        (Kind.FILTER, ()),
        (Kind.COST_FUNCTION, {"h1": -3, "h2": 10**18}),
        (Kind.BALANCE, Migration("vm", ("h1",))),
        (Kind.BALANCE, Migration("vm", ())),
        (Kind.BALANCE, None),
    ],
)
def test_a_result_arrives_as_it_was_sent(kind, value):
    """With every field, whatever text is in it."""
    result = CallResult(
        "unit", Outcome.OK, value, "message \N{SNOWMAN}", 0.25, ("note",), "out\0", "err", "trace"
    )
    name, fields = frames.unpack(frames.pack_result(result, position=3))
    assert name == "result"
    assert frames.unpack_result(fields, kind) == (3, result)


def test_a_failure_carries_no_value():
    """What a failed call answered does not count."""
    fields = {**RESULT, "outcome": "raised", "value": {"not": ["a", "value"]}}
    assert frames.unpack_result(fields, Kind.FILTER)[1].value is None


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (Kind.FILTER, {"outcome": "splendid"}),
        (Kind.FILTER, {"outcome": []}),
        (Kind.FILTER, {"unit": None}),
        (Kind.FILTER, {"value": "h"}),
        (Kind.FILTER, {"value": [1]}),
        (Kind.FILTER, {"value": [HALF_A_PAIR]}),
        (Kind.FILTER, {"value": {"h": 1}}),
        (Kind.FILTER, {"message": HALF_A_PAIR}),
        (Kind.FILTER, {"notes": "n"}),
        (Kind.FILTER, {"position": "first"}),
        (Kind.FILTER, {"position": float("inf")}),
        (Kind.FILTER, {"seconds": 10**400}),
        (Kind.COST_FUNCTION, {"value": ["h"]}),
        (Kind.COST_FUNCTION, {"value": {"h": 1.5}}),
        (Kind.COST_FUNCTION, {"value": {"h": True}}),
        (Kind.COST_FUNCTION, {"value": None}),
        (Kind.BALANCE, {"value": ["vm"]}),
        (Kind.BALANCE, {"value": [None, []]}),
        (Kind.BALANCE, {"value": ["vm", "h"]}),
    ],
)
def test_a_result_of_another_shape_is_refused(kind, change):
    """Whatever a plugin could have written in its own answer."""
    _, fields = frames.unpack(json.dumps({"type": "result", **RESULT, **change}).encode())
    with pytest.raises(frames.FrameError, match="not a result of a"):
        frames.unpack_result(fields, kind)


def test_a_result_without_one_of_its_fields_is_refused():
    """The sentence names the field."""
    for name in RESULT:
        fields = {key: value for key, value in RESULT.items() if key != name}
        with pytest.raises(frames.FrameError, match=name):
            frames.unpack_result(fields, Kind.FILTER)


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"[]", b"1", b"{}", b'{"type": 1}', b"\xff", b"[" * 100_000, b"1" * 10_000],
)
def test_what_is_no_message_is_refused(payload):
    """Not JSON, or JSON of another kind, or nested past all reason."""
    with pytest.raises(frames.FrameError):
        frames.unpack(payload)


ANALYSIS = Analysis(
    (FoundUnit("u", Kind.BALANCE, "what it does", 7),),
    (Module("u", "/p/u.py", b"\xff source", b"\0code"),),
    drivers=(
        FoundDriver(
            class_name="D",
            line=3,
            description="what it is for",
            name="d",
            topic=None,
            interfaces=("LoadBalancer",),
            methods=(PublishedMethod("m", "help", "(a, b=1)", ("a",), ("b",)),),
            policies=("p", "q"),
            version="1",
            written_for="4.5",
            properties="k=v",
            default_values="v",
        ),
    ),
)


@pytest.mark.parametrize(
    "analysis",
    [
        Analysis(),
        ANALYSIS,
        Analysis(fault=FileFault("/p/u.py", 3, "syntax error")),
        Analysis(fault=FileFault("/p/u.py", None, "is empty")),
    ],
)
def test_an_analysis_arrives_as_it_was_sent(analysis):
    """Source and code are bytes of any kind."""
    name, fields = frames.unpack(frames.pack_analysis(analysis))
    assert (name, frames.unpack_analysis(fields)) == ("analysis", analysis)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("units", {"kind": "weigher"}),
        ("units", {"line": float("inf")}),
        ("units", {"description": HALF_A_PAIR}),
        ("modules", {"code": "not base64"}),
        ("modules", {"source": 7}),
        ("modules", {"path": None}),
        ("drivers", {"topic": 7}),
        ("drivers", {"policies": "p"}),
        ("drivers", {"methods": [{}]}),
        ("drivers", {"methods": 7}),
    ],
)
def test_an_analysis_of_another_shape_is_refused(part, change):
    """The analysing process has run the plugin: it is not trusted either."""
    _, fields = frames.unpack(frames.pack_analysis(ANALYSIS))
    fields[part][0].update(change)
    with pytest.raises(frames.FrameError, match="not an analysis"):
        frames.unpack_analysis(fields)


@pytest.mark.parametrize("fields", [{}, {"fault": None}, {"fault": {}, "units": [], "modules": []}])
def test_an_analysis_without_its_parts_is_refused(fields):
    """Units, modules and fault are always there."""
    with pytest.raises(frames.FrameError, match="not an analysis"):
        frames.unpack_analysis(fields)
