"""HTTP bodies: by length, in chunks, gzipped, within limits."""

from __future__ import annotations

import gzip
import io

import pytest

from ovirt_scheduler.server.http.request_reader import BodyReader, RequestRefused, Room

LIMIT = 1000


def read(headers: dict[str, str], sent: bytes) -> tuple[bytes, bytes]:
    """The body, and what the stream holds after it."""
    made = {name.lower(): value for name, value in headers.items()}
    stream = io.BytesIO(sent)
    return BodyReader(made, stream, LIMIT, Room(LIMIT)).read(), stream.read()


def refusal(headers: dict[str, str], sent: bytes) -> tuple[int, str]:
    with pytest.raises(RequestRefused) as caught:
        read(headers, sent)
    return caught.value.status, str(caught.value)


CHUNKED = {"Transfer-Encoding": "chunked"}


def in_chunks(data: bytes, size: int) -> bytes:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


PACKED = gzip.compress(b"hello", mtime=0)  # it names tests: the same at any time


def gzipped(data: bytes) -> dict[str, str]:
    return {"Content-Encoding": "gzip", "Content-Length": str(len(data))}


@pytest.mark.parametrize("length", ["5", "005"])
def test_a_body_ends_at_its_length(length: str) -> None:
    """What follows the body stays in the stream."""
    assert read({"Content-Length": length}, b"helloNEXT") == (b"hello", b"NEXT")


def test_a_body_may_be_empty() -> None:
    """Length zero, and no chunk but the last, are bodies."""
    assert read({"Content-Length": "0"}, b"NEXT") == (b"", b"NEXT")
    assert read(CHUNKED, b"0\r\n\r\nNEXT") == (b"", b"NEXT")


@pytest.mark.parametrize(
    "sent",
    [
        b"5\r\nhello\r\n0\r\n\r\n",
        b"1\r\nh\r\n4\r\nello\r\n0\r\n\r\n",
        b"0005\r\nhello\r\n000\r\n\r\n",
        b"5;name=value;other\r\nhello\r\n0;last\r\n\r\n",
        b"5 \r\nhello\r\n0\r\nTrailer: value\r\nOther: value\r\n\r\n",
    ],
)
def test_chunks_make_a_body(sent: bytes) -> None:
    """Chunk extensions and trailers are passed over; the next request stays in the stream."""
    assert read({"Transfer-Encoding": "Chunked"}, sent + b"NEXT") == (b"hello", b"NEXT")


@pytest.mark.parametrize("size", ["A", "a"])
def test_chunk_sizes_are_hexadecimal(size: str) -> None:
    """Digits above nine come in either case."""
    assert read(CHUNKED, f"{size}\r\n0123456789\r\n0\r\n\r\n".encode())[0] == b"0123456789"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r\n",
        b"5",
        b"5\nhello\n0\n\n",
        b"x\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5_0\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhell",
        b"5\r\nhello",
        b"5\r\nhelloo\r\n0\r\n\r\n",
        b"5\r\nhello\r\n",
        b"5\r\nhello\r\n0\r\n",
        b"5\r\nhello\r\n0\r\nTrailer: endless",
        b"5;" + b"x" * 70_000 + b"\r\nhello\r\n0\r\n\r\n",
        b"0\r\nno trailer\r\n\r\n",
        b"0" * 5000 + b"5\r\nhello\r\n0\r\n\r\n",
    ],
)
def test_broken_chunks_are_refused(sent: bytes) -> None:
    """Sizes that are none, ends that are missing, lines without end: 400."""
    assert refusal(CHUNKED, sent)[0] == 400


def test_there_are_as_many_trailers_as_headers() -> None:
    """And one more is refused."""
    trailers = b"Trailer: value\r\n" * 100
    assert read(CHUNKED, b"0\r\n" + trailers + b"\r\n") == (b"", b"")
    assert refusal(CHUNKED, b"0\r\n" + trailers + b"One: more\r\n\r\n")[0] == 431


