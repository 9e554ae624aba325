"""What a browser and a scraper ask a daemon for."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional
from urllib.parse import urlsplit

from tests.support.waiting import LONG


class Got(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def get(
    url: str,
    path: str,
    headers: Optional[dict[str, str]] = None,
    method: str = "GET",
    trust: Optional[ssl.SSLContext] = None,
) -> Got:
    """The answer to one request, on a connection of its own."""
    where = urlsplit(url)
    assert where.hostname is not None
    if trust is None:
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=LONG)
    else:
        connection = http.client.HTTPSConnection(
            where.hostname, where.port, timeout=LONG, context=trust
        )
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        body = answer.read().decode()
        return Got(answer.status, {k.lower(): v for k, v in answer.getheaders()}, body)
    finally:
        connection.close()
