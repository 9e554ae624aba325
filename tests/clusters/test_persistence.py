"""What is known of clusters over a restart."""

from __future__ import annotations

import json
import os
import sys
import threading
import time

import pytest

from ovirt_scheduler.clusters.migration_limits import Migrated
from ovirt_scheduler.clusters.persistence import ClusterMemory, DriveMemory, Migrating
from ovirt_scheduler.model.plans import Step
from ovirt_scheduler.model.values import typed_json

STEP = Step("v", "h", "i", "web", "lynx", "puma", "CPU 84 % to 61 %")


def test_what_is_saved_is_known_again(tmp_path):
    """Statuses, the VMs that were moved last, and migrations under way."""
    file = tmp_path / "state" / "clusters.json"
    first = DriveMemory(file)
    memory = first.cluster("Default")
    memory.statuses = {"h": "up", "v": "down"}
    memory.moved = ["v"]
    begun = time.monotonic() - 100
    memory.migrating["v"] = Migrating(STEP, begun, moving=True)
    memory.migrated.append(Migrated("v", "h", begun, balances=True))
    first.save("Default")
    again = DriveMemory(file).cluster("Default")
    for each in (again.migrating["v"], again.migrated[0]):
        assert each.begun == pytest.approx(begun, abs=1)  # the file has whole seconds
        each.begun = begun
    assert again == memory
    assert again is not memory


@pytest.mark.parametrize("up_for", [5.0, 5e6], ids=["just booted", "up for long"])
def test_a_migration_is_as_old_after_a_reboot(tmp_path, monkeypatch, up_for):
    """The monotonic clock begins anew, and may soon be beyond its time before the reboot."""
    file = tmp_path / "clusters.json"
    memory = DriveMemory(file)
    begun = time.monotonic() - 100
    memory.cluster("Default").migrating["v"] = Migrating(STEP, begun)
    memory.cluster("Default").migrated.append(Migrated("v", "h", begun, balances=True))
    memory.save("Default")
    monkeypatch.setattr(time, "monotonic", lambda: up_for)
    again = DriveMemory(file).cluster("Default")
    assert up_for - again.migrating["v"].begun == pytest.approx(100, abs=30)
    assert up_for - again.migrated[0].begun == pytest.approx(100, abs=30)


def test_a_clock_that_was_set_back_prolongs_no_migration(tmp_path):
    """What has a later time than now is followed as though it began now."""
    file = tmp_path / "clusters.json"
    migrating = {"step": vars(STEP), "begun": time.time() + 1e6, "moving": False}
    migrated = {"vm": "v", "source": "h", "begun": 9e9, "balances": True}
    known = {"migrating": {"v": migrating}, "migrated": [migrated]}
    file.write_text(json.dumps({"Default": known}))
    memory = DriveMemory(file).cluster("Default")
    assert memory.migrating["v"].begun <= time.monotonic()
    assert memory.migrated[0].begun <= time.monotonic()


def test_a_cluster_is_saved_while_another_changes(tmp_path):
    """Each is looked after by a thread of its own, which changes its memory as it likes."""
    memory = DriveMemory(tmp_path / "clusters.json")
    busy = memory.cluster("Busy")
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            busy.statuses.update((str(number), "up") for number in range(2000))
            busy.statuses.clear()

    thread = threading.Thread(target=change)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # seconds: the two threads take turns in the middle of things
    thread.start()
    try:
        for _ in range(20):
            memory.save("Default")
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()
    assert set(json.loads((tmp_path / "clusters.json").read_text())) == {"Default"}


def test_what_has_not_changed_is_not_written_again(tmp_path):
    """Unless it could not be written."""
    file = tmp_path / "state" / "clusters.json"
    memory = DriveMemory(file)
    memory.save("Default")
    first = file.stat().st_ino
    memory.save("Default")
    assert file.stat().st_ino == first
    memory.cluster("Default").moved = ["v"]
    file.parent.rename(tmp_path / "away")
    file.parent.touch()
    memory.save("Default")
    file.parent.unlink()
    memory.save("Default")
    assert DriveMemory(file).cluster("Default").moved == ["v"]


