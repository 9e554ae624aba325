"""How values are written: what each reader takes, and what it makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ovirt_scheduler.settings.values import CHECKS, check_functions, is_loopback, url_host

try:
    from configobj.validate import ValidateError, Validator
except ImportError:
    from validate import ValidateError, Validator


@pytest.mark.parametrize(
    ("check", "text", "value"),
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
        ("kinds", "filter,  balance", ("filter", "balance")),
        *(
            ("address", text, text)
            for text in ("localhost", "a-1.example.com", "10.0.0.1", "::", "fe80::1%eth0", "1and1")
        ),
        ("url", "https://e.example/ovirt-engine/api/", "https://e.example/ovirt-engine/api"),
        ("url", "http://127.0.0.1:8080/api", "http://127.0.0.1:8080/api"),
        ("url", "https://[::1]:8443/api", "https://[::1]:8443/api"),
    ],
)
def test_a_value_is_read(check, text, value):
    """Each way of writing has one meaning, of one type."""
    read = CHECKS[check].read(text)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("check", "text"),
    [
        *(("whole", text) for text in ("", "-1", "+1", "1.0", "1_000", "\u0661", "1 2", "1" * 16)),
        *(("seconds", text) for text in ("", "nan", "inf", "-1", "1e3", ".5", "5.", "5 min")),
        *(("whole_seconds", text) for text in ("0.5", "1 h")),
        *(("size", text) for text in ("", "5 MB", "5M", "-1", "1.5 GiB", "5 mib", "5 B B")),
        *(("truth", text) for text in ("", "maybe", "2", "t")),
        *(("path", text) for text in ("", "a/b", "~/a", "$HOME/a")),
        *(("folders", text) for text in ("", "/a:", ":/a", "a", "/a:b", "$PYTHONPATHS/a", "~/a")),
        *(("subjects", text) for text in ("", ";", "a;", "a, b")),
        *(("kinds", text) for text in ("", "filter balance", "score", "filter,")),
        *(
            ("address", text)
            for text in ("", "*", "[::1]", "a b", "256.0.0.1", "1.2.3", "a.", "-a", "a_b", "x" * 64)
        ),
        *(
            ("url", text)
            for text in (
                "",
                "e.example",
                "https://",
                "ftp://e.example",
                "http://e.example/api",
                "https://user:pass@e.example/api",
                "https://e.example/api?a=b",
                "https://e.example/api#a",
                "https://e.example:port/api",
                "https://[::1/api",
            )
        ),
        ("text", ""),
    ],
)
def test_what_may_be_meant_otherwise_is_refused(check, text):
    """No reader guesses."""
    with pytest.raises(ValueError):
        CHECKS[check].read(text)


@pytest.mark.parametrize(
    ("spec", "good", "bad"),
    [
        ('whole(least="1", most="9")', ["1", "9"], ["0", "10"]),
        ('size(least="1 KiB", most="1 MiB")', ["1024", "1 MiB"], ["1023", "2 MiB"]),
        ('seconds(least="0.1")', ["0.1", "1000"], ["0.05"]),
        ('choice("design", "engine")', ["design", "engine"], ["Design", "", "other"]),
    ],
)
def test_the_validator_holds_values_to_bounds_and_choices(spec, good, bad):
    """Bounds are written as values are, and belong to what is allowed."""
    validator = Validator(check_functions())
    for text in good:
        validator.check(spec, text)
    for text in bad:
        with pytest.raises(ValidateError):
            validator.check(spec, text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.com", False),
        ("", False),
    ],
)
def test_loopback_is_what_stays_on_the_machine(host, loopback):
    """A name that would have to be looked up does not count as loopback."""
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("address", "host"),
    [
        *((address, "localhost") for address in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::")),
        ("127.0.0.2", "127.0.0.2"),
        ("192.0.2.5", "192.0.2.5"),
        ("2001:db8::5", "[2001:db8::5]"),
        ("scheduler.example.com", "scheduler.example.com"),
    ],
)
def test_the_host_that_leads_to_a_listening_address(address, host):
    """By the name that every certificate of ours has, where that leads there."""
    assert url_host(address) == host
