"""A log that cannot be written for a while, and one that is moved."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import resource
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.log import handlers
from ovirt_scheduler.log.handlers import LogFile, StandardError
from tests.support.command import executed
from tests.support.paths import PROJECT
from tests.support.processes import open_files
from tests.support.waiting import LONG

F_SETPIPE_SZ = 1031  # module fcntl has it from Python 3.10 on


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs" / "log"


@pytest.fixture
def handler(path: Path) -> Iterator[LogFile]:
    made = LogFile(path)
    yield made
    made.close()


def log(handler: logging.Handler, *messages: str) -> None:
    for message in messages:
        handler.handle(logging.makeLogRecord({"msg": message}))


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def test_the_file_is_not_for_everybody_to_read(handler, path):
    """Whatever the umask, also when it is made anew: what plugins print is in it."""
    path.rename(path.with_name("log.1"))
    log(handler, "one")
    assert {file.stat().st_mode & 0o007 for file in path.parent.iterdir()} == {0}
    assert len(list(path.parent.iterdir())) == 2


def test_a_pipe_that_nobody_reads_is_refused(path):
    """To open it would last until somebody does: a daemon would neither start nor end."""
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="cannot be written: No such device"):
        LogFile(path)


def test_a_pipe_in_the_place_of_the_file_holds_up_nobody(handler, path, capfd):
    """Its lines come to standard error."""
    path.unlink()
    os.mkfifo(path)
    log(handler, "one")
    assert capfd.readouterr().err.splitlines()[1] == "one"


def test_a_link_in_the_place_of_the_file_is_not_followed(handler, path, tmp_path, capfd):
    """Its lines come to standard error."""
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    log(handler, "one")
    assert capfd.readouterr().err.splitlines()[1] == "one"
    assert not (tmp_path / "elsewhere").exists()


def test_lines_go_to_the_file_and_nowhere_else(handler, path, capfd):
    """As soon as they are logged; what is there already stays."""
    log(handler, "one", "größer \udcff")
    assert lines(path) == ["one", "größer \\udcff"]
    again = LogFile(path)
    log(again, "three")
    again.close()
    assert lines(path)[2:] == ["three"]
    assert capfd.readouterr().err == ""


def test_a_line_that_comes_after_the_end_is_written_and_holds_nothing(handler, path):
    """One of a thread that was about to log when the log was changed."""
    assert str(path) in open_files().values()
    handler.close()
    log(handler, "late")
    assert lines(path) == ["late"]
    assert str(path) not in open_files().values()


def test_a_pipe_gets_all_lines(tmp_path):
    """Also one that comes after the end."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    handler = LogFile(path)
    log(handler, "one", "two")
    handler.close()
    log(handler, "late")
    assert os.read(reader, 1000) == b"one\ntwo\nlate\n"
    os.close(reader)


def test_a_pipe_whose_reader_is_stuck_holds_up_nobody(tmp_path, capfd):
    """Its lines come to standard error."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, F_SETPIPE_SZ, 4096)
    handler = LogFile(path)
    log(handler, "x" * 4000, "one", "y" * 1000)
    handler.close()
    assert capfd.readouterr().err.splitlines()[1] == "y" * 1000
    assert os.read(reader, 5000).endswith(b"x\none\n")
    os.close(reader)


@pytest.mark.parametrize("harm", ["moved", "removed"])
def test_a_file_moved_or_removed_by_others_is_made_anew(handler, path, harm):
    """As logrotate does it."""
    log(handler, "one")
    if harm == "moved":
        path.rename(path.with_name("elsewhere"))
    else:
        path.unlink()
    log(handler, "two")
    assert lines(path) == ["two"]


@pytest.mark.skipif(shutil.which("logrotate") is None, reason="logrotate is not here")
def test_logrotate_moves_the_file_with_the_configuration_of_the_package(tmp_path):
    """As root it acts as the daemon's user; here as whoever runs the tests."""
    shipped = (PROJECT / "etc" / "logrotate.d" / "ovirt-scheduler").read_text("utf-8")
    text = re.sub("(?m)^ *su .*", f" su {os.getuid()} {os.getgid()}", shipped)
    conf = tmp_path / "logrotate.conf"
    conf.write_text(text.replace("/var/log/ovirt-scheduler", str(tmp_path)), "utf-8")
    conf.chmod(0o644)
    path = tmp_path / "log.json"
    handler = LogFile(path)
    log(handler, "x" * (10 << 20))
    tmp_path.chmod(0o750)
    ended = executed("logrotate", "--state", tmp_path / "status", conf)
    assert (ended.returncode, ended.stderr) == (0, "")
    log(handler, "two")
    handler.close()
    assert lines(path) == ["two"]
    assert path.with_name("log.json.1").stat().st_size > 10 << 20


