"""An HTTP request: its first line, its headers and its body, never past a limit.

Read as strictly as RFC 9112 (sections 2 to 7) and RFC 9110 (8.4) allow. If a proxy in front read a
request in another way than the daemon, it could pass on a hidden request. So a request that can be
read in two ways is refused. A body comes by length or in chunks, gzipped or not.
"""

from __future__ import annotations

import io
import re
import threading
import zlib
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Optional

from ovirt_scheduler.model.requests import new_id
from ovirt_scheduler.model.values.text import count_of

_MAX_LINE = 65536  # bytes of a line, and of all headers together, without their ends
_MAX_HEADERS = 100  # and trailers after the last chunk
_PIECE = 1 << 18  # bytes of a body that are read, or decompressed, at once

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105  what HTTP calls so, and no secret
_FIRST_LINE = re.compile(rf"({_TOKEN}) ([!\"$-~]+) HTTP/([0-9])\.([0-9])")
_HOST = r"(?:\[[0-9a-f:.]+\]|[\w.-]+)(?::[0-9]*)?"
_TARGET = re.compile(rf"(?:https?://({_HOST})(?=[/?]|\Z))?([^?]*)\??(.*)", re.IGNORECASE)
_HEADER = re.compile(rf"({_TOKEN}):([^\x00-\x08\x0a-\x1f\x7f]*)")

_CHUNK_SIZE = re.compile(r"([0-9A-Fa-f]{1,15})[ \t]*(;[^\x00-\x08\x0a-\x1f\x7f]*)?")

Headers = Mapping[str, str]  # by name, in lower case: the values, with a comma between several


class RequestRefused(Exception):
    """The request cannot be taken; the text is for the author of the client."""

    def __init__(self, status: HTTPStatus, text: str):
        super().__init__(text)
        self.status = status


class HttpRequest:
    """The head of a request.

    Attributes:
        id: of the request in the log, and of its decision.
        method, path, query: empty until the first line has come.
        is_old: of HTTP/1.0, and not of 1.1 or any later 1.x.
        headers: their values are without spaces round them.
    """

    def __init__(self) -> None:
        self.id = new_id()
        self.method = self.path = self.query = ""
        self.is_old = False
        self.headers: dict[str, str] = {}

    def read(self, stream: io.BufferedIOBase) -> bool:
        """Read the head; False if the connection ends before it.

        A host in the first line counts, and the header ``Host`` does not then (RFC 9112, 3.2.2).

        Raises:
            RequestRefused: a line is too long or broken, the version of HTTP is another, or there
                are too many headers, or several hosts.
            OSError: as the stream raises, TimeoutError among them.
        """
        line = _line(stream, HTTPStatus.REQUEST_URI_TOO_LONG)
        if line == "":  # left over from the last request (RFC 9112, 2.2)
            line = _line(stream, HTTPStatus.REQUEST_URI_TOO_LONG)
        if line is None:
            return False
        match = _FIRST_LINE.fullmatch(line)
        if match is None:
            raise bad(
                "the first line is not a verb, a path and HTTP/1.1, with a space between them"
            )
        method, target, major, minor = match.groups()
        if major != "1":
            raise RequestRefused(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "speak HTTP/1.1")
        self.method, self.is_old = method, minor == "0"
        host, path, self.query = _TARGET.fullmatch(target).groups()  # type: ignore[union-attr]
        # //RPC2 comes of a URL that ends with a slash.
        self.path = f"/{path.lstrip('/')}" if path.startswith("//") else path
        self._read_headers(stream)
        if host is not None:
            self.headers["host"] = host
        return True

    def stays_open(self) -> bool:
        """Whether the connection is there for further requests."""
        return not self.is_old and "close" not in listed(self.headers, "connection")

    def _read_headers(self, stream: io.BufferedIOBase) -> None:
        for name, value in _fields(stream):
            self.headers[name] = f"{self.headers[name]},{value}" if name in self.headers else value
        if self.is_old and "transfer-encoding" in self.headers:
            raise bad("HTTP/1.0 has no Transfer-Encoding; send a Content-Length")
        # None is needed here. RFC 9112 refuses that, too, but the old proxy served such clients.
        if "," in self.headers.get("host", ""):
            raise bad("there are several Host headers; send one")


def listed(headers: Headers, name: str) -> list[str]:
    """The elements, in lower case, of all headers of a name whose values are lists."""
    return [element.strip(" \t") for element in headers.get(name, "").lower().split(",")]


def bad(text: str) -> RequestRefused:
    """A refusal of the request with status 400."""
    return RequestRefused(HTTPStatus.BAD_REQUEST, text)


def _line(stream: io.BufferedIOBase, too_long: HTTPStatus) -> Optional[str]:
    """A line without its end; None if the connection ends before it."""
    line = stream.readline(_MAX_LINE + 2)
    if not line:
        return None
    if len(line) == _MAX_LINE + 2 and not line.endswith(b"\n"):
        raise RequestRefused(too_long, f"a line is longer than {_MAX_LINE} bytes")
    if not line.endswith(b"\r\n"):
        raise bad("a line does not end with CR LF")
    return str(line[:-2], "iso-8859-1")


