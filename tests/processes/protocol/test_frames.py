"""The frames between the processes: whole however they are cut, bounded, and the tasks in them."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from ovirt_scheduler.model.plugins import Candidate, Limits, PluginCode, Source
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import (
    CheckTask,
    Function,
    PrintedTask,
    ReadTask,
    Returns,
    Role,
    Setup,
    Unread,
)
from ovirt_scheduler.processes.protocol import frames
from ovirt_scheduler.processes.protocol.frames import (
    ANSWER,
    READY,
    TASK,
    FrameError,
    Unframer,
)

FUNCTION = Function("u", "filter", "do_filter", Returns.HOSTS, parameters=("hosts",))


@pytest.mark.parametrize("step", [1, 7, 16, 17, 18, 1000])
def test_frames_come_out_whole_however_the_stream_is_cut(step):
    """Empty ones too, and several in one piece."""
    sent = [
        (READY, 1, b""), (ANSWER, 2**64 - 1, b"x"), (ANSWER, 3, b"y" * 100), (READY, 0, b""),
    ]  # fmt: skip
    stream = b"".join(frames.pack(*frame) for frame in sent)
    unframer = Unframer(limit=100)
    pieces = [stream[start : start + step] for start in range(0, len(stream), step)]
    assert [frame for piece in pieces for frame in unframer.feed(piece)] == sent


def test_a_frame_over_the_limit_is_refused_at_its_length():
    """Before a byte of it has come, so that it takes no memory."""
    assert list(Unframer(limit=10).feed(frames.pack(ANSWER, 1, b"x" * 10))) != []
    header = frames.pack(ANSWER, 1, b"x" * 11)[: frames.HEADER.size]
    with pytest.raises(FrameError, match="a frame of 11 bytes; at most 10"):
        list(Unframer(limit=10).feed(header))


def test_the_frames_before_a_bad_one_count():
    """An answer is not lost by what its process says after it."""
    stream = frames.pack(ANSWER, 1, b"good") + frames.pack(ANSWER, 1, b"x" * 11)
    feed = Unframer(limit=10).feed(stream)
    assert next(feed) == (ANSWER, 1, b"good")
    with pytest.raises(FrameError):
        next(feed)


@pytest.mark.parametrize(
    "task",
    [
        Setup(PluginCode("p", "/p", ()), Limits(1.0, 2, 3, 4)),
        CheckTask(FUNCTION, {"a": "b"}, 0.5),
        PrintedTask(FUNCTION, ("h1",), b"[]", b""),
        ReadTask((Unread(Role.HOSTS, Document(b"<hosts/>", "utf-8")),)),
        Candidate(Source("a", "/p/a.py", b"x = 1"), "/p", (Source("b", "/p/b.py", b""),)),
    ],
)
def test_a_task_arrives_as_it_was_sent(task):
    """Downwards they are pickled; the nonce is what the answer has to bear."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(frames.pack_task(task, 7))
        assert frames.receive_task(theirs) == (task, 7, [])


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_descriptors_come_with_their_task(size):
    """In their order, whatever the size of the task; nothing of the next one is taken."""
    ours, theirs = socket.socketpair()
    task = PrintedTask(FUNCTION, (), b"x" * size, b"")
    pipes = [os.pipe() for _ in range(3)]

    def send() -> None:
        frames.send(ours, frames.pack_task(task, 7), [read for read, _ in pipes])
        frames.send(ours, frames.pack_task(task, 8))

    with ours, theirs:
        sender = threading.Thread(target=send)
        sender.start()
        found, nonce, descriptors = frames.receive_task(theirs)
        assert (found, nonce, len(descriptors)) == (task, 7, 3)
        for place, ((read, write), came) in enumerate(zip(pipes, descriptors)):
            os.write(write, b"%d" % place)
            assert os.read(came, 9) == b"%d" % place
            for end in (read, write, came):
                os.close(end)
        assert frames.receive_task(theirs)[1:] == (8, [])
        sender.join()


@pytest.mark.parametrize("sent", [b"", b"t", frames.pack(TASK, 1, b"cut off")[:-1]])
def test_the_end_of_the_daemon_is_the_end_of_waiting(sent):
    """In the middle of a task too."""
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall(sent)
        with pytest.raises(EOFError):
            frames.receive_task(theirs)
