"""Who may read which page."""

from __future__ import annotations

import pytest

from ovirt_scheduler.model.requests import Pages
from ovirt_scheduler.server.pages.access import is_ours, may_read
from tests.support.site import MadeSite

NEAR, FAR = "127.0.0.1", "192.0.2.7"


@pytest.mark.parametrize(
    ("pages", "peer", "metrics", "all_of_it"),
    [
        (Pages.OFF, NEAR, False, False),
        (Pages.HEALTH, NEAR, True, False),
        (Pages.HEALTH, "::1", True, False),
        (Pages.HEALTH, "::ffff:127.0.0.1", True, False),
        (Pages.HEALTH, FAR, False, False),
        (Pages.LOOPBACK, NEAR, True, True),
        (Pages.LOOPBACK, FAR, False, False),
        (Pages.LOOPBACK, "::ffff:192.0.2.7", False, False),
        (Pages.CALLERS, NEAR, True, True),
        (Pages.CALLERS, FAR, True, True),
    ],
)
def test_what_a_peer_may_read(pages, peer, metrics, all_of_it):
    """As pages in scheduler.conf says (contract 6)."""
    assert may_read(pages, peer, everything=False) is metrics
    assert may_read(pages, peer) is all_of_it


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("scheduler.example.org", True),
        ("SCHEDULER.example.org:18781", True),
        ("scheduler.example.org.", True),
        ("localhost:18781", True),
        ("127.0.0.1:18781", True),
        ("[::1]:18781", True),
        ("192.0.2.1:18781", True),
        ("192.0.2.2", False),
        ("node7.pool.example.org", True),
        ("pool.example.org", False),
        ("a.node7.pool.example.org", False),
        ("*.pool.example.org", False),
        ("evil.example.net", False),
        ("scheduler.example.org.evil.example.net", False),
        ("user@scheduler.example.org", False),
        ("scheduler.example.org/x", False),
        ("localhost:port", False),
        ("[", False),
        ("", False),
    ],
)
def test_the_name_that_was_asked_for(host, ours):
    """One of the daemon's own; another site's name leads here by DNS rebinding."""
    names = {"scheduler.example.org", "192.0.2.1", "*.pool.example.org"}
    assert is_ours(host, names) is ours


@pytest.mark.parametrize("local", ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::5"])
def test_the_address_that_the_client_reached_is_ours(tmp_path, local):
    """One of IPv4 also on a socket of IPv6, which calls it ``::ffff:192.0.2.1``."""
    host = "[2001:db8::5]:18781" if local.startswith("2001") else "192.0.2.1:18781"
    site = MadeSite(tmp_path)
    assert site.get("/status", headers={"host": host}, local=local).status == 200
    assert site.get("/status", headers={"host": "192.0.2.2"}, local=local).status == 421


def test_what_is_not_served_is_refused(tmp_path):
    """403 where something else is served, 421 for a name."""
    assert MadeSite(tmp_path, pages=Pages.HEALTH).get("/status").status == 403
    assert MadeSite(tmp_path, pages=Pages.HEALTH).get("/health").status == 200
    assert MadeSite(tmp_path).get("/health", peer=FAR).status == 200
    assert MadeSite(tmp_path).get("/metrics", peer=FAR).status == 403
    refused = MadeSite(tmp_path).get("/status", headers={"host": "evil.example.net"})
    assert refused.status == 421
