"""Clients that begin a request and do not end it: they keep nobody else out."""

from __future__ import annotations

import logging
import xmlrpc.client
from dataclasses import replace
from typing import Callable

import pytest

from ovirt_scheduler.security.certificates import CertificateFiles
from ovirt_scheduler.server.http.tls import TlsContext
from tests.support.half_requests import BODY, HEAD, client_hello
from tests.support.served import SETTINGS, Reply, Running, ask, at_end, messages, post

FEW = replace(SETTINGS, max_connections=16, connection_timeout=60)
MANY = 60  # half requests


@pytest.fixture(params=["plain", "secure"])
def small(
    request: pytest.FixtureRequest,
    start: Callable[..., Running],
    context: TlsContext,
    files: CertificateFiles,
) -> Running:
    """A server of few connections."""
    return start(FEW) if request.param == "plain" else start(replace(FEW, tls=context), files)


@pytest.mark.parametrize("half", [HEAD, BODY], ids=["head", "body"])
def test_half_requests_keep_nobody_out(
    small: Running, caplog: pytest.LogCaptureFixture, half: bytes
) -> None:
    """New callers are answered; the log has one line on who was closed, and none for each."""
    caplog.set_level(logging.INFO)
    for _ in range(MANY):
        small.sent(half)
    for _ in range(MANY):
        assert ask(small, post(Connection="close")).value == "design"
    (line,) = messages(caplog)
    assert line.startswith("all connections are in use; closed for new ones")
    assert not [line for line in messages(caplog, logging.INFO) if "HTTP" in line]


@pytest.mark.parametrize("size", [1, 100, None], ids=["a byte", "a part", "all of it"])
def test_handshakes_that_do_not_go_on_keep_nobody_out(
    start: Callable[..., Running], context: TlsContext, files: CertificateFiles, size: int
) -> None:
    running = start(replace(FEW, tls=context), files)
    hello = client_hello()[:size]
    for _ in range(MANY):
        running.raw().sendall(hello)
    for _ in range(MANY):
        assert ask(running, post(Connection="close")).value == "design"


@pytest.mark.parametrize("half", [HEAD, BODY], ids=["head", "body"])
def test_an_upload_that_goes_on_is_not_closed_for_half_requests(
    small: Running, half: bytes
) -> None:
    """Neither for those without a head, nor for those whose body comes more slowly."""
    text = "x" * (4 << 20)
    upload = post(xmlrpc.client.dumps((text,), "length").encode())
    piece = len(upload) // 20 + 1
    connection = small.connect()
    for begin in range(0, len(upload), piece):
        connection.sendall(upload[begin : begin + piece])
        for _ in range(4):
            small.sent(half)
        assert ask(small, post(Connection="close")).value == "design"
    assert Reply(connection).value == len(text)


def test_a_request_that_comes_in_two_parts_is_served_where_there_is_room(small: Running) -> None:
    whole = post()
    connection = small.sent(whole[:30])
    assert ask(small, post()).value == "design"
    connection.sendall(whole[30:])
    assert Reply(connection).value == "design"


def test_the_client_of_a_half_request_that_makes_room_gets_no_answer(small: Running) -> None:
    half = small.sent(HEAD)
    for _ in range(FEW.max_connections):
        small.sent(HEAD)
    assert ask(small, post()).value == "design"
    assert at_end(half)
