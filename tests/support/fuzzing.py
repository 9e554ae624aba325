"""What the fuzz tests share: how many inputs are tried, what bounds each, how they are made.

Every test tries the same few inputs each time. ``HYPOTHESIS_PROFILE=short``, which is that of
``make test``, tries the first fifth of them; ``HYPOTHESIS_PROFILE=long`` tries other ones at every
run, 100 times as many (docs/testing.md).
"""

from __future__ import annotations

import contextlib
import os
import signal
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, NoReturn, Union
from xml.sax.saxutils import escape, quoteattr

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.support.paths import CORPUS, PROJECT

_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "suite")
_TIMES = {"short": 0.2, "suite": 1, "long": 100}[_PROFILE]

# Seconds of processor time for one input of a few kilobytes: guards against hanging, judges
# no speed, and is not moved by what else the machine does.
_AT_MOST = 20.0

_LONGEST_MESSAGE = 1000  # characters

# Of a run hypothesis keeps the constants of each module, which it takes a second to look up.
os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(PROJECT / "build" / "hypothesis")


def tries(count: int) -> settings:
    """How many inputs a test tries in the suite; fewer in a short run, more of them in a long one."""
    return settings(
        max_examples=max(1, int(count * _TIMES)),
        derandomize=_PROFILE != "long",
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


class Endless(BaseException):
    """An input took more processor time than any input of its size is worth."""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Raise ``Endless`` where the body of the ``with`` does not come to an end."""

    def expired(*_: object) -> NoReturn:
        raise Endless(f"no end after {_AT_MOST:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, expired)
    signal.setitimer(signal.ITIMER_VIRTUAL, _AT_MOST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def assert_told(message: str) -> None:
    """A message is for a human: something, on one line, that can be shown, and soon at its end."""
    assert message.strip()
    assert message.replace("\t", " ").isprintable(), ascii(message)
    assert len(message) <= _LONGEST_MESSAGE, len(message)


def peak_of(read: Callable[[], object]) -> int:
    """Bytes that Python's allocator held at most while ``read`` ran, above what it held before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        read()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def corpus(folder: str) -> list[Path]:
    return sorted((CORPUS / folder).iterdir())


def mostly(usual: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The usual three times of four (``one_of`` takes no notice of what is named twice)."""
    return st.integers(0, 3).flatmap(lambda side: usual if side else other)


# -- bytes, damaged -----------------------------------------------------------------------


def damaged(whole: st.SearchStrategy[bytes], tokens: list[bytes]) -> st.SearchStrategy[bytes]:
    """Good bytes, most as they are, the others cut, doubled or overwritten in up to four places."""

    @st.composite
    def spoiled(draw: st.DrawFn) -> bytes:
        data = draw(whole)
        for _ in range(draw(st.integers(1, 4))):
            start, length = draw(st.integers(0, len(data))), draw(st.sampled_from((0, 1, 4, 40)))
            end = min(len(data), start + length)
            how = draw(st.sampled_from(("insert", "cut", "double", "end", "begin")))
            if how == "insert":
                data = data[:start] + draw(st.sampled_from(tokens)) + data[end:]
            elif how == "cut":
                data = data[:start] + data[end:]
            elif how == "double":
                data = data[:end] + data[start:]
            elif how == "end":
                data = data[:start]
            else:
                data = data[start:]
        return data

    return mostly(whole, spoiled())


# -- XML ----------------------------------------------------------------------------------

Node = Union[str, tuple[str, dict[str, str], list["Node"]]]

XML_TOKENS = [
    *(b"<", b">", b"/>", b"</", b"&", b"&#0;", b"&#xD800;", b"&lol;", b"]]>", b"'", b'"', b"\0"),
    *(b"<!DOCTYPE x>", b"<!DOCTYPE x [<!ENTITY lol 'x'>]>", b"<!-- - -->", b"<?pi x?>", b"\xff"),
    *(b"<![CDATA[", b"xmlns:x='u' ", b"xmlns='u' ", b"<a>", b"</a>", b"\xef\xbb\xbf", b"\r", b" "),
    *(b"<?xml version='1.0' encoding='utf-16'?>", b"<x:y/>", b"\xc3", b"\xed\xa0\x80", b"\xe2\x80\xa8"),
]  # fmt: skip

ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "iso-8859-1", "utf-32"]
DECLARED = ["utf-8", "UTF-16", "ISO-8859-1", "klingon", "x-\n"]


def tree(
    names: st.SearchStrategy[str],
    attributes: st.SearchStrategy[dict[str, str]],
    texts: st.SearchStrategy[str],
) -> st.SearchStrategy[Node]:
    """Elements within elements, a few levels deep."""
    leaf = st.one_of(texts, st.tuples(names, attributes, st.lists(texts, max_size=1)))
    return st.recursive(
        leaf,
        lambda inside: st.tuples(names, attributes, st.lists(inside, max_size=5)),
        max_leaves=12,
    )


def written(node: Node) -> str:
    """The XML of a tree; texts may bring mark-up of their own where they begin with ``<``."""
    if isinstance(node, str):
        return node if node.startswith(("<", "&")) else escape(node)
    name, attributes, children = node
    opening = "".join([name, *(f" {key}={quoteattr(text)}" for key, text in attributes.items())])
    if not children:
        return f"<{opening}/>"
    return f"<{opening}>{''.join(map(written, children))}</{name}>"


@st.composite
def encoded(draw: st.DrawFn, text: st.SearchStrategy[str]) -> bytes:
    """The bytes of a document, mostly UTF-8, with a declaration that may lie."""
    document = draw(text)
    encoding = draw(st.sampled_from(["utf-8"] * 50 + ENCODINGS))
    declared = draw(st.sampled_from([""] * 30 + DECLARED))
    if declared:
        document = f'<?xml version="1.0" encoding="{declared}"?>{document}'
    return document.encode(encoding, "replace")
