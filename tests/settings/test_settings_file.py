"""A conf file held to a small table: typed values, unknown keys, and mistakes on their line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ovirt_scheduler.errors import ConfigError, PluginError
from ovirt_scheduler.settings import scheduler_conf
from ovirt_scheduler.settings.conf_file import ConfFile
from ovirt_scheduler.settings.value_types import Key

TABLE = (
    Key("speed", "whole", "5", "How fast.", bounds=("1", "9"), other_names=("the speed",)),
    Key("folder", "path", None, "Where to."),
    Key("colour", "choice", "red", "Which.", choices=("red", "green"), section="paint"),
)


def read(text: str) -> ConfFile:
    return ConfFile(text.encode(), Path("/x.conf"), PluginError, TABLE)


def test_what_is_not_set_has_its_default():
    """A key without a default is None, and a section that is missing has its defaults too."""
    conf = read("")
    assert (conf["speed"], conf["folder"]) == (5, None)
    assert conf.sections["paint"].values == {"colour": "red"}
    assert "speed" not in conf


def test_values_are_typed():
    """Each is what its check makes of it."""
    conf = read("speed = '7'\nfolder = /a\n[paint]\ncolour = green")
    assert (conf["speed"], conf["folder"]) == (7, Path("/a"))
    assert conf.sections["paint"].values == {"colour": "green"}
    assert "colour" in conf.sections["paint"]


def test_a_key_may_have_another_name():
    """The value is found under the name of the table."""
    conf = read("the speed = 3")
    assert conf["speed"] == 3
    assert "speed" in conf


def test_two_names_of_one_key_may_agree():
    """The same value twice leaves nothing open."""
    assert read("the speed = 3\nspeed = 3")["speed"] == 3


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("\nsped = 3", 2, "sped: there is no such key; did you mean speed?"),
        ("SPEED = 3", 1, "SPEED: there is no such key; did you mean speed?"),
        ("zzz = 3", 1, "zzz: there is no such key; known are speed, folder"),
        ("[paint]\ncolor = red", 2, "[paint] color: there is no such key; did you mean colour?"),
        ("colour = red", 1, "colour: belongs in the section [paint]"),
        ("[paint]\n\nspeed = 3", 3, "[paint] speed: belongs above the sections"),
        ("\n[pain]\ncolour = red", 2, "[pain]: there is no such section; did you mean paint?"),
        ("paint = red", 1, "paint: there is no such key; known are speed, folder"),
        ("speed = 0", 1, "speed: expected a whole number, from 1 to 9, not '0'"),
        ("speed =", 1, "speed: expected a whole number, from 1 to 9, not nothing"),
        ("#\nthe speed = 10", 2, "speed: expected a whole number, from 1 to 9, not '10'"),
        ("folder = a", 1, "folder: expected a path that begins with /, not 'a'"),
        ("[paint]\ncolour = blue", 2, "[paint] colour: expected one of red, green, not 'blue'"),
        (
            "speed = 3\nthe speed = 4",
            2,
            "the speed: is speed by another name, which line 1 sets to 3; keep one of the two",
        ),
        ("[paint]\n[pain] # empty", 2, "[pain]: there is no such section; did you mean paint?"),
        (
            "sped =\nx =",
            1,
            "sped: there is no such key; did you mean speed?; line 2: x: there is no such key; known are speed, folder",
        ),
    ],
)
def test_a_mistake_names_line_key_and_what_is_allowed(text, line, message):
    """The nearest known key is told where there is one."""
    with pytest.raises(PluginError) as caught:
        read(text)
    assert (caught.value.line, caught.value.message) == (line, message)
    assert caught.value.file == "/x.conf"


def test_all_mistakes_of_a_file_are_told_together_in_the_order_of_their_lines():
    """Lines that cannot be read are among them. After a header that cannot, nothing is read."""
    text = "speed = 0\nalone\n[pain]\nx = 1\n[paint]\nspeed = 3\nmany words\ncolour = blue\n"
    with pytest.raises(PluginError) as caught:
        read(f"{text}[paint]\ncolour = 5\n")
    lines = [(mistake.line, str(mistake)[:30]) for mistake in caught.value.mistakes]
    assert lines == [
        (1, "/x.conf:1: speed: expected a w"),
        (2, "/x.conf:2: `alone`: expected `"),
        (3, "/x.conf:3: [pain]: there is no"),
        (6, "/x.conf:6: [paint] speed: belo"),
        (7, "/x.conf:7: `many …`: expected "),
        (8, "/x.conf:8: [paint] colour: exp"),
        (9, "/x.conf:9: `[paint]`: occurs t"),
    ]
    assert caught.value.message.endswith("keep one of the two; what follows is not looked at")


def test_the_known_keys_are_listed_once():
    """The table of scheduler.conf has so many that nobody would read it again."""
    with pytest.raises(PluginError) as caught:
        read("x = 0\ny = 1\n")
    assert caught.value.message == (
        "x: there is no such key; known are speed, folder; line 2: y: there is no such key"
    )


def test_of_very_many_mistakes_the_first_are_told_and_how_many_follow():
    """A file of another kind, in the place of a conf file, fills no log."""
    with pytest.raises(PluginError) as caught:
        read("".join(f"key{number} = 1\n" for number in range(50)))
    *first, last = caught.value.mistakes
    assert [mistake.line for mistake in first] == list(range(1, 11))
    assert str(last) == "/x.conf: 40 more mistakes follow"


def test_a_mistake_of_several_keys_is_put_on_the_line_of_one():
    """Its reader builds it from the key's name; a key that is not in the file has no line."""
    conf = read("\n\nspeed = 3")
    conf.refuse("speed", "is odd")
    conf.sections["paint"].refuse("colour", "clashes")
    with pytest.raises(PluginError) as caught:
        conf.mistakes.check()
    assert [*map(str, caught.value.mistakes)] == [
        "/x.conf: [paint] colour: clashes",
        "/x.conf:3: speed: is odd",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[engine]\npassword_file = hunter2", "password_file: expected a path that begins with /"),
        ("[engine]\npassword_file = 'hunter2", "`password_file …`: the quotes do not match, or"),
        ("[engine]\npassword hunter2", "`password …`: expected `key = value`, `[section]`, or a"),
        (
            "[engine]\npassword_file = /a\npassword_file = hunter2",
            "`password_file …`: occurs twice",
        ),
        (
            "[engine]\nurl = https://admin:hunter2@e/api",
            "url: expected an https:// URL without user",
        ),
        ("[engine]\nurl = 'https://admin:hunter2@e", "`url …`: the quotes do not match, or text"),
        ("[engine]\nurl =\n https://admin:hunter2@e", "`…`: expected `key = value`"),
        ("[engine]\npassword_file =\n hunter2", "`…`: expected `key = value`"),
        ("https://admin:hunter2@e/api?a=b", "…: there is no such key"),
        ("https://admin:hunter2@e/api?a=b#c", "…: a # in a value needs quotes"),
        ("https://admin:hunter2@e/api?a='b", "`…`: the quotes do not match"),
        (f"admin:hunter2@{'e' * 128} = a", "`…`: the name goes on for"),
        ("[https://admin:hunter2@e", "`…`: expected `key = value`"),
        ("[https://admin:hunter2@e]", "[…]: there is no such section"),
        ("[engine]\n[[https://admin:hunter2@e]]", "[engine] [[…]]: there is no such section"),
        ("[a]\n[[admin:hunter2@e]]\n[[[b]]]", "[[…]]: holds another section"),
        (f"[engine]\nurl = http://hunter2:{'e' * 60}@e", "url: expected an https:// URL"),
        (f"[engine]\nurl = 'http://hunter2:{'e' * 60}@e", "`url …`: the quotes do not match"),
    ],
)
def test_a_password_at_the_wrong_place_is_not_repeated(text, message):
    """The message goes to the log, and to whoever runs check."""
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        scheduler_conf.parse(text.encode(), Path("/x.conf"))
    assert "hunter2" not in str(caught.value)
