"""What is known of clusters over a restart."""

from __future__ import annotations

import os

import pytest

from ovirt_scheduler.drive_memory import ClusterMemory, DriveMemory, Migrating


def test_what_is_saved_is_known_again(tmp_path):
    """Statuses, the VMs that were moved last, and migrations under way."""
    file = tmp_path / "state" / "clusters.json"
    first = DriveMemory(file)
    memory = first.cluster("Default")
    memory.hosts, memory.vms = {"h": "up"}, {"v": "down"}
    memory.moved = ["v"]
    memory.migrating["v"] = Migrating("h", "i", 1e9, moving=True)
    first.save()
    again = DriveMemory(file).cluster("Default")
    assert again == memory
    assert again is not memory


def test_a_cluster_that_was_never_seen_is_told_from_an_empty_one(tmp_path):
    """Its first statuses are no changes."""
    memory = DriveMemory(tmp_path / "file")
    assert memory.cluster("Default") == ClusterMemory(hosts=None, vms=None)


@pytest.mark.parametrize(
    "rubbish",
    [b"", b"[]", b"{", b"\xff", b'{"Default": {"colour": "red"}}', b'{"A": 1}'],
)
def test_what_cannot_be_read_is_told_and_passed_over(tmp_path, caplog, rubbish):
    """The daemon starts; the clusters are looked at afresh."""
    file = tmp_path / "clusters.json"
    file.write_bytes(rubbish)
    assert DriveMemory(file).cluster("Default") == ClusterMemory()
    assert f"{file} cannot be read" in caplog.text


def test_a_file_that_others_may_write_is_not_believed(tmp_path, caplog):
    """It could have a migration followed that nobody made, or a hook left out."""
    file = tmp_path / "clusters.json"
    DriveMemory(file).save()
    file.write_text('{"Default": {"migrating": {}, "moved": ["v"]}}')
    file.chmod(0o666)
    assert DriveMemory(file).cluster("Default") == ClusterMemory()
    assert "chmod" in caplog.text


def test_nothing_is_written_where_others_could_lead_it_elsewhere(tmp_path, caplog):
    """A link in a folder that others may write would have the daemon overwrite what it leads to."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("as it was")
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)
    (state / "clusters.new").symlink_to(elsewhere)
    DriveMemory(state / "clusters.json").save()
    assert elsewhere.read_text() == "as it was"
    assert f"mend it: chmod o-w {state}" in caplog.text


def test_a_folder_that_cannot_be_written_is_told_once(tmp_path, caplog):
    """What is known is there until a restart."""
    (tmp_path / "state").touch()
    memory = DriveMemory(tmp_path / "state" / "clusters.json")
    memory.cluster("Default").moved = ["v"]
    memory.save()
    memory.save()
    assert caplog.text.count("cannot be written") == 1
    assert memory.cluster("Default").moved == ["v"]


def test_the_file_is_for_the_daemons_user_alone(tmp_path):
    """It tells of the whole data centre."""
    before = os.umask(0o022)
    try:
        file = tmp_path / "state" / "clusters.json"
        DriveMemory(file).save()
    finally:
        os.umask(before)
    assert file.parent.stat().st_mode & 0o777 == 0o700
