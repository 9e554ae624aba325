"""Conf files, built line by line and then damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from hypothesis import given
from hypothesis import strategies as st

from ovirt_scheduler.errors import ConfigError, PluginError
from ovirt_scheduler.settings import plugin_conf, scheduler_conf
from ovirt_scheduler.settings.conf_file import Entry, Mistakes, entries
from ovirt_scheduler.settings.table import PLUGIN, SCHEDULER
from ovirt_scheduler.settings.value_types import Key
from tests.support.fuzzing import assert_told, bounded, damaged, mostly, tries

PATH = Path("/etc/some.conf")

VALUES = st.sampled_from(
    ["", "true", "False", "0", "1", "-1", "18781", "99999", "9" * 30, "1.5", "30 s", "64 MiB",
     "1e9", "inf", "/tmp", "/tmp:$PYTHONPATH/x", "relative", "localhost", "0.0.0.0", "::1", "::",
     "http://[", "https://e/api", "https://u:p@e/", "https://e:99999/", "design", "engine",
     "summed", "debug", "filter, balance", "ignore", "reject", "a=[0-9]*;b={0-9}", "a=(", "1;2",
     "%(x)s", "${x}", "{", "a,b", "'", '"', "'open", "'a' b", "'''a", '"""', "a#b", "a # b", "#",
     "'a#b'", "=", "[x]", "é", "x" * 500]
)  # fmt: skip
STRANGE_NAMES = ["made_up", "'quoted'", "a b", "", "é", "default", "__many__", "a" * 500]
OTHER_LINES = st.sampled_from(
    ["", "# a comment", "[engine]", "[ engine ] # x", "[[engine]]", "[", "]", "[]", "['x']",
     "[engine", "alone", "; old", "url = https://e/api", "username = a", "password_file = /x"]
)  # fmt: skip
TOKENS = [
    *(b"\n", b"\r", b"=", b"'", b'"""', b"#", b"[", b"]]", b"\0", b"\xff", b"\x85", b"\t"),
    *(b"\xe2\x80\xa8", b"\xe2\x80\xae", b"\xef\xbb\xbf", b"\xc2\xa0"),
]


def files(table: tuple[Key, ...]) -> st.SearchStrategy[bytes]:
    """Conf files with the keys of a table, most of them, and values of all sorts."""
    keys = [name for key in table for name in (key.name, *key.other_names)]
    names = mostly(st.sampled_from(keys), st.sampled_from(STRANGE_NAMES))
    pairs = st.builds("{}{}{}".format, names, st.sampled_from([" = ", "="]), VALUES)
    return damaged(
        st.builds(
            lambda lines, end, mark: mark + end.join(lines).encode(),
            st.lists(mostly(pairs, OTHER_LINES), max_size=4),
            st.sampled_from(["\n", "\r\n"]),
            st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
        ),
        TOKENS,
    )


@tries(300)
@given(files(PLUGIN))
def test_a_plugins_conf_file_is_read_or_refused(data: bytes) -> None:
    """Its values, or one line with the file, the line and what is wrong."""
    try:
        with bounded():
            plugin_conf.parse(data, PATH)
    except PluginError as error:
        for mistake in error.mistakes:
            assert_told(str(mistake))
        assert error.file == str(PATH)
        assert error.line is None or 1 <= error.line <= data.count(b"\n") + 1


def test_the_schedulers_conf_file_is_read_or_refused(tmp_path: Path) -> None:
    """Settings, or one line that says what is wrong."""
    file = tmp_path / "scheduler.conf"

    @tries(150)
    @given(files(SCHEDULER))
    def check(data: bytes) -> None:
        file.write_bytes(data)
        try:
            with bounded():
                scheduler_conf.load(file, {"PYTHONPATH": "/nowhere"})
        except ConfigError as error:
            for mistake in error.mistakes:
                assert_told(str(mistake))
            assert error.file == str(file)

    check()


# -- a file that is good: every entry, each on its line -----------------------------------

PLAIN_KEYS = st.sampled_from(["a", "b", "some key", "KEY", "é", "a.b", "x" * 100])
PLAIN_VALUES = st.sampled_from(["", "1", "a b", "a,b;c=d", "it's", r"\d{1,3}", "%(x)s", "[x]", "é"])
Written = tuple[str, Optional[tuple[str, str]]]  # a line, and the key and value that it holds


@st.composite
def good_lines(draw: st.DrawFn, section: str) -> list[Written]:
    """The lines of one section; no key twice."""
    lines: list[Written] = [(f"[{section}]", None)] if section else []
    for key in draw(st.lists(PLAIN_KEYS, unique=True, max_size=4)):
        lines += [
            (line, None) for line in draw(st.lists(st.sampled_from(["", "# c", " "]), max_size=2))
        ]
        value = draw(PLAIN_VALUES)
        quote = draw(st.sampled_from(["", "'", '"']) if "'" not in value else st.just('"'))
        space, comment = draw(st.sampled_from(["", " ", "\t"])), draw(st.sampled_from(["", " # c"]))
        lines.append((f"{space}{key}{space}={space}{quote}{value}{quote}{comment}", (key, value)))
    return lines


@tries(150)
@given(st.lists(st.sampled_from(["x", "y", "engine", "è"]), unique=True, max_size=3), st.data())
def test_every_entry_of_a_good_file_is_told_with_its_line(
    sections: list[str], data: st.DataObject
) -> None:
    """Whatever comments, blank lines, quotes and sections stand around it."""
    text: list[str] = []
    expected: list[Entry] = []
    mistakes = Mistakes(PATH, ConfigError)
    for section in ["", *sections]:
        if section:
            expected.append(Entry(section, "", "", len(text) + 1))
        for line, pair in data.draw(good_lines(section)):
            text.append(line)
            if pair:
                expected.append(Entry(section, *pair, len(text)))
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    assert entries(end.join(text).encode(), mistakes) == expected
    mistakes.check()
