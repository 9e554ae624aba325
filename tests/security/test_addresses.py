"""Which addresses are this machine's own, and how it reaches them."""

from __future__ import annotations

import pytest

from ovirt_scheduler.security.addresses import is_loopback, url_host


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("LocalHost", True),
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
