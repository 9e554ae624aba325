"""How values are written: what each reader takes, and what it makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ovirt_scheduler.model.units import Kind, OnFailure
from ovirt_scheduler.settings.value_types import TYPES, DayHours, Key


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("whole", "0", 0),
        ("whole", "18781", 18781),
        ("seconds", "30", 30.0),
        ("seconds", "0.5", 0.5),
        ("seconds", "30 s", 30.0),
        ("whole_seconds", "60s", 60),
        ("size", "65536", 65536),
        ("size", "7 B", 7),
        ("size", "64 KiB", 64 * 1024),
        ("size", "512MiB", 512 * 1024**2),
        ("size", "1 GiB", 1024**3),
        *(("truth", text, True) for text in ("true", "True", "yes", "on", "1")),
        *(("truth", text, False) for text in ("false", "FALSE", "no", "off", "0")),
        ("path", "/a/b", Path("/a/b")),
        ("folders", "/a:$PYTHONPATH/b:$PYTHONPATH", ("/a", "$PYTHONPATH/b", "$PYTHONPATH")),
        ("subjects", "a.example ; CN=b,O=c", ("a.example", "CN=b,O=c")),
        ("choices", "filter,  balance", ("filter", "balance")),
        *(
            ("address", text, text)
            for text in ("localhost", "a-1.example.com", "10.0.0.1", "::", "fe80::1%eth0", "1and1")
        ),
        ("day_hours", "20:00-06:00", DayHours(1200, 360)),
        ("day_hours", "8:30 - 24:00", DayHours(510, 0)),
        ("url", "https://e.example/ovirt-engine/api/", "https://e.example/ovirt-engine/api"),
        ("url", "http://127.0.0.1:8080/api", "http://127.0.0.1:8080/api"),
        ("url", "https://[::1]:8443/api", "https://[::1]:8443/api"),
    ],
)
def test_a_value_is_read(name, text, value):
    """Each way of writing has one meaning, of one type."""
    read = TYPES[name].read(text)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("whole", text) for text in ("", "-1", "+1", "1.0", "1_000", "\u0661", "1 2", "1" * 16)),
        *(("seconds", text) for text in ("", "nan", "inf", "-1", "1e3", ".5", "5.", "5 min")),
        *(("whole_seconds", text) for text in ("0.5", "1 h")),
        *(("size", text) for text in ("", "5 MB", "5M", "-1", "1.5 GiB", "5 mib", "5 B B")),
        *(("truth", text) for text in ("", "maybe", "2", "t")),
        *(("path", text) for text in ("", "a/b", "~/a", "$HOME/a")),
        *(("folders", text) for text in ("", "/a:", ":/a", "a", "/a:b", "$PYTHONPATHS/a", "~/a")),
        *(("subjects", text) for text in ("", ";", "a;", "a, b")),
        *(
            ("address", text)
            for text in ("", "*", "[::1]", "a b", "256.0.0.1", "1.2.3", "a.", "-a", "a_b", "x" * 64)
        ),
        *(
            ("day_hours", text)
            for text in ("", "20-6", "20:00", "24:00-06:00", "20:00-24:01", "20:60-06:00", "-1:00-2:00")
        ),
        *(
            ("url", text)
            for text in (
                "", "e.example", "https://", "ftp://e.example", "http://e.example/api",
                "https://user:pass@e.example/api", "https://e.example/api?a=b",
                "https://e.example/api#a", "https://e.example:port/api", "https://[::1/api",
            )
        ),
        ("text", ""),
    ],
)  # fmt: skip
def test_what_may_be_meant_otherwise_is_refused(name, text):
    """No reader guesses."""
    with pytest.raises(ValueError):
        TYPES[name].read(text)


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        (Key("k", "whole", None, "", bounds=("1", "9")), ["1", "9"], ["0", "10"]),
        (Key("k", "size", None, "", bounds=("1 KiB", "1 MiB")), ["1024", "1 MiB"], ["1023", "2 MiB"]),
        (Key("k", "seconds", None, "", bounds=("0.1", "7")), ["0.1", "7"], ["0.05", "7.1"]),
        (Key("k", "choice", None, "", choices=("one", "two")), ["one", "two"], ["One", "", "other"]),
        (Key("k", "choice", None, "", choices=OnFailure), ["ignore"], ["IGNORE", "", "stop"]),
        (Key("k", "choices", None, "", choices=Kind), ["filter"], ["", "filter balance", "filter,"]),
    ],
    ids=["whole", "size", "seconds", "choice of words", "choice of an enum", "several of an enum"],
)  # fmt: skip
def test_a_key_holds_values_to_its_bounds_and_choices(key, good, bad):
    """Bounds are written as values are, and belong to what is allowed."""
    for text in good:
        key.cast(text)
    for text in bad:
        with pytest.raises(ValueError):
            key.cast(text)


def test_choices_of_an_enum_are_its_members():
    """One, or a set of them."""
    assert Key("k", "choice", None, "", choices=OnFailure).cast("reject") is OnFailure.REJECT
    several = Key("k", "choices", None, "", choices=Kind).cast("balance, filter")
    assert several == frozenset({Kind.BALANCE, Kind.FILTER})


@pytest.mark.parametrize(
    ("begin", "end", "contained", "others"),
    [
        (1200, 360, (1200, 1439, 0, 359), (360, 720, 1199)),
        (480, 1080, (480, 1079), (0, 479, 1080, 1439)),
        (480, 480, (0, 479, 480, 1439), ()),
        (480, 0, (480, 1439), (0, 479)),
    ],
    ids=["over midnight", "by day", "the same time twice", "until midnight"],
)
def test_hours_go_from_their_first_minute_up_to_their_end(begin, end, contained, others):
    """The same time twice is all day."""
    hours = DayHours(begin, end)
    assert all(map(hours.contain, contained))
    assert not any(map(hours.contain, others))


def test_hours_are_shown_as_they_are_written():
    assert str(TYPES["day_hours"].read("20:00-6:05")) == "20:00-06:05"
