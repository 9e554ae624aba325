"""What goes wrong with the engine's answers and logins, how it is told, and when it is asked again."""

from __future__ import annotations

import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, quote_plus

import pytest

from ovirt_scheduler.engine import client
from ovirt_scheduler.engine.inventory import Inventory, InventoryBounds
from ovirt_scheduler.errors import EngineUnavailable
from ovirt_scheduler.model.tasks import Sought
from ovirt_scheduler.security import certificates
from tests.support.rest_server import PASSWORD, USER, Host, Reply, id_of
from tests.support.waiting import LONG, soon

NO_TOKEN = f"answered HTTP 400 Bad Request with application/json, and no token for {USER}"


def test_a_user_who_may_not_ask_is_told_after_one_new_login(engine, asking):
    """No endless logging in."""
    engine.broken = Reply(401, "text/html", "<html/>")
    with pytest.raises(EngineUnavailable, match="HTTP 401 Unauthorized"):
        asking.look_up(Sought(vm=id_of("web")), soon())
    assert (engine.logins, len(engine.queries)) == (2, 2)


def closed_port(_engine, _folder):
    return {"url": "https://localhost:1/ovirt-engine/api"}


def another_authority(_engine, folder):
    return {"ca_file": certificates.ensure(folder / "other").certificate}


def no_authority(_engine, folder):
    return {"ca_file": folder / "missing.pem"}


def password_of(content):
    def change(_engine, folder):
        path = folder / "other-password"
        if content is not None:
            path.touch(0o600)
            path.write_bytes(content)
        return {"password_file": path}

    return change


def broken(*reply):
    def change(engine, _folder):
        engine.broken = Reply(*reply)
        return {}

    return change


def wrong_path(engine, _folder):
    return {"url": engine.url + "/v9"}


def limited(engine, _folder):
    engine.broken = Reply(200, "application/xml", "x" * (client.MOST_BYTES + 1))
    return {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (closed_port, "connect"),
        (another_authority, "certificate"),
        (no_authority, "missing.pem"),
        (password_of(b"nonsense\n"), f"no login for {USER}: access_denied"),
        (password_of(None), "other-password: cannot be read: No such file or directory"),
        (password_of(b"\n"), "other-password: expected 1 to 4096 characters in its first line"),
        (password_of(b"x" * 4097), "other-password: expected 1 to 4096 characters in its first"),
        (password_of(b"\xff\xfe\n"), "other-password: is not UTF-8"),
        (broken(500, "application/xml", "<fault/>"), "HTTP 500 Internal Server Error with application/xml: a fault without a reason"),
        (broken(500, "application/xml", "<hosts/>"), "HTTP 500 Internal Server Error with application/xml, but no fault"),
        (broken(302, "application/xml", "<hosts/>"), "HTTP 302 Found with application/xml, which is not what was asked for"),
        (
            broken(500, "application/xml", "<fault><detail>[Internal\nError: &lt;x&gt; \x1b]</detail><reason>Operation Failed</reason></fault>"),
            "HTTP 500 Internal Server Error: Operation Failed: [Internal Error: <x> \N{REPLACEMENT CHARACTER}]",
        ),
        (broken(500, "text/html", "<reason>no fault</reason>"), "HTTP 500 Internal Server Error with text/html; expected XML"),
        (broken(400, "application/xml", f"<fault><reason>{'x' * 800}</reason></fault>"), f"{'x' * 300}"),
        (broken(200, "text/html; charset=utf-8", "<html/>"), "HTTP 200 OK with text/html; expected XML"),
        (broken(200, "text/\xff\xfe", "<html/>"), "HTTP 200 OK with text/\xff\xfe; expected XML"),
        (broken(302, "text/html", ""), "HTTP 302 Found"),
        (broken(299, "", ""), "HTTP 299 with nothing"),
        (broken(200, "text/\x1b[1m", ""), "HTTP 200 OK with text/\N{REPLACEMENT CHARACTER}[1m; exp"),
        (wrong_path, "HTTP 404 Not Found"),
        (limited, "an answer of more than 64 MiB"),
    ],
)  # fmt: skip
def test_whatever_goes_wrong_is_one_line_that_names_the_url(engine, tmp_path, change, words):
    """And not the password, nor the hundred ids of a search."""
    settings = engine.settings(**change(engine, tmp_path))
    with pytest.raises(EngineUnavailable) as caught:
        Inventory(settings).look_up(Sought(tuple(engine.ids())), soon())
    message = str(caught.value)
    assert re.match(r"https://localhost:\d+/ovirt-engine/\S+: ", message)
    assert words in message
    assert len(message.splitlines()) == 1
    assert len(message) < 500
    assert PASSWORD not in message
    assert id_of("lynx") not in message


