"""Pages, metrics and health of a real daemon, over real connections."""

from __future__ import annotations

import http.client
import os
import signal
import socket
from urllib.parse import urlsplit

import pytest

from tests.support.command import run
from tests.support.daemon import Daemon
from tests.support.pages import get
from tests.support.waiting import LONG, wait_until

HOSTS = ["h1", "h2"]
ASKED = ("/health", "/metrics", "/status")
PLUGINS = {
    "Night": "def do_filter(hosts, vm, properties):\n    raise RuntimeError('<b>it is dark</b>')\n",
    "First": "def do_filter(hosts, vm, properties):\n    return hosts[:1]\n",
}


@pytest.fixture(scope="module")
def daemon(start_daemon):
    """One whose filters were asked once."""
    running = start_daemon(PLUGINS, "ssl = false\npages = loopback")
    assert running.design.runFilters(["Night", "First"], HOSTS, "vm", {}) == ["h1"]
    wait_until(lambda: get(running.url, "/decisions.json").json)
    return running


def test_what_was_decided_is_on_the_pages(daemon):
    """The list leads to the decision, that to the unit; the metrics count it."""
    (decision,) = get(daemon.url, "/decisions.json").json
    page = get(daemon.url, f"/decisions/{decision['id']}").body
    assert "&lt;b&gt;it is dark&lt;/b&gt;" in page
    assert "<b>" not in page
    assert decision["id"] in get(daemon.url, "/units/Night").body
    assert "RuntimeError: &lt;b&gt;" in get(daemon.url, "/status").body
    counted = 'unit_calls_total{kind="filter",mode="live",outcome="raised",unit="Night"} 1.0'
    assert counted in get(daemon.url, "/metrics").body
    assert get(daemon.url, "/status.json").json["line"].startswith("2 units; 1 failing: Night")


def test_get_and_head_read_and_nothing_else(daemon):
    """405 with what is allowed; a HEAD has the head of the GET, and no body."""
    got, head = (get(daemon.url, "/style.css", method=method) for method in ("GET", "HEAD"))
    assert (got.status, head.status, head.body) == (200, 200, "")
    assert head.headers["content-length"] == str(len(got.body.encode()))
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        refused = get(daemon.url, "/status", method=method)
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


def test_the_front_page_is_for_a_browser_and_for_calls(daemon):
    """A GET leads to the status, a POST is a call; the other paths of calls have no page."""
    front = get(daemon.url, "/")
    assert (front.status, front.headers["location"]) == (302, "/status")
    assert get(daemon.url, "/", method="POST").status == 200
    assert get(daemon.url, "/", method="PUT").status == 405
    assert get(daemon.url, "/design").status == 405
    assert "/status" in get(daemon.url, "/nothing").body


def test_a_page_is_asked_for_without_a_body(daemon):
    """400 for one; a length of 0, which some clients send with a GET, is none."""
    assert get(daemon.url, "/health", {"Content-Length": "0"}).status == 200
    for header in ({"Content-Length": "1"}, {"Transfer-Encoding": "chunked"}):
        assert get(daemon.url, "/health", header).status == 400


def test_another_sites_name_reads_nothing(daemon):
    """421: a browser was led here by that site (DNS rebinding)."""
    for path in ("/status", "/decisions.json", "/metrics", "/health"):
        assert get(daemon.url, path, {"Host": "evil.example.net"}).status == 421
        assert get(daemon.url, f"http://evil.example.net{path}").status == 421


def test_one_connection_reads_several_pages(daemon):
    """One that is not there does not end it."""
    where = urlsplit(daemon.url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=LONG)
    for path, status in (("/style.css", 200), ("/units/Nobody", 404), ("/status", 200)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, answer.headers["Connection"]) == (status, None)
    connection.request("GET", "/nothing/here")
    assert connection.getresponse().status == 404
    connection.close()


@pytest.mark.parametrize(
    ("pages", "statuses"), [("off", (404, 404, 404)), ("health", (200, 200, 403))]
)
def test_the_setting_says_what_is_served(start_daemon, pages, statuses):
    """Nothing; or health and metrics, to who comes from this machine."""
    daemon = start_daemon({}, f"ssl = false\npages = {pages}")
    answers = [get(daemon.url, path) for path in ASKED]
    assert tuple(answer.status for answer in answers) == statuses
    told = [each.body.strip() for each in answers if each.status >= 400]
    assert all("see pages in scheduler.conf" in text and text in daemon.log for text in told)


def test_loopback_serves_all_to_who_comes_from_this_machine(daemon):
    """As the tests above have it."""
    assert [get(daemon.url, path).status for path in ASKED] == [200, 200, 200]


@pytest.mark.long
def test_health_is_what_the_watchdog_sees(start_daemon, tmp_path, monkeypatch):
    """503 and why while calls do not work, 200 when they do again."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        daemon: Daemon = start_daemon(PLUGINS, "ssl = false")
    monkeypatch.undo()
    assert get(daemon.url, "/health").status == 200
    zygote = daemon.zygote
    os.kill(zygote, signal.SIGSTOP)  # the daemon kills it some time later, and starts another
    told = wait_until(lambda: get(daemon.url, "/health"), suits=lambda got: got.status == 503)
    assert "is waited for" in told.body
    wait_until(lambda: get(daemon.url, "/health").status == 200)


@pytest.mark.long
def test_while_it_stops_health_says_so_and_calls_are_served(start_daemon):
    """So a load balancer takes it out before it refuses anybody."""
    daemon: Daemon = start_daemon(PLUGINS, "ssl = false\ndrain_time = 5")
    daemon.process.send_signal(signal.SIGTERM)
    told = wait_until(lambda: get(daemon.url, "/health"), suits=lambda got: got.status == 503)
    assert told.body == "the daemon stops\n"
    assert run(daemon.state.parent, "status", "--health")[:2] == (1, told.body)
    assert told.headers["connection"] == "close"
    assert daemon.design.runFilters(["First"], HOSTS, "vm", {}) == ["h1"]
    assert daemon.stop() == 0