def test_a_file_moved_while_the_log_changes_holds_up_nobody(handler, path, monkeypatch):
    """Logrotate moves the file, then asks for a reload, amid calls that log their lines."""
    log(handler, "one")
    path.rename(path.with_name("elsewhere"))
    written = threading.Thread(target=log, args=(handler, "two"), daemon=True)
    finished = []

    class Changed(logging.Handler):
        def close(self) -> None:
            """Called while logging changes its handlers, and holds its own lock."""
            written.start()
            written.join(LONG)
            finished.append(not written.is_alive())

    monkeypatch.setattr(logging, "root", logging.RootLogger(logging.INFO))
    logging.root.addHandler(Changed())
    handlers.activate(logging.NullHandler(), "info")
    assert finished == [True]
    assert lines(path) == ["two"]


def test_no_line_is_lost_while_the_log_changes(path, monkeypatch):
    """Calls go on amid a reload, and log their lines."""
    monkeypatch.setattr(logging, "root", logging.RootLogger(logging.INFO))
    handlers.activate(LogFile(path), "info")

    def call():
        for _ in range(500):
            logging.root.info("line")

    calls = [threading.Thread(target=call) for _ in range(4)]
    for each in calls:
        each.start()
    while any(each.is_alive() for each in calls):
        handlers.activate(LogFile(path), "info")
    handlers.activate(logging.NullHandler(), "info")
    assert lines(path) == ["line"] * 2000


def test_a_folder_that_is_gone_is_told_once_and_the_lines_come_to_standard_error(
    handler, path, capfd
):
    """When it is back, the file gets the lines again."""
    away = path.parent.with_name("away")
    path.parent.rename(away)
    log(handler, "one", "two")
    told, one, two = capfd.readouterr().err.splitlines()
    assert told == (
        f"the log {path} cannot be written: No such file or directory; its lines come here"
    )
    assert (one, two) == ("one", "two")
    away.rename(path.parent)
    log(handler, "three", "four")
    assert lines(path) == ["three", "four"]
    assert capfd.readouterr().err == ""


def test_a_disk_without_room_for_a_whole_line_gets_no_half_of_it(path):
    """What there is of it is taken away again."""
    handler = LogFile(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    log(handler, "one")
    resource.setrlimit(resource.RLIMIT_FSIZE, (len("one\ntwo\nthr"), hard))
    try:
        log(handler, "two", "three", "four")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert lines(path) == ["one", "two"]
    log(handler, "five")
    handler.close()
    assert lines(path) == ["one", "two", "five"]


@pytest.mark.parametrize("name", ["missing/log", "."])
def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path, name):
    """With the reason, and the key to mend."""
    with pytest.raises(ConfigError, match=r"the log cannot be written: .*log_file") as caught:
        LogFile(tmp_path / name)
    assert caught.value.file == str(tmp_path / name)


def test_a_record_that_cannot_be_formatted_harms_nobody(handler, capfd):
    """It is told on standard error with the place that logged it."""
    handler.handle(logging.makeLogRecord({"msg": "%d", "args": ("x",)}))
    assert "Logging error" in capfd.readouterr().err


def test_without_standard_error_a_line_is_lost_and_nothing_else(capfd):
    """The handler for standard error writes lines as they are."""
    handler = StandardError()
    log(handler, "one")
    assert capfd.readouterr().err == "one\n"
