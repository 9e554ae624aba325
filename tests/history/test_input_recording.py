"""What is recorded of decisions with ``record = true``, and what is not."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Optional

import pytest

from ovirt_scheduler.history.input_recording import InputDocument, Inputs
from ovirt_scheduler.history.query import Query, written
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.record_reader import Recorded, RecordReader
from ovirt_scheduler.history.store import History
from ovirt_scheduler.history.unpacking import Unpacking
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import Role
from tests.support.daemon import Daemon, StartDaemon
from tests.support.waiting import LONG, wait_until

ID = "00000000-0000-4000-8000-{:012}"
KEEPS = "def do_filter(hosts, vm, properties):\n    return hosts\n"
VM = """<vm id="{id}"><name>web</name>
<initialization><root_password>s3cret-word</root_password></initialization></vm>"""


def host(number: int, memory: int = 1) -> str:
    return f'<host id="{ID.format(number)}"><name>h{number}</name><memory>{memory}</memory></host>'


def hosts(*elements: str) -> str:
    return f"<hosts>\n{''.join(elements)}</hosts>"


@pytest.fixture(scope="module")
def daemon(start_daemon: StartDaemon) -> Daemon:
    return start_daemon({"Keeps": KEEPS}, "ssl = false\nrecord = true")


def recorded(path: Path, count: int, **query: str) -> list[Recorded]:
    """So many recorded decisions, when they are written."""
    reader = RecordReader(path, LONG)

    def look() -> list[Recorded]:
        numbers = reader.recorded(Query(**query))  # type: ignore[arg-type]
        return [*filter(None, map(reader.recording, numbers))]

    return wait_until(look, suits=lambda found: len(found) == count)


def test_a_decisions_documents_are_kept(daemon: Daemon):
    """Each host's element once, and nothing of a VM that may hold a password."""
    vm = VM.format(id=ID.format(99))
    first, second = hosts(host(1), host(2)), hosts(host(2), host(1), host(3, 7))
    with daemon.proxy() as proxy:
        proxy.runFilters(["Keeps"], first, vm, {})
        proxy.runFilters(["Keeps"], second, vm, {})
    path = daemon.state / "history.sqlite"
    reader = RecordReader(path, LONG)
    found = recorded(path, 2, vm=ID.format(99))
    kept = [{each.role: reader.document(each.number) for each in one.documents} for one in found]
    assert [one[Role.HOSTS].decode() for one in kept] == [first, second]
    assert kept[0][Role.VM] == kept[1][Role.VM] == vm.partition("<init")[0].encode() + b"</vm>"
    assert not any(each.of_engine for one in found for each in one.documents)
    unpacking = Unpacking(1 << 20)
    with closing(sqlite3.connect(path)) as db:
        names = [
            unpacking.unpack(data, unpacking.unpack(base) if base else b"")
            for data, base in db.execute(
                "SELECT elements.data, bases.data FROM elements "
                "LEFT JOIN elements AS bases ON bases.number = elements.base"
            )
        ]
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert sum(each.startswith(b"<host ") for each in names) == 3
    assert not any(b"s3cret" in each for each in names)
    assert b"s3cret" not in b"".join(each.read_bytes() for each in path.parent.glob("history.*"))


def test_a_request_with_ids_alone_is_recorded(daemon: Daemon):
    """All that it was made on is in its record."""
    daemon.design.runFilters(["Keeps"], [ID.format(5)], "by its id", {})
    (found,) = recorded(daemon.state / "history.sqlite", 1, vm="by its id")
    assert found.documents == []
    assert [each["id"] for each in found.record["hosts"]] == [ID.format(5)]


def test_what_was_asked_just_before_the_end_is_recorded(start_daemon: StartDaemon):
    """The daemon has its documents cut before it ends the processes that do it."""
    daemon = start_daemon({"Keeps": KEEPS}, "ssl = false\nrecord = true")
    daemon.design.runFilters(["Keeps"], hosts(host(1)), "last", {})
    daemon.process.terminate()
    daemon.process.wait()
    reader = RecordReader(daemon.state / "history.sqlite", LONG)
    (number,) = reader.recorded(Query())
    found = reader.recording(number)
    assert found is not None
    assert [each.role for each in found.documents] == [Role.HOSTS]


def made(number: int) -> Record:
    return {
        "id": f"{number:016x}", "time": written(time.time()), "milliseconds": 1.0, "caller": "here",
        "method": "runFilters", "form": "design", "units": [], "hosts": [], "answer": [],
    }  # fmt: skip


def cut(documents: Sequence[Document]) -> list[Optional[Sequence[bytes]]]:
    """As a reader does: here each line is an element."""
    return [[b"", *each.data.splitlines(), b""] for each in documents]


def test_elements_that_no_decision_names_go_with_it(tmp_path: Path):
    """The oldest go when the history is full, and all that was recorded with them."""
    path = tmp_path / "history.sqlite"
    history = History(path, cut)
    history.bound(30, 400_000, records=True)
    history.start()
    for number in range(1500):
        record = made(number)
        lines = "\n".join([f"<host {number}/>", *(f"<host {number} {each}/>" for each in range(9))])
        given = InputDocument(Role.HOSTS, False, Document(lines.encode()))
        history.put(lambda record=record: record, 0, Inputs((given,), {}))  # type: ignore[misc]
    history.close(LONG)
    reader = RecordReader(path, LONG)
    numbers = reader.recorded(Query())
    last = reader.recording(numbers[-1])
    assert last is not None
    assert reader.document(last.documents[0].number).startswith(b"<host 1499/><host 1499 0/>")
    with closing(sqlite3.connect(path)) as db:
        counts = {
            table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("decisions", "recordings", "recorded_documents", "documents")
        }
        (elements,) = db.execute("SELECT count(*) FROM elements").fetchone()
    assert set(counts.values()) == {len(numbers)}
    assert len(numbers) < 1500
    assert 10 * len(numbers) <= elements <= 10 * len(numbers) + 2  # the blank, and one to pack by


def test_more_documents_than_can_be_written_cost_no_decision(tmp_path: Path, caplog):
    """Decisions are kept without them then, and it is told once."""
    history = History(tmp_path / "history.sqlite", cut)  # nobody writes yet
    history.bound(30, 1 << 30, records=True)
    for number in range(50):
        given = InputDocument(Role.HOSTS, False, Document(f"<{number}>".encode() + bytes(1 << 20)))
        record = made(number)
        history.put(lambda record=record: record, 0, Inputs((given,), {}))  # type: ignore[misc]
    history.start()
    history.close(LONG)
    reader = RecordReader(tmp_path / "history.sqlite", LONG)
    assert (history.dropped, len(reader.decisions(Query()))) == (0, 50)
    assert 0 < len(reader.recorded(Query())) < 50
    told = [each for each in caplog.messages if "are not recorded: more come" in each]
    assert len(told) == 1
