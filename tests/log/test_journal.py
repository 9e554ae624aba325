"""Entries of the journal, read strictly from a socket that stands where journald's does."""

from __future__ import annotations

import logging
import os
import re

import pytest

from docs.log_messages import messages
from ovirt_scheduler.log.fields import Block, Name, Names
from ovirt_scheduler.log.format import message_id
from ovirt_scheduler.log.handlers import _LONGEST_ENTRY, JournalHandler, is_standard_error
from tests.support.journal_reader import Journal, fields_of
from tests.support.log_messages import HOSTILE, MANUAL

OURS = "SCHEDULER_"
EVERY_ENTRY = {
    "MESSAGE", "MESSAGE_ID", "PRIORITY", "SYSLOG_IDENTIFIER", "CODE_FILE", "CODE_LINE", "CODE_FUNC",
}  # fmt: skip


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "socket") as listening:
        yield listening


@pytest.fixture
def log(tmp_path):
    """A logger of the package, whose records go to the journal alone."""
    logger = logging.getLogger("ovirt_scheduler")
    handler = JournalHandler(str(tmp_path / "socket"), pause=0.0)
    before = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(handler)
    yield logger
    logger.removeHandler(handler)
    logger.level, logger.propagate = before
    handler.close()


def test_an_entry_has_the_journals_fields_and_ours(journal, log):
    """Names in capitals; one with several values comes several times."""
    fields = {
        "request": "1c9be07a", "units": Names(["Quiet", "a b"]), "hosts_in": 3,
        "milliseconds": 4.2, "problems": None,
    }  # fmt: skip
    log.info("request %(request)s: units %(units)s", fields)
    told = journal.entry()
    assert told.keys() - {name for name in told if name.startswith(OURS)} == EVERY_ENTRY
    assert told["MESSAGE"] == ["request 1c9be07a: units Quiet, 'a b'"]
    assert told["SYSLOG_IDENTIFIER"] == ["ovirt-scheduler"]
    assert (told["CODE_FILE"], told["CODE_FUNC"]) == (
        [__file__], ["test_an_entry_has_the_journals_fields_and_ours"],
    )  # fmt: skip
    assert {name: values for name, values in told.items() if name.startswith(OURS)} == {
        "SCHEDULER_REQUEST": ["1c9be07a"],
        "SCHEDULER_UNITS": ["Quiet", "a b"],
        "SCHEDULER_HOSTS_IN": ["3"],
        "SCHEDULER_MILLISECONDS": ["4.2"],
    }


def test_every_kind_of_line_has_its_own_id(journal, log):
    """Whatever its fields are; the manual's words give it, and so the one that the manual names."""
    ids = []
    for number in (1, 2):
        log.info("pid %(pid)d, %(milliseconds).1f ms", {"pid": number, "milliseconds": number})
        log.info("signal %(signal)s", {"signal": "SIGHUP"})
        ids.append([journal.entry()["MESSAGE_ID"] for _ in range(2)])
    first, second = ids
    assert first == second
    assert first == [[message_id("pid PID, MILLISECONDS ms")], [message_id("signal SIGNAL")]]
    logged = list(messages())
    kinds = {message_id(message.text) for message in logged}
    assert set() < set(re.findall("MESSAGE_ID=([0-9a-f]+)", MANUAL)) <= kinds
    assert len(kinds) == len({message.shown for message in logged})


@pytest.mark.parametrize(
    ("level", "priority"), [("debug", "7"), ("info", "6"), ("warning", "4"), ("error", "3")]
)
def test_levels_are_those_of_syslog(journal, log, level, priority):
    """As journalctl -p has them."""
    getattr(log, level)("hello")
    assert journal.entry()["PRIORITY"] == [priority]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_text_adds_a_field_or_a_message(journal, log, text):
    """It comes in its field as it was, and escaped in the one message."""
    fields = {"method": Name(text), "reason": text, "output": Block(f"{text}\n{text}")}
    log.warning("%(method)s: %(reason)s", fields)
    told = journal.entry()
    came = text.replace("\udc80", "\\udc80")
    assert told.keys() == EVERY_ENTRY | {f"{OURS}METHOD", f"{OURS}REASON", f"{OURS}OUTPUT"}
    assert told[f"{OURS}METHOD"] == told[f"{OURS}REASON"] == [came]
    assert told[f"{OURS}OUTPUT"] == [f"{came}\n{came}"]
    assert told["PRIORITY"] == ["4"]
    (message,) = told["MESSAGE"]
    first, *rest = message.split("\n")
    assert all(line.isprintable() for line in (first, *rest))
    assert rest
    assert all(line.startswith("    ") for line in rest)