def test_a_takeover_is_kept_while_the_cluster_changes(tmp_path):
    """What else is in the file stays as it was saved."""
    file = tmp_path / "clusters.json"
    memory = DriveMemory(file)
    memory.cluster("Default").moved = ["v"]
    memory.save("Default")
    memory.cluster("Default").moved = []
    memory.request_takeover("Default")
    memory.request_takeover("Other")
    again = DriveMemory(file)
    assert again.cluster("Default") == ClusterMemory(moved=["v"], taking=True)
    assert again.cluster("Other") == ClusterMemory(taking=True)


def test_one_thread_at_a_time_looks_after_a_cluster(tmp_path):
    """After a reload the former one may have something to end; others do not wait for it."""
    memory = DriveMemory(tmp_path / "clusters.json")
    came = threading.Event()

    def look_after() -> None:
        with memory.alone("Default"):
            came.set()

    thread = threading.Thread(target=look_after)
    with memory.alone("Default"):
        thread.start()
        with memory.alone("Other"):
            assert not came.is_set()
    thread.join()
    assert came.is_set()


def test_what_a_cluster_was_is_kept_while_others_are_saved(tmp_path):
    """One that is not looked after just now may be again."""
    file = tmp_path / "clusters.json"
    first = DriveMemory(file)
    first.cluster("Former").moved = ["v"]
    first.save("Former")
    DriveMemory(file).save("Default")
    assert DriveMemory(file).cluster("Former").moved == ["v"]


def test_of_a_cluster_that_was_never_seen_nothing_is_known(tmp_path):
    """Its first statuses are no changes."""
    memory = DriveMemory(tmp_path / "file")
    assert memory.cluster("Default") == ClusterMemory()


@pytest.mark.parametrize(
    "rubbish",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"A": 1}',
        *(
            b'{"Default": {%s}}' % inside
            for inside in (
                b'"colour": "red"',
                b'"statuses": 5',
                b'"statuses": {"v": null}',
                b'"statuses": ["up"]',
                b'"moved": "v"',
                b'"moved": [7]',
                b'"migrated": {"v": 5}',
                b'"migrated": ["v"]',
                b'"migrated": [{"vm": "v"}]',
                b'"migrating": ["v"]',
                b'"migrating": {"v": {}}',
                b'"migrating": {"v": {"step": 1, "begun": 1.5}}',
                b'"migrating": {"v": {"step": {"vm": "v"}, "begun": 1.5}}',
                *(
                    b'"migrating": {"v": {"step": %s, %s}}' % (typed_json.dump(STEP), times)
                    for times in (b'"begun": NaN', b'"begun": "now"', b'"begun": 1.5, "moving": 2')
                ),
            )
        ),
    ],
    ids=range(22),
)
def test_what_cannot_be_read_is_told_and_passed_over(tmp_path, caplog, rubbish):
    """The daemon starts; the clusters count as new."""
    file = tmp_path / "clusters.json"
    file.write_bytes(rubbish)
    assert DriveMemory(file).cluster("Default") == ClusterMemory()
    assert f"{file} cannot be read" in caplog.text


def test_a_folder_that_cannot_be_written_is_told_once(tmp_path, caplog):
    """What is known is there until a restart."""
    (tmp_path / "state").touch()
    memory = DriveMemory(tmp_path / "state" / "clusters.json")
    memory.cluster("Default").moved = ["v"]
    memory.save("Default")
    memory.save("Default")
    assert caplog.text.count("cannot be written") == 1
    assert memory.cluster("Default").moved == ["v"]


def test_a_folder_that_cannot_be_written_once_more_is_told_once_more(tmp_path, caplog):
    """And what was not written meanwhile is, with the next of any cluster."""
    state = tmp_path / "state"
    memory = DriveMemory(state / "clusters.json")
    for turn in (1, 2):
        state.touch()
        memory.cluster("Default").moved = [f"v{turn}"]
        for _ in range(2):
            memory.save("Default")
        assert caplog.text.count("cannot be written") == turn
        state.unlink()
        memory.save("Other")
        assert DriveMemory(state / "clusters.json").cluster("Default").moved == [f"v{turn}"]
        (state / "clusters.json").unlink()
        state.rmdir()


def test_the_file_is_for_the_daemons_user_alone(tmp_path):
    """It tells of the whole data centre."""
    before = os.umask(0o022)
    try:
        file = tmp_path / "state" / "clusters.json"
        DriveMemory(file).save("Default")
    finally:
        os.umask(before)
    assert file.parent.stat().st_mode & 0o777 == 0o700
