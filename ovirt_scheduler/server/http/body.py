"""The body of an HTTP request: by length or in chunks, gzipped or not, never past a limit.

The rules are those of RFC 9112 (sections 6 and 7) and RFC 9110 (8.4), read strictly: where
a request could be understood in two ways it is refused.
"""

from __future__ import annotations

import io
import re
import threading
import zlib
from collections.abc import Iterator
from http import HTTPStatus
from typing import Optional

from ovirt_scheduler.server.http.head import Headers, RequestRefused, bad, listed

_PIECE = 1 << 18  # bytes read, or decompressed, at once
_MAX_LINE = 4096  # bytes of a chunk's size line or a trailer line
_MAX_TRAILERS = 64
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(;.*)?")  # extensions are not read
_LINE = re.compile(rb"([^\x00-\x08\x0a-\x1f\x7f]*)\r\n")


class Room:
    """Bytes that the bodies of all requests may take together. Safe to use from many threads."""

    def __init__(self, size: int):
        self._free = size
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Whether there was so much left, which is taken then."""
        with self._lock:
            enough = size <= self._free
            self._free -= size * enough
            return enough

    def give_back(self, size: int) -> None:
        """Free bytes that were taken."""
        with self._lock:
            self._free += size


class BodyReader:
    """Reads one request's body.

    Making it checks the headers alone, so that ``Expect: 100-continue`` can be answered
    before anything is read.

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
        self._taken = 0
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
            if not self._room.take(len(piece)):
                text = "there are large requests under way, and no room for this one; try it later"
                raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, text)
            self._taken += len(piece)
        return bytes(body)

    def release(self) -> None:
        """The body is needed no more."""
        self._room.give_back(self._taken)

    def _of_length(self, length: int) -> Iterator[bytes]:
        left = length
        while left:
            piece = self._stream.read(min(left, _PIECE))
            if not piece:
                raise bad(f"the connection ended {left} bytes before the end of the body")
            left -= len(piece)
            yield piece

    def _in_chunks(self) -> Iterator[bytes]:
        total = 0
        while True:
            size_line = self._line()
            sized = _CHUNK_SIZE.fullmatch(size_line)
            if sized is None:
                raise bad("a chunk begins without its size, in hexadecimal digits")
            length = int(sized.group(1), 16)
            if not length:
                break
            total += length
            if total > self._limit:
                raise self._too_large()
            yield from self._of_length(length)
            if self._line():
                raise bad("a chunk is longer than its size says")
        for _ in range(_MAX_TRAILERS):
            if not self._line():
                return
        raise bad(f"more than {_MAX_TRAILERS} trailer lines after the last chunk")

    def _line(self) -> bytes:
        found = _LINE.fullmatch(self._stream.readline(_MAX_LINE))
        if found is None:
            raise bad("a line of the chunked body is too long, or broken, or ends without CR LF")
        return found.group(1)

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
    lengths = headers.get("content-length", ())
    codings = headers.get("transfer-encoding", ())
    if codings and lengths:
        raise bad("send either Content-Length or Transfer-Encoding, not both")
    if codings:
        if listed(headers, "transfer-encoding") != ["chunked"]:
            text = "the Transfer-Encoding is unknown; send chunked, or a Content-Length"
            raise RequestRefused(HTTPStatus.NOT_IMPLEMENTED, text)
        return None
    if not lengths:
        text = "send a Content-Length, or the body in chunks"
        raise RequestRefused(HTTPStatus.LENGTH_REQUIRED, text)
    if len(set(lengths)) > 1 or not re.fullmatch(r"[0-9]{1,100}", lengths[0].strip(" \t")):
        raise bad("the Content-Length is not one number")
    return int(lengths[0])