def test_an_entry_that_no_datagram_holds_goes_to_standard_error(journal, log, capfd):
    """The journal still takes what comes then."""
    log.info("much: %(reason)s", {"reason": "x" * (1 << 18)})
    log.info("next")
    assert journal.entry()["MESSAGE"] == ["next"]
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith("xxx")


def test_the_longest_entry_is_a_datagram(journal, log):
    """Twice its text: in the message, and in its field."""
    text = "x" * (_LONGEST_ENTRY // 2 - 500)
    log.info("much: %(reason)s", {"reason": text})
    assert journal.entry()[f"{OURS}REASON"] == [text]


def test_a_journal_that_is_gone_is_told_once_and_so_is_its_return(journal, log, tmp_path, capfd):
    """Meanwhile the lines go to standard error; none is lost or doubled."""
    log.info("one")
    journal.close()
    (tmp_path / "socket").unlink()
    log.info("two")
    log.info("three")
    with Journal(tmp_path / "socket") as again:
        log.info("four")
        assert [again.entry()["MESSAGE"] for _ in range(2)] == [
            ["four"], ["the journal takes entries again"],
        ]  # fmt: skip
        log.info("five")
        assert again.entry()["MESSAGE"] == ["five"]
    said = [line.split(maxsplit=2)[2] for line in capfd.readouterr().err.splitlines()]
    assert said == [
        "WARNING the journal takes nothing, the log goes to standard error: No such file or directory",
        "INFO    two",
        "INFO    three",
    ]


def test_a_journal_that_hangs_holds_up_one_record_and_no_more(tmp_path, capfd):
    """After that it is left alone for a while, though it would take records again."""

    def tell(handler, message):
        handler.handle(logging.makeLogRecord({"msg": message, "levelno": logging.INFO}))

    with Journal(tmp_path / "socket") as full:
        filled = full.fill()
        handler, other = (JournalHandler(str(tmp_path / "socket"), pause=600.0) for _ in range(2))
        tell(handler, "line 0")
        for _ in range(filled):
            full.entry()
        for number in range(1, 100):
            tell(handler, f"line {number}")
        tell(other, "the first to come")
        assert full.entry()["MESSAGE"] == ["the first to come"]
        handler.close()
        other.close()
    assert capfd.readouterr().err.count("line ") == 100


def test_standard_error_is_the_journals_when_it_is_the_same_stream(tmp_path, capfd):
    """By device and inode, as systemd says them."""
    stream = os.fstat(2)
    same = f"{stream.st_dev}:{stream.st_ino}"
    assert is_standard_error({"JOURNAL_STREAM": same})
    for other in ("", "1:2", f"{stream.st_dev}", f"{same}0", "nonsense"):
        assert not is_standard_error({"JOURNAL_STREAM": other})
    assert not is_standard_error({})


@pytest.mark.parametrize(
    "data",
    [b"lower=x\n", b"_TRUSTED=x\n", b"A=x", b"A\n\x05\0\0\0\0\0\0\0x\n", b"=x\n", b"A=\xff\n"],
)
def test_the_reader_of_these_tests_is_strict(data):
    """What journald would drop or cut is an error here."""
    with pytest.raises((AssertionError, ValueError)):
        fields_of(data)


def test_a_line_that_comes_while_the_log_changes_is_taken(journal, tmp_path):
    """By a handler that was closed since its thread took it; its socket goes with it."""
    handler = JournalHandler(str(tmp_path / "socket"))
    its_socket = handler._socket
    handler.close()
    handler.handle(logging.LogRecord("x", logging.INFO, __file__, 1, "late", None, None))
    assert journal.entry()["MESSAGE"] == ["late"]
    del handler
    assert its_socket.fileno() == -1
