"""How a fake engine is reached by HTTP: its paths, tokens and forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Callable
from urllib.parse import parse_qs, urlsplit

from tests.support import rest_events
from tests.support.elements import API
from tests.support.rest_reply import Reply

if TYPE_CHECKING:
    from tests.support.rest_server import RestServer

_SSO = "/ovirt-engine/sso/oauth/token"
_LOGOUT = "/ovirt-engine/services/sso-logout"
_HTML = "<html><head><title>Error</title></head><body>Error</body></html>"


class Server(ThreadingHTTPServer):
    daemon_threads = True
    engine: RestServer

    def handle_error(self, *_: object) -> None:
        """A client that went away, or that does not trust the certificate."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer leaves in one piece
    server: Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        engine = self.server.engine
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if url.path != API and not url.path.startswith(f"{API}/"):
            self._answer(Reply(404, "text/html", _HTML))
        elif scheme != "Bearer" or token not in engine.tokens:
            self._answer(Reply(401, "text/html", _HTML))
        else:
            self._answer(engine.get(url.path[len(API) + 1 :], _flat(url.query)))

    def do_POST(self) -> None:
        of_vm = re.fullmatch(rf"{API}/vms/([^/]+)/migrate(?:\?(.*))?", self.path)
        if of_vm:
            self._act(of_vm[1], _flat(of_vm[2] or "").get("correlation_id", ""))
            return
        body = self.rfile.read(int(self.headers["Content-Length"])).decode("utf-8")
        engine = self.server.engine
        if self.path == f"{API}/events":
            self._answer(rest_events.answer(engine, self.headers.get("Authorization", ""), body))
            return
        form = _flat(body)
        offered: dict[str, Callable[[Mapping[str, str]], Reply]] = {
            _SSO: engine.login,
            _LOGOUT: engine.logout,
        }
        action = offered.get(self.path)
        self._answer(action(form) if action else Reply(404, "text/html", _HTML))

    def _act(self, vm_id: str, correlation_id: str) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode("utf-8")
        _, _, token = self.headers.get("Authorization", "").partition(" ")
        engine, good = self.server.engine, token in self.server.engine.tokens
        engine.actions += 1
        if engine.hangs_up:
            self.close_connection = True
            return
        done = (
            engine.migrate(vm_id, body, correlation_id) if good else Reply(401, "text/html", _HTML)
        )
        self._answer(done)

    def _answer(self, reply: Reply) -> None:
        body = reply.body.encode("utf-8")
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def _flat(query: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
