"""A fake engine on the loopback, whose REST API has a fake cluster (``fake_cluster``).

It is real HTTP, for clients with its token. A request that the cluster has no answer to is answered
with a fault that says so.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Callable, NoReturn
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

from ovirt_scheduler.model.plugins import EngineAccess
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import EngineReplies, EngineReply, Sought
from ovirt_scheduler.workbench.fake_cluster import API, Absent, FakeCluster, Refused, Unknown

_MIGRATE = re.compile(rf"{API}/vms/([^/]+)/migrate(?:\?(.*))?")
_LONGEST_BODY = 1 << 20  # bytes of a request


class FakeEngine(ThreadingHTTPServer):
    """The server, in a thread of its own.

    Attributes:
        cluster: the one that it serves from now on.
        token: of a login; nobody else on the machine knows it.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cluster = FakeCluster((), ())
        self.token = secrets.token_urlsafe()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        """Of its API."""
        return f"http://127.0.0.1:{self.server_port}{API}"

    def access(self, deadline: float = 0.0) -> EngineAccess:  # noqa: ARG002
        """The values for ``engine_connection`` to reach it (``decisions.service``)."""
        return EngineAccess(self.url, None, self.token, is_fake=True)

    def look_up(self, sought: Sought, deadline: float) -> EngineReplies:  # noqa: ARG002
        """The documents of its hosts and VMs."""
        hosts, vm, vms, statistics = sought
        query = "?follow=statistics" if statistics else ""

        def reply(path: str, ids: Sequence[str]) -> EngineReply:
            document = Document(self.cluster.get(f"{path}{query}").encode(), "utf-8")
            return EngineReply(document, tuple(ids))

        machine = None
        if vm is not None:
            with contextlib.suppress(Absent):
                machine = reply(f"/vms/{vm}", (vm,))
        return EngineReplies(
            (reply("/hosts", hosts),) if hosts else (),
            machine,
            (reply("/vms", vms),) if vms else (),
        )

    def close(self) -> None:
        """End the server and its thread."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, *_: object) -> None:
        """Ignore a client that went away: a plugin that was killed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer leaves in one piece
    server: FakeEngine

    def do_GET(self) -> None:
        path = self.path.removeprefix(API)
        self._answer(lambda: self.server.cluster.get(path))

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(min(length, _LONGEST_BODY))
        self.close_connection = length > _LONGEST_BODY
        action = _MIGRATE.fullmatch(self.path)
        if action is None:
            self._answer(_changes_nothing)
            return
        mark = parse_qs(action[2] or "").get("correlation_id", [""])[-1]
        self._answer(lambda: self.server.cluster.migrate(action[1], body, mark))

    def do_PUT(self) -> None:
        self.close_connection = True  # its body is not read
        self._answer(_changes_nothing)

    do_DELETE = do_PUT  # noqa: N815  by this name http.server finds it

    def log_message(self, *_: object) -> None:
        """Log nothing: the output is the command's or the test's."""

    def _answer(self, ask: Callable[[], str]) -> None:
        expected = f"Bearer {self.server.token}"
        authorization = self.headers.get("Authorization", "")
        if not secrets.compare_digest(authorization.encode(), expected.encode()):
            self._send(HTTPStatus.UNAUTHORIZED, "<fault><reason>log in first</reason></fault>")
            return
        try:
            self._send(200, ask())
        except Refused as refusal:
            reason = "<reason>Operation Failed</reason>"
            text = f"<fault>{reason}<detail>[{escape(str(refusal))}]</detail></fault>"
            self._send(refusal.status, text)
        except Unknown as unknown:
            text = f"the fake engine {unknown} ({self.command} {unquote(self.path):.300})"
            self.server.cluster.unknown.append(text)
            self._send(unknown.status, f"<fault><reason>{escape(text)}</reason></fault>")

    def _send(self, status: int, text: str) -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _changes_nothing() -> NoReturn:
    raise Unknown("changes nothing, except by vms/ID/migrate")
