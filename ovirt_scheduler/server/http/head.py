"""The head of an HTTP request: its first line and its headers, never past a limit.

Read as strictly as RFC 9112 (sections 2 to 5) allows. A proxy that understands a request otherwise
than the daemon does would pass on what it has never seen, so what can be understood in two ways is
refused.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple, Optional

_MAX_LINE = 65536  # bytes, without its end
_MAX_HEADERS = 100

TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105  what HTTP calls so, and no secret
_FIRST_LINE = re.compile(rf"({TOKEN}) ([!\"$-~]+) HTTP/([0-9])\.([0-9])")
_TARGET = re.compile(
    r"""
    (?: https?:// ( (?: \[ [0-9a-f:.]+ \] | [\w.-]+ ) (?: : [0-9]* )? ) (?= [/?] | \Z ) )?  # host
    (?: /* (?= / ) )?  # of several slashes the last counts
    ( [^?]* ) \?? ( .* )  # path and query
    """,
    re.VERBOSE | re.IGNORECASE,
)
_HEADER = re.compile(rf"({TOKEN}):([^\x00-\x08\x0a-\x1f\x7f]*)")

Headers = Mapping[str, Sequence[str]]  # by name, in lower case: the values in their order


class RequestRefused(Exception):
    """The request cannot be taken; the text is for whoever wrote the client."""

    def __init__(self, status: HTTPStatus, text: str):
        super().__init__(text)
        self.status = status


class FirstLine(NamedTuple):
    """The first line of a request: verb, target in its parts, and version."""

    method: str = ""
    host: Optional[str] = None  # None: the header Host has it
    path: str = ""
    query: str = ""
    version: str = ""  # HTTP/1.0, or HTTP/1.1 for that and any later 1.x


def read_first_line(stream: io.BufferedIOBase) -> Optional[FirstLine]:
    """The line that says what is asked for; None where the connection ends before it.

    Raises:
        RequestRefused: it is too long, broken, or of another version of HTTP.
        OSError: as the stream raises, TimeoutError among them.
    """
    line = _line(stream, HTTPStatus.REQUEST_URI_TOO_LONG)
    if line == "":  # left over from the last request (RFC 9112, 2.2)
        line = _line(stream, HTTPStatus.REQUEST_URI_TOO_LONG)
    if line is None:
        return None
    found = _FIRST_LINE.fullmatch(line)
    if found is None:
        raise bad("the first line is not a verb, a path and HTTP/1.1, with a space between them")
    method, target, major, minor = found.groups()
    if major != "1":
        raise RequestRefused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "speak HTTP/1.1")
    host, path, query = _TARGET.fullmatch(target).groups()  # type: ignore[union-attr]
    return FirstLine(method, host, path, query, "HTTP/1.0" if minor == "0" else "HTTP/1.1")


def read_headers(stream: io.BufferedIOBase, first: FirstLine) -> Headers:
    """The headers, and the empty line after them; spaces and tabs round a value are taken off.

    A host in the first line counts, and the header ``Host`` does not then (RFC 9112, 3.2.2).

    Raises:
        RequestRefused: they are too long or too many, one of them is broken, or they name
            several hosts.
        OSError: as the stream raises, TimeoutError among them.
    """
    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    headers: dict[str, list[str]] = {}
    for _ in range(_MAX_HEADERS + 1):
        line = _line(stream, status)
        if line is None:
            raise bad("the connection ended within the headers")
        if not line:
            break
        found = _HEADER.fullmatch(line)
        if found is None:
            raise bad(
                "a header has to be a name, a colon and a value, in one line and without control "
                "characters"
            )
        name, value = found.groups()
        headers.setdefault(name.lower(), []).append(value.strip(" \t"))
    else:
        raise RequestRefused(status, f"more than {_MAX_HEADERS} header lines")
    if first.version == "HTTP/1.0" and "transfer-encoding" in headers:
        raise bad("HTTP/1.0 has no Transfer-Encoding; send a Content-Length")
    # None is needed here. RFC 9112 refuses that, too, but the old proxy served such clients.
    if len(headers.get("host", ())) > 1:
        raise bad(f"there are {len(headers['host'])} Host headers; send one")
    if first.host is not None:
        headers["host"] = [first.host]
    return headers


def stays_open(version: str, headers: Headers) -> bool:
    """Whether the client wants the connection for further requests."""
    wanted = listed(headers, "connection")
    return "close" not in wanted and (version != "HTTP/1.0" or "keep-alive" in wanted)


def listed(headers: Headers, name: str) -> list[str]:
    """The elements, in lower case, of all headers of a name whose values are lists."""
    whole = ",".join(headers.get(name, ())).lower()
    return [element.strip(" \t") for element in whole.split(",")]


def bad(text: str) -> RequestRefused:
    """A refusal of the request with status 400."""
    return RequestRefused(HTTPStatus.BAD_REQUEST, text)


def _line(stream: io.BufferedIOBase, too_long: HTTPStatus) -> Optional[str]:
    """A line without its end; None where the connection ends before it."""
    line = stream.readline(_MAX_LINE + 2)
    if not line:
        return None
    if len(line) == _MAX_LINE + 2 and not line.endswith(b"\n"):
        raise RequestRefused(too_long, f"a line is longer than {_MAX_LINE} bytes")
    if not line.endswith(b"\r\n"):
        raise bad("a line does not end with CR LF")
    return str(line[:-2], "iso-8859-1")
