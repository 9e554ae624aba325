"""More at once ask for decisions than are answered: pages and calls."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from ovirt_scheduler.errors import Overloaded
from ovirt_scheduler.history.store import FILE, History
from ovirt_scheduler.history.turns import Turns
from ovirt_scheduler.model.requests import AnswerForm, Caller, Pages
from ovirt_scheduler.server.pages.history_methods import history_methods
from tests.support.site import DECISION, MadeSite, call, record
from tests.support.waiting import LONG, wait_until

READERS = 2


@pytest.fixture
def site(tmp_path: Path) -> MadeSite:
    made = MadeSite(tmp_path, [record([call("Night")])])
    made.site.reader.turns = Turns(0.1)
    return made


def test_pages_of_decisions_say_when_to_come_back_and_the_status_is_shown(site: MadeSite) -> None:
    with site.site.reader.turns.next_turn(), site.site.reader.turns.next_turn():
        for path in ("/decisions", "/decisions.json", f"/decisions/{DECISION}"):
            page = site.get(path)
            assert (page.status, page.headers["Retry-After"]) == (503, "2")
            assert b"others read the history" in page.body
        assert site.get("/status").status == 200
    assert site.get("/decisions").status == 200


def test_calls_are_refused_with_fault_104(site: MadeSite) -> None:
    methods = {
        method.name: method for method in history_methods(site.site.reader, Pages.LOOPBACK, True)
    }
    caller = Caller("1", AnswerForm.DESIGN, "127.0.0.1:1", address="127.0.0.1")
    with site.site.reader.turns.next_turn(), site.site.reader.turns.next_turn():
        for name, parameter in (("decision", DECISION), ("decisions", {})):
            with pytest.raises(Overloaded) as refused:
                methods[name].run(caller, (parameter,))
            assert refused.value.fault_code == 104
    assert DECISION.encode() in methods["decisions"].run(caller, ({},)).document


def test_a_crowd_opens_the_file_a_few_times(site: MadeSite, tmp_path: Path) -> None:
    """SQLite closes no descriptor of the file while the writer has a lock on it."""
    history = History(tmp_path / FILE)
    history.start()
    history.event({"event": "reload"})
    wait_until(lambda: not history.waiting and descriptors())
    before = descriptors()
    together, statuses = threading.Barrier(40), []

    def ask() -> None:
        together.wait(LONG)
        statuses.append(site.get("/decisions.json").status)

    crowd = [threading.Thread(target=ask) for _ in range(together.parties)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(LONG)
    assert descriptors() <= before + READERS
    assert {200} <= set(statuses) <= {200, 503}
    history.close(30)


def descriptors() -> int:
    """How many of this process's are of the history."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing itself
            links.append(str(descriptor.readlink()))
    return sum(link.endswith(FILE) for link in links)
