"""What is answered over HTTP beside calls: others give the server a route for each kind of page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Callable, NamedTuple


class Response(NamedTuple):
    """An answer; its headers are those besides what every answer has."""

    status: int
    body: bytes
    headers: Mapping[str, str]


# Answers a GET or a HEAD. Its parameters: the path and the query of the request's target, the
# headers by their names in lower case, the client's address, and the daemon's as it was reached.
Route = Callable[[str, str, Mapping[str, str], str, str], Response]

FRONT = "/"  # the route for that path, and for what has no other


def first_part(path: str) -> str:
    """The part of a path by which its route is found: ``status`` of ``/status.json``."""
    return path.lstrip("/").partition("/")[0].partition(".")[0]