@pytest.mark.parametrize("length", ["", "-1", "+1", "1.0", "0x10", "1_0", "\u0661", "a", "5, 5"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    """Content-Length is decimal digits and nothing else."""
    assert refusal({"Content-Length": length}, b"hello")[0] == 400


@pytest.mark.parametrize("encoding", ["gzip", "X-GZIP", "identity, gzip"])
def test_gzip_is_unpacked(encoding: str) -> None:
    """Both names of gzip are known, in either way to send a body."""
    packed = gzip.compress(b"hello" * 100)
    sized = {"Content-Encoding": encoding, "Content-Length": str(len(packed))}
    assert read(sized, packed + b"NEXT") == (b"hello" * 100, b"NEXT")
    chunked = {"Content-Encoding": encoding, **CHUNKED}
    assert read(chunked, in_chunks(packed, 3)) == (b"hello" * 100, b"")


@pytest.mark.parametrize(
    "packed", [b"", b"hello", PACKED[:-1], PACKED[:-8] + b"\x00" * 8, PACKED + b"more", PACKED * 2]
)
def test_broken_gzip_is_refused(packed: bytes) -> None:
    """No gzip, half of it, a wrong checksum, or more than one member: 400."""
    assert refusal(gzipped(packed), packed)[0] == 400


@pytest.mark.parametrize("encoding", ["deflate", "br", "gzip, gzip", "x"])
def test_other_encodings_are_refused(encoding: str) -> None:
    """The text says what may be sent instead."""
    status, text = refusal({"Content-Encoding": encoding, "Content-Length": "1"}, b"x")
    assert status == 415
    assert "gzip" in text


def test_a_body_of_the_limit_is_read() -> None:
    """The limit itself is allowed, however the body is sent."""
    body = b"x" * LIMIT
    assert read({"Content-Length": str(LIMIT)}, body)[0] == body
    assert read(CHUNKED, in_chunks(body, 7))[0] == body
    packed = gzip.compress(body)
    assert read(gzipped(packed), packed)[0] == body


def test_a_body_past_the_limit_is_refused() -> None:
    """One byte more is too many; the text names the setting."""
    body = b"x" * (LIMIT + 1)
    packed = gzip.compress(body)
    for headers, sent in (
        ({"Content-Length": str(LIMIT + 1)}, b""),
        ({"Content-Length": "9" * 50}, b""),
        (CHUNKED, in_chunks(body, 7)),
        (CHUNKED, b"ffffffffffff\r\n"),
        (CHUNKED, b"1;extension\r\nx\r\n" * (LIMIT // 8)),
        (CHUNKED, b"1          \r\nx\r\n" * (LIMIT // 8)),
        (gzipped(packed), packed),
    ):
        status, text = refusal(headers, sent)
        assert status == 413
        assert "max_request_size" in text


def test_a_body_that_finds_no_room_takes_none() -> None:
    """However often it comes: what the others give back is there for the next."""
    room, body = Room(LIMIT), b"x" * LIMIT

    def reader(size: int) -> BodyReader:
        headers = {"content-length": str(size)}
        return BodyReader(headers, io.BytesIO(body[:size]), LIMIT, room)

    first, small = reader(LIMIT - 1), reader(1)
    assert len(first.read()) == LIMIT - 1
    for _ in range(3):
        refused = reader(2)
        with pytest.raises(RequestRefused) as caught:
            refused.read()
        assert caught.value.status == 503
        refused.release()
    assert small.read() == b"x"
    small.release()
    first.release()
    assert reader(LIMIT).read() == body


def test_a_bomb_is_not_unpacked() -> None:
    """Decompression stops at the limit: a second broken half is never looked at."""
    packed = gzip.compress(b"\x00" * 50_000_000)
    assert refusal(gzipped(packed[:LIMIT]), packed[:LIMIT])[0] == 413