def _fields(stream: io.BufferedIOBase) -> Iterator[tuple[str, str]]:
    """The headers, or trailers, up to the empty line: names in lower case, and values."""
    too_large = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    size = 0
    for _ in range(_MAX_HEADERS + 1):
        line = _line(stream, too_large)
        if line is None:
            raise bad("the connection ended within the headers")
        if not line:
            return
        size += len(line)
        if size > _MAX_LINE:
            raise RequestRefused(too_large, f"the headers are longer than {_MAX_LINE} bytes")
        header = _HEADER.fullmatch(line)
        if header is None:
            raise bad(
                "a header has to be a name, a colon and a value, in one line and without control "
                "characters"
            )
        yield header[1].lower(), header[2].strip(" \t")
    raise RequestRefused(too_large, f"more than {_MAX_HEADERS} header lines")


class Room:
    """Bytes that the bodies of all requests, or all answers, may take together.

    Safe to use from many threads.
    """

    def __init__(self, size: int):
        self._free = size
        self._lock = threading.Lock()

    def reserve(self, size: int) -> bool:
        """Reserve so many bytes; False if fewer are free."""
        with self._lock:
            enough = size <= self._free
            self._free -= size * enough
            return enough

    def give_back(self, size: int) -> None:
        """Free bytes that were reserved."""
        with self._lock:
            self._free += size


class BodyReader:
    """Reads one request's body.

    The constructor checks only the headers, so that ``Expect: 100-continue`` can be answered before
    anything is read.

    Args:
        headers: the request's.
        stream: stands at the first byte of the body.
        limit: bytes of the body, both as it is sent and after decompression.
        room: what the body takes of it is given back by ``release``.

    Raises:
        RequestRefused: the headers already say that the body cannot be taken.
    """

    def __init__(self, headers: Headers, stream: io.BufferedIOBase, limit: int, room: Room):
        self._stream = stream
        self._limit = limit
        self._room = room
        self._reserved = 0
        self._gzipped = _is_gzipped(headers)
        self._length = _length(headers)  # None: in chunks
        if self._length is not None and self._length > limit:
            raise self._too_large()

    def read(self) -> bytes:
        """Read the whole body, and decompress it.

        Raises:
            RequestRefused: too large, broken, or ended early; no room for it beside others.
            OSError: as the stream raises, TimeoutError among them.
        """
        pieces = self._in_chunks() if self._length is None else self._of_length(self._length)
        if self._gzipped:
            pieces = self._decompressed(pieces)
        body = bytearray()
        for piece in pieces:
            body += piece
            if len(body) > self._limit:
                raise self._too_large()
            if not self._room.reserve(len(piece)):
                text = "there are large requests under way, and no room for this one; try it later"
                raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, text)
            self._reserved += len(piece)
        return bytes(body)

    def release(self) -> None:
        """Give back the room of the body, which is no longer needed."""
        self._room.give_back(self._reserved)

    def _of_length(self, length: int) -> Iterator[bytes]:
        remaining = length
        while remaining:
            piece = self._stream.read(min(remaining, _PIECE))
            if not piece:
                missing = count_of(remaining, "byte")
                raise bad(f"the connection ended {missing} before the end of the body")
            remaining -= len(piece)
            yield piece

    def _in_chunks(self) -> Iterator[bytes]:
        total = 0
        while True:
            line = self._line()
            sized = _CHUNK_SIZE.fullmatch(line)
            if sized is None:
                raise bad("a chunk begins without its size, in hexadecimal digits")
            length = int(sized[1], 16)
            if not length:
                break
            # What stands behind the size counts, too: else it could go on without end.
            total += length + len(line) - len(sized[1])
            if total > self._limit:
                raise self._too_large()
            yield from self._of_length(length)
            if self._line():
                raise bad("a chunk is longer than its size says")
        for _ in _fields(self._stream):  # trailers are not used
            pass

    def _line(self) -> str:
        line = _line(self._stream, HTTPStatus.BAD_REQUEST)
        if line is None:
            raise bad("the connection ended within the chunks")
        return line

    def _decompressed(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            for piece in pieces:
                compressed = piece
                while compressed:
                    yield member.decompress(compressed, _PIECE)
                    compressed = member.unconsumed_tail
                if member.unused_data:
                    raise bad("the gzipped body goes on after its end")
            yield member.flush()
        except zlib.error as error:
            raise bad(f"the body is not gzip, as its Content-Encoding says: {error}") from None
        if not member.eof:
            raise bad("the gzipped body ends early")

    def _too_large(self) -> RequestRefused:
        text = f"the body is larger than {self._limit} bytes, max_request_size in scheduler.conf"
        return RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)


def _is_gzipped(headers: Headers) -> bool:
    encodings = listed(headers, "content-encoding")
    named = [encoding for encoding in encodings if encoding not in ("", "identity")]
    if named not in ([], ["gzip"], ["x-gzip"]):
        text = "the Content-Encoding is unknown; send the body as it is, or gzip"
        raise RequestRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
    return bool(named)


def _length(headers: Headers) -> Optional[int]:
    length = headers.get("content-length")
    if "transfer-encoding" in headers:
        if length is not None:
            raise bad("send either Content-Length or Transfer-Encoding, not both")
        if listed(headers, "transfer-encoding") != ["chunked"]:
            text = "the Transfer-Encoding is unknown; send chunked, or a Content-Length"
            raise RequestRefused(HTTPStatus.NOT_IMPLEMENTED, text)
        return None
    if length is None:
        text = "send a Content-Length, or the body in chunks"
        raise RequestRefused(HTTPStatus.LENGTH_REQUIRED, text)
    if not re.fullmatch("[0-9]{1,100}", length):
        raise bad("the Content-Length is not one number")
    return int(length)
