"""Who asks, in which form, and about which hosts and VMs."""

from __future__ import annotations

import enum
import os
import re
from dataclasses import dataclass, field
from typing import NamedTuple, Optional, Union

from ovirt_scheduler.model.answer_memory import Claim

LONGEST_ID = 255  # characters of the id of a host or a VM

# Elements of VMs that may hold passwords: the daemon writes them into no file.
NEVER_KEPT = ("initialization", "payloads")

# An id as the engine makes them; it reads no other.
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class AnswerForm(enum.Enum):
    """The shape of answers: of the design pages, or of what released engines read."""

    DESIGN = "design"
    ENGINE = "engine"


class Pages(enum.Enum):
    """What GET serves, and to whom: the setting ``pages``."""

    OFF = "off"
    HEALTH = "health"
    LOOPBACK = "loopback"
    CALLERS = "callers"


class EngineScores(enum.Enum):
    """What the engine form answers to ``runCostFunctions``: the setting ``engine_scores``."""

    SUMMED = "summed"
    PER_UNIT = "per_unit"


@dataclass(frozen=True)
class Document:
    """An XML document as it came; opened only by a reader.

    ``encoding`` is set if the encoding is known, whatever the document's own declaration says (an
    XML-RPC string has been decoded once already).
    """

    data: bytes
    encoding: Optional[str] = None
    claim: Optional[Claim] = field(default=None, compare=False, repr=False)  # of the engine's

    def __reduce__(self) -> tuple[type[Document], tuple[object, ...]]:
        """Another process counts no memory."""
        return Document, (self.data, self.encoding)


def is_document(text: str) -> bool:
    """Whether a text is an XML document, and not an id."""
    return text.lstrip("\ufeff \t\r\n").startswith("<")


IdsOrDocument = Union[tuple[str, ...], Document]  # ids, or a document
IdOrDocument = Union[str, Document]


class Entities(NamedTuple):
    """What a request is about: documents, or ids."""

    hosts: IdsOrDocument = ()
    vms: IdsOrDocument = ()
    vm: Optional[IdOrDocument] = None
    host: Optional[IdOrDocument] = None  # whose status has changed: an id, or a document


class RequestedUnit(NamedTuple):
    """A unit as the caller names it; the factor is 1 except for cost functions."""

    name: str
    factor: int = 1


def new_id() -> str:
    """64 random bits."""
    return os.urandom(8).hex()


@dataclass(frozen=True)
class Caller:
    """Who asks, and how they want the answer."""

    request_id: str
    form: AnswerForm
    peer: str  # address:port, for the log; before it the name in a client's certificate
    cluster: str = ""  # whose thread it is, where the daemon calls by itself
    address: str = ""  # the peer's, where it is a client

    @classmethod
    def of_cluster(cls, cluster: str) -> Caller:
        """The thread that looks after a cluster, with a new id for each of its requests."""
        return cls(f"cluster {cluster} {new_id()}", AnswerForm.ENGINE, "the daemon itself", cluster)

    @property
    def decision(self) -> str:
        """The id of the decision: that of the request, without the cluster's name."""
        return self.request_id.rpartition(" ")[2]