@pytest.mark.parametrize(
    ("kind", "words"), [("text/html", "expected XML"), ("application/xml", "but no fault")]
)
def test_a_404_of_somebody_else_is_a_failure_and_no_missing_vm(engine, asking, kind, words):
    engine.broken = Reply(404, kind, "<html>no such page</html>")
    with pytest.raises(EngineUnavailable, match=f"HTTP 404 Not Found with {kind}.*{words}"):
        asking.look_up(Sought(vm=id_of("web")), soon())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ('{"error": "invalid_grant", "error_description": "SAID"}', f"no login for {USER}: invalid_grant"),
        ('{"error": "SAID", "error_code": "access_denied"}', f"no login for {USER}: access_denied"),
        ('{"error": "SAID", "error_code": "SAID"}', NO_TOKEN),
        ('{"error": ["SAID"]}', NO_TOKEN),
        ("SAID", NO_TOKEN),
        ('["SAID"]', NO_TOKEN),
        ('{"access_token": "\\ud800"}', NO_TOKEN),
        ('{"access_token": "TOKEN"}'.replace("TOKEN", "x" * 16385), NO_TOKEN),
        ("[" * 1_000_000, NO_TOKEN),
        ('{"error": ' + "[" * 1_000_000, NO_TOKEN),
        ("[" * 2_000_000, "an answer of more than 1 MiB"),
    ],
    ids=range(11),
)  # fmt: skip
def test_a_login_that_fails_repeats_codes_alone(engine, asking, answer, words):
    """The rest may have the password, written in whichever way; it is no bug, and tried once."""
    in_xml = "".join(f"&#{ord(sign)};" for sign in PASSWORD)
    for said in (PASSWORD, quote_plus(PASSWORD), quote(PASSWORD), in_xml):
        engine.broken_login = Reply(400, "application/json", answer.replace("SAID", said))
        asking._retry_at = 0.0
        with pytest.raises(EngineUnavailable) as caught:
            asking.look_up(Sought(vm=id_of("web")), soon())
        assert words in str(caught.value)
        assert said not in str(caught.value)
        assert len(str(caught.value)) < 300


def test_a_silent_engine_takes_half_of_a_requests_time(engine, asking):
    """The other half is the plugins'."""
    engine.answering.clear()
    deadline = soon(3)
    with pytest.raises(EngineUnavailable, match=r"/hosts: .*timed out"):
        asking.look_up(Sought(tuple(engine.ids())), deadline)
    assert time.monotonic() < deadline


def test_a_silent_login_has_the_same_limit(engine):
    """Somebody accepts the connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://localhost:{silent.getsockname()[1]}/ovirt-engine/api"
        deadline = soon(2)
        with pytest.raises(EngineUnavailable, match=r"token: .*time"):
            Inventory(engine.settings(url=url)).access(deadline)
        assert time.monotonic() < deadline


def test_a_slow_engine_has_one_limit_for_all_that_a_request_asks(engine, asking):
    """Three pieces and a VM do not get the time four times."""
    engine.hosts = [Host(f"node{number}") for number in range(250)]
    engine.answering.clear()
    deadline = soon(2)
    with pytest.raises(EngineUnavailable):
        asking.look_up(Sought(tuple(engine.ids()), id_of("web")), deadline)
    assert time.monotonic() < deadline
    assert len(engine.queries) == 1


def test_after_a_failure_nobody_waits_again(engine):
    """For cache_seconds the same failure is told at once, whatever is asked."""
    asking = Inventory(engine.settings(), patience=0.5)
    engine.answering.clear()
    with pytest.raises(EngineUnavailable) as first:
        asking.look_up(Sought(tuple(engine.ids())), soon())
    engine.answering.set()
    for ask in (
        lambda: asking.look_up(Sought(tuple(engine.ids())), soon()),
        lambda: asking.look_up(Sought(vm=id_of("web")), soon()),
        lambda: asking.access(soon()),
    ):
        with pytest.raises(EngineUnavailable) as again:
            ask()
        assert str(again.value) == str(first.value)
    assert len(engine.queries) == 1
    asking._retry_at = 0.0  # as when the time is over; nothing of the failure is kept
    assert asking.look_up(Sought(tuple(engine.ids()), id_of("web")), soon()).vm is not None


def test_a_failed_login_is_not_tried_for_each_request(engine, tmp_path):
    """Engines lock a user out who comes with a wrong password again and again."""
    settings = engine.settings(cache_seconds=0, **password_of(b"nonsense")(engine, tmp_path))
    asking = Inventory(settings)
    for _ in range(5):
        with pytest.raises(EngineUnavailable):
            asking.access(soon())
    assert engine.refused == 1


def test_after_the_pause_it_is_asked_again(engine):
    """By one request at a time; when that succeeds, by all."""
    asking = Inventory(engine.settings(cache_seconds=0), bounds=InventoryBounds(pause=0.05))
    engine.broken = Reply(500, "text/html", "")
    with pytest.raises(EngineUnavailable):
        asking.look_up(Sought(vm=id_of("web")), soon())
    engine.broken = None
    assert asking.look_up(Sought(vm=id_of("web")), after(0.05)).vm is not None
    assert asking.look_up(Sought(vm=id_of("mail")), soon()).vm is not None


def test_while_one_tries_again_the_others_still_fail_fast(engine):
    """An engine that stays silent holds up one request, not all."""
    bounds = InventoryBounds(pause=0.5)
    asking = Inventory(engine.settings(cache_seconds=0), patience=0.25, bounds=bounds)
    engine.answering.clear()
    with pytest.raises(EngineUnavailable):
        asking.look_up(Sought(vm=id_of("web")), soon())
    assert engine.arrived.acquire(timeout=LONG)
    asking.bounds = InventoryBounds(pause=60.0)
    asking.patience = 10.0
    with ThreadPoolExecutor(1) as threads:
        again = threads.submit(lambda: asking.look_up(Sought(vm=id_of("web")), after(0.5)))
        assert engine.arrived.acquire(timeout=LONG)
        with pytest.raises(EngineUnavailable):
            asking.look_up(Sought(vm=id_of("mail")), soon())
        engine.answering.set()
        assert again.result().vm is not None
    assert len(engine.asked(f"vms/{id_of('mail')}")) == 0


def after(seconds):
    """A deadline, once so many seconds are over."""
    threading.Event().wait(seconds)
    return soon()
