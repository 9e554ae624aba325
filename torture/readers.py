"""Those who look on: a scrape each second, and pages that somebody loads all along."""

from __future__ import annotations

import http.client
import itertools
import ssl
import threading
import time

from torture.subject import Subject
from torture.tally import Tally

_PATIENCE = 30.0  # seconds
_EVERY = 1.0  # seconds
_METRICS = "/metrics"
_PAGES = ("/status?refresh=off", "/decisions", "/status.json", "/decisions.json", "/health")
_ENDS = {"/metrics": b"", "/health": b"", "/decisions.json": b"]", ".json": b"}", "": b"</html>"}


class Reader:
    """Reads ``/metrics`` and one page after another, each on a connection of its own."""

    def __init__(self, subject: Subject, tally: Tally) -> None:
        self._subject = subject
        self._tally = tally
        self._trust = subject.trust()

    def run(self, stop: threading.Event) -> None:
        for page in itertools.cycle(_PAGES):
            for path in (_METRICS, page):
                self._read(path)
            if stop.wait(_EVERY):
                return

    def _read(self, path: str) -> None:
        begin = time.monotonic()
        host, port = self._subject.address
        connection = http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=self._trust)
        try:
            connection.request("GET", path, headers={"Host": "localhost"})
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, ssl.SSLError, http.client.HTTPException):
            self._tally.count("pages: connections closed before an answer")
            return
        finally:
            connection.close()
        self._tally.count("pages read")
        end = next(end for of, end in _ENDS.items() if path.endswith(of))
        whole = answer.status == 200 and body.rstrip().endswith(end)
        ill = answer.status == 503 and self._tally.harmed(begin)  # so says /health, rightly
        if not (whole or ill):
            self._tally.find(f"{path}: HTTP {answer.status}, {body[-200:]!r}")
