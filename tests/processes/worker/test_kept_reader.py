"""What a reader says, task by task."""

from __future__ import annotations

from tests.support.command import script

# Its daemon's side: it sends one task after another, and prints the kind of each frame that comes.
TWO_TASKS = """
import os, socket
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import ReadTask, Role, Unread
from ovirt_scheduler.processes.protocol import frames
from ovirt_scheduler.processes.worker import reader
ours, theirs = socket.socketpair()
if not os.fork():
    ours.close()
    reader.serve(theirs, 7, most_tasks=2)
theirs.close()
ours.settimeout(60)
said, unframer = [], frames.Unframer(10_000)
task = ReadTask((Unread(Role.HOSTS, Document(b"<hosts><host id='a'/></hosts>")),))
for number in (1, 2):
    while said.count(frames.READY) < number:
        said += [kind for kind, _, _ in unframer.feed(ours.recv(10_000))]
    ours.sendall(frames.pack_task(task, number))
while data := ours.recv(10_000):
    said += [kind for kind, _, _ in unframer.feed(data)]
names = {frames.READY: "ready", frames.ANSWER: "answer", frames.DIFFERS: "end"}
print(*map(names.get, said))
"""


def test_a_readers_last_answer_is_followed_by_its_end_alone():
    """Were it ready first, the daemon could give it one more task, and take its end for an answer."""
    ended = script(TWO_TASKS)
    assert ended.stdout == "ready answer ready answer end\n", ended.stderr
