"""ovirt_scheduler.workbench.replay: with nothing to replay, and given up early."""

from __future__ import annotations

import threading
from pathlib import Path
from unittest import mock

import pytest

from ovirt_scheduler.command import cli
from ovirt_scheduler.workbench import replay as replay_module
from ovirt_scheduler.workbench.replay import run
from tests.support.waiting import LONG

pytestmark = pytest.mark.usefixtures("one_executor")


@pytest.mark.parametrize("record", ["false", "true"])
def test_without_a_recording_it_is_said_what_to_do(tmp_path: Path, monkeypatch, capsys, record):
    """Whatever else is in the history; and not to set what is set."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    (tmp_path / "scheduler.conf").write_text(f"record = {record}\n", "utf-8")
    assert cli.main(["replay", "--config", str(tmp_path / "scheduler.conf")]) == 1
    told = capsys.readouterr().err
    assert "each decision from now on can be replayed" in told
    assert ("set record = true in scheduler.conf" in told) == (record == "false")


def test_who_takes_no_more_decisions_has_no_other_begun():
    """Ctrl-C: else those of a whole chunk would still be made."""
    made, begun = [], threading.Event()

    def make(recorded, _):
        made.append(recorded)
        if len(made) == 9:  # the first of the second chunk
            begun.set()
            stopping.wait(LONG)

    recorded = mock.Mock(record={"hosts": ()}, request={}, documents=())
    reader = mock.Mock(recording=lambda _: recorded)
    replayed = run(reader, range(16), [mock.Mock(make=make)], 1)
    stopping = threading.Event()
    with mock.patch.object(replay_module, "threading", mock.Mock(Event=lambda: stopping)):
        next(replayed)
    assert begun.wait(LONG)
    replayed.close()
    assert len(made) == 9
