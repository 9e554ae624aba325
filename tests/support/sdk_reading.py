"""What the SDK itself reads, and whether ours equals it attribute by attribute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ovirtsdk4 import List as SdkList
from ovirtsdk4 import Struct
from ovirtsdk4.reader import Reader
from ovirtsdk4.writer import Writer

from ovirt_scheduler.processes.documents import version3
from tests.support.paths import CORPUS, DOCUMENTS, SHARED


def documents() -> Iterator[Path]:
    """All documents of hosts or VMs that are at hand."""
    yield from sorted(DOCUMENTS.glob("*.xml"))
    yield from sorted(CORPUS.glob("documents/*.xml"))
    yield from sorted(SHARED.glob("v[34]/*.xml"))


def by_the_sdk(data: bytes) -> list[Any]:
    """The entities of a plain document, as the SDK alone reads them."""
    found = Reader.read(version3.to_version4(data))
    return list(found) if isinstance(found, list) else [found]


def differences(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """Where two values differ: types, texts, or any attribute of an entity."""
    if type(ours) is not type(theirs):
        yield f"{where}: {ours!r}, not {theirs!r}"
    elif isinstance(theirs, Struct):
        for name in vars(type(theirs)()):
            for shown in (name, name[1:]):  # the attribute, and the property
                mine, other = getattr(ours, shown), getattr(theirs, shown)
                yield from differences(mine, other, f"{where}.{shown}")
    elif isinstance(theirs, list):
        if isinstance(theirs, SdkList):
            yield from differences(ours.href, theirs.href, f"{where}.href")
        if len(ours) != len(theirs):
            yield f"{where}: {len(ours)} members, not {len(theirs)}"
        for number, (one, other) in enumerate(zip(ours, theirs)):
            yield from differences(one, other, f"{where}[{number}]")
    elif repr(ours) != repr(theirs) and not same_date(ours, theirs):
        yield f"{where}: {ours!r}, not {theirs!r}"


def same_date(ours: Any, theirs: Any) -> bool:
    """``repr`` of the SDK's time zones shows an address."""
    zone = getattr(theirs, "tzinfo", None)
    return (
        zone is not None
        and type(ours.tzinfo) is type(zone)
        and (ours, ours.tzname(), ours.utcoffset()) == (theirs, theirs.tzname(), theirs.utcoffset())
    )


def written(entity: Any) -> str:
    """An entity as the SDK's writers write it."""
    text: str = Writer.write(entity, indent=True)
    return text
