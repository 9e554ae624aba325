"""The results of drivers, on their way through the pipes."""

from __future__ import annotations

from datetime import datetime

import pytest

from ovirt_scheduler import driver_frames, frames
from ovirt_scheduler.drivers import Returns
from ovirt_scheduler.model import CallResult, Outcome

OK = CallResult("d", Outcome.OK)
NOON = datetime(2026, 1, 31, 12, 0, 1)  # noqa: DTZ001  XML-RPC has no time zones


@pytest.mark.parametrize(
    ("returns", "answer"),
    [
        (Returns.SELECTION, ()),
        (Returns.SELECTION, ("h1", "h2")),
        (Returns.TRUTH, False),
        (Returns.MIGRATIONS, {}),
        (Returns.MIGRATIONS, {"v": ("h1",), "struct": ()}),
        (Returns.VALUE, {"struct": {"base64": ["dateTime", b"\xff", NOON, 1.5, True, -7, ""]}}),
    ],
)
def test_an_answer_arrives_as_it_was_sent(returns, answer):
    """Whatever the names in it are."""
    name, fields = frames.unpack(driver_frames.pack_driver(OK, answer))
    assert (name, driver_frames.unpack_driver(fields, returns)) == ("driver", (OK, answer))


def test_a_failure_brings_no_answer():
    """Even if it has one."""
    failed = CallResult("d", Outcome.RAISED, message="no")
    _, fields = frames.unpack(driver_frames.pack_driver(failed, None))
    fields["answer"] = ["h"]
    assert driver_frames.unpack_driver(fields, Returns.SELECTION) == (failed, None)


@pytest.mark.parametrize(
    ("returns", "answer"),
    [
        (Returns.SELECTION, None),
        (Returns.SELECTION, "h"),
        (Returns.SELECTION, [1]),
        (Returns.SELECTION, ["\ud800"]),
        (Returns.TRUTH, 1),
        (Returns.MIGRATIONS, {"v": ["h"]}),
        (Returns.MIGRATIONS, {"struct": ["v"]}),
        (Returns.MIGRATIONS, {"struct": {"v": "h"}}),
        (Returns.VALUE, None),
        (Returns.VALUE, 2**31),
        (Returns.VALUE, float("nan")),
        (Returns.VALUE, [float("inf")]),
        (Returns.VALUE, {}),
        (Returns.VALUE, {"a": 1, "b": 2}),
        (Returns.VALUE, {"other": 1}),
        (Returns.VALUE, {"base64": "?"}),
        (Returns.VALUE, {"dateTime": "noon"}),
        (Returns.VALUE, {"struct": {"\ud800": 1}}),
    ],
)
def test_an_answer_of_another_shape_is_refused(returns, answer):
    """The plugin could have written it: its pipe is open to it."""
    _, fields = frames.unpack(driver_frames.pack_driver(OK, ()))
    fields["answer"] = answer
    with pytest.raises(frames.FrameError, match="not a result of a driver"):
        driver_frames.unpack_driver(fields, returns)


def test_an_answer_nested_past_all_reason_is_refused():
    """Before it can end the process that reads it."""
    _, fields = frames.unpack(driver_frames.pack_driver(OK, ()))
    answer = "x"
    for _ in range(5000):
        answer = [answer]
    fields["answer"] = answer
    with pytest.raises(frames.FrameError):
        driver_frames.unpack_driver(fields, Returns.VALUE)
