"""Conf files taken apart: values, lines, quotes, comments, and files that are none."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from ovirt_scheduler.errors import ConfigError, PluginError
from ovirt_scheduler.settings.conf_file import Entry, ErrorType, Mistakes, content, entries

PATH = Path("/etc/some.conf")


def read_bytes(data: bytes, error_type: ErrorType = PluginError) -> tuple[Entry, ...]:
    mistakes = Mistakes(PATH, error_type)
    in_file = entries(data, mistakes)
    mistakes.check()
    return tuple(in_file)


def read(text: str) -> tuple[Entry, ...]:
    return read_bytes(text.encode())


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("plain", "plain"),
        ("  two  words  ", "two  words"),
        ("'single'", "single"),
        ('"double"', "double"),
        ("''", ""),
        ("", ""),
        (r"\b\d{1,3}\.\d{1,3}\b;x={0-99}", r"\b\d{1,3}\.\d{1,3}\b;x={0-99}"),
        ("a=b=c", "a=b=c"),
        ("'a#b'", "a#b"),
        ("'a # b' # comment", "a # b"),
        ("a # comment", "a"),
        ("it's", "it's"),
        ("%(x)s $HOME", "%(x)s $HOME"),
        ("größer", "größer"),
    ],
)
def test_a_value_is_what_stands_between_the_quotes(written, value):
    """Quotes and comments go, and every other character of a value stays."""
    assert read(f"key = {written}") == (Entry("", "key", value, 1),)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_every_value_has_its_line(ending):
    """Comments, blank lines and sections are counted, whichever way lines end."""
    lines = ["# head", "", "a = 1", "", "# b", "b = 2 # two", "", "[one]", "# c", "c = 3", "[two]"]
    lines += ["", "[three]", "d = 4", "# tail"]
    assert read(ending.join(lines)) == (
        Entry("", "a", "1", 3),
        Entry("", "b", "2", 6),
        Entry("one", "", "", 8),
        Entry("one", "c", "3", 10),
        Entry("two", "", "", 11),
        Entry("three", "", "", 13),
        Entry("three", "d", "4", 14),
    )


def test_a_byte_order_mark_is_no_part_of_the_first_key():
    """Editors that write one do no harm."""
    assert read_bytes(b"\xef\xbb\xbfa = 1") == (Entry("", "a", "1", 1),)


@pytest.mark.parametrize(
    "line",
    [
        b" " * 4000 + b"x",
        b"[" * 4096,
        b"a" + b" " * 4000 + b"b",
        (b"[" * 4000 + b"\n") * 250,
        (b"a" + b" " * 4000 + b"b\n") * 250,
    ],
    ids=["indented", "brackets", "gap", "brackets again and again", "gaps again and again"],
)
def test_a_line_takes_no_more_time_than_it_is_worth(line):
    """White space around it is none of configobj's business, whose patterns count it cubed."""
    before = time.process_time()
    with contextlib.suppress(ConfigError):
        read_bytes(line, ConfigError)
    assert time.process_time() - before < 20


def test_a_comment_may_hold_what_cannot_be_seen():
    """Hard spaces are typed without being seen, and a tab may stand anywhere."""
    assert read("# a\u00a0comment: ok\na\t=\tb\tc") == (Entry("", "a", "b\tc", 2),)


def test_an_empty_file_has_no_entries():
    """Neither no bytes at all nor comments alone are a mistake."""
    assert read("") == read("# nothing\n\n") == ()


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"a = 1\nwords alone\n", 2, "words …"),
        (b"a = 1\n; another kind of comment", 2, "comment that begins with #"),
        (b"= 1", 1, "expected `key = value`"),
        (b"\na = 1\na = 1", 3, "twice"),
        (b"[x]\na = 1\n[y]\n[x]", 4, "twice"),
        (b"[x\na = 1", 1, "expected `key = value`"),
        (b"[[x]]\na = 1", 1, "a section stands in `[name]`"),
        (b"[x]\na = 1\n\n[[y]]\n[[[z]]]\nb = 1", 5, "three levels down"),
        (b"a = 'open", 1, "quotes do not match"),
        (b"a = 'b' c", 1, "quotes do not match"),
        (b"a = 1\nb = '''c'''", 2, "triple quotes"),
        (b"a = '''b\nc'''\nd = 1", 1, "triple quotes"),
        (b"\na = (b#c)", 2, "needs quotes"),
        (b'a = "b"#c"', 1, "needs quotes"),
        (b"a = 'it''s'", 1, "the other kind"),
        (b"a = 1\nb = \xff", 2, "UTF-8"),
        (b"\xff\xfea\x00=\x001\x00", 1, "UTF-8"),
        (b"a = 1\nb = \x00", 2, "U+0000"),
        ("a = 1\n\nb = c\u2028d = e".encode(), 3, "U+2028"),
        (b"a = b\x0bc", 1, "U+000B"),
        ("a = 1\nb\u00a0= 2".encode(), 2, "U+00A0, which is invisible"),
        ("a = 'b\u202e'".encode(), 1, "U+202E, which is invisible"),
        (b"\n" + b"[" * 500_000, 2, "longer than 4096 characters"),
        (b"a = 1\rb = 2", 1, "U+000D"),
    ],
)
@pytest.mark.parametrize("mistake", [ConfigError, PluginError])
def test_a_mistake_is_told_with_its_line(data, line, words, mistake):
    """What could be read in another way than it was meant is refused, with file and line."""
    with pytest.raises(mistake) as caught:
        read_bytes(data, mistake)
    assert (caught.value.file, caught.value.line) == (str(PATH), line)
    assert words in caught.value.message
    assert "\n" not in str(caught.value)


def test_content_is_the_bytes_of_the_file(tmp_path):
    """They are handed out as they are, for a checksum."""
    file = tmp_path / "some.conf"
    file.write_bytes(b"a = \xff\r\n")
    assert content(file, ConfigError) == b"a = \xff\r\n"


def test_a_missing_file_is_for_the_caller_to_judge(tmp_path):
    """It may be a mistake or not."""
    with pytest.raises(FileNotFoundError):
        content(tmp_path / "none.conf", ConfigError)


def make_folder(path: Path) -> None:
    path.mkdir()


def make_large(path: Path) -> None:
    path.write_bytes(b"#" * (1 << 20) + b"\n")


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_loose_link(path: Path) -> None:
    path.symlink_to("/nowhere")


@pytest.mark.parametrize("make", [make_folder, make_large, make_loop, make_loose_link, os.mkfifo])
def test_what_is_no_conf_file_is_refused(tmp_path, make):
    """A folder, a pipe that nobody writes to and a huge file neither hang nor fill the memory."""
    file = tmp_path / "some.conf"
    make(file)
    with pytest.raises(ConfigError, match=str(file)):
        content(file, ConfigError)


def test_a_file_that_may_not_be_read_is_a_mistake(tmp_path):
    """The message says why."""
    file = tmp_path / "some.conf"
    file.touch(mode=0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may read everything
    try:
        with pytest.raises(ConfigError, match="Permission denied"):
            content(file, ConfigError)
    finally:
        os.seteuid(user)
