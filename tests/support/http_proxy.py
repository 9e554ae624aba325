"""An HTTP proxy for tests: it writes down what it is asked, and opens tunnels."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import threading
from typing import TypeVar

Self = TypeVar("Self", bound="HttpProxy")

NAMES = ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


class HttpProxy:
    """Serves from ``with`` until its end.

    Attributes:
        requests: the first line of each request that it was sent.
        environment: variables that name it in each way that libcurl knows.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self._server = _Server(("127.0.0.1", 0), _Tunnel)
        self._server.proxy = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.environment = dict.fromkeys(NAMES, self.url)

    def __enter__(self: Self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,)).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    proxy: HttpProxy


class _Tunnel(socketserver.StreamRequestHandler):
    rbufsize = 0
    server: _Server

    def handle(self) -> None:
        method, target, *_ = words = self.rfile.readline().decode("latin-1").split()
        self.server.proxy.requests.append(" ".join(words))
        while self.rfile.readline().strip():
            pass
        if method != "CONNECT":
            self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            return
        host, _, port = target.rpartition(":")
        with socket.create_connection((host, int(port))) as behind:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with contextlib.suppress(OSError):
                self._pass_on(behind)

    def _pass_on(self, behind: socket.socket) -> None:
        other = {behind: self.request, self.request: behind}
        while True:
            for ready in select.select([*other], [], [])[0]:
                piece = ready.recv(65536)
                if not piece:
                    return
                other[ready].sendall(piece)
