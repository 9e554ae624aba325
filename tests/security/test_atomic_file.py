"""Files that are there whole after a power cut: what is on the disk, and in which order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ovirt_scheduler.clusters.persistence import DriveMemory
from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.security import certificates
from ovirt_scheduler.security.atomic_file import sync_folder, write_over, write_whole
from tests.support.place import plugin
from tests.support.processes import open_files


@pytest.fixture
def done(monkeypatch):
    """What is done, in its order; it is done all the same."""
    order = []
    fsync, replace = os.fsync, os.replace

    def hear_fsync(descriptor):
        order.append(("on disk", os.readlink(f"/proc/self/fd/{descriptor}")))  # noqa: PTH115
        fsync(descriptor)

    def hear_replace(draft, path):
        names = (
            Path(os.path.realpath(Path(name).parent)) / Path(name).name for name in (draft, path)
        )
        order.append(("renamed", *map(str, names)))  # a folder may be one of /proc/self/fd
        replace(draft, path)

    monkeypatch.setattr(os, "fsync", hear_fsync)
    monkeypatch.setattr(os, "replace", hear_replace)
    return order


def by_drive_memory(place):
    DriveMemory(place.state / "clusters.json").save("Default")
    return place.state / "clusters.json"


def by_last_good(place):
    place.write("a", plugin(1))
    place.registry.refresh()
    return next(place.state.iterdir())


def by_setup(place):
    Machine(place.first, live=False).write("/etc/made", b"text")
    return place.first / "etc" / "made"


@pytest.mark.parametrize("write", [by_drive_memory, by_last_good, by_setup])
def test_a_file_is_on_the_disk_before_its_name_and_its_name_is_too(place, done, write):
    """Whoever keeps something: first the text, then the name, then the folder."""
    file = write(place)
    (first, draft), (then, its_draft, named), (last, folder) = done[-3:]
    assert (first, then, last) == ("on disk", "renamed", "on disk")
    assert (draft, named, folder) == (its_draft, str(file), str(file.parent))
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_certificate_that_was_made_is_on_the_disk_with_its_folder(place, done):
    """Clients are told to trust it."""
    certificates.ensure(place.state / "certificate")
    assert done[-1] == ("on disk", str(place.state))
    synced = [path for what, path in (each for each in done if each[0] == "on disk")]
    assert len(synced) == 5  # each file, its folder after each, and the folder above
    certificates.ensure(certificates.next_to(place.state / "certificate"))
    done.clear()
    certificates.switch(place.state / "certificate")
    assert done == [("on disk", str(place.state))]


def test_what_is_kept_already_is_not_written_again(place, done):
    """A start with hundreds of plugins would wait for the disk."""
    place.write("a", plugin(1))
    place.registry.refresh()
    done.clear()
    place.start().refresh()
    assert done == []


def test_what_cannot_be_written_leaves_what_there_was(tmp_path):
    """And nothing beside it, nor open; what was begun before a power cut is written anew."""
    file = tmp_path / "file"
    write_whole(file, b"former")
    (tmp_path / ".file.new").write_bytes(b"begun")
    before = open_files()
    with pytest.raises(TypeError):
        write_whole(file, "no bytes")
    sync_folder(tmp_path)
    assert open_files().keys() == before.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_bytes() == b"former"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_result_replaces_the_one_before_and_keeps_its_mode(tmp_path):
    """Whoever reads it meanwhile, or after a command that was killed, has a whole one."""
    file = tmp_path / "report.html"
    mask = os.umask(0o027)
    try:
        write_over(file, b"first")
    finally:
        os.umask(mask)
    assert file.stat().st_mode & 0o777 == 0o640
    file.chmod(0o604)
    with file.open("rb") as reader:
        write_over(file, b"second")
        assert reader.read() == b"first"
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"second", 0o604)
    with pytest.raises(TypeError):
        write_over(file, "no bytes")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [
        ("report.html", b"second")
    ]


def test_a_device_is_written_into_and_a_link_is_refused(tmp_path):
    """Root's command would put a file in the place of /dev/null."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_over(pipe, b"result")
        assert (os.read(reader, 100), pipe.is_fifo()) == (b"result", True)
    finally:
        os.close(reader)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="it is a link"):
        write_over(link, b"result")
