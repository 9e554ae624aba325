"""The things that cross rooms: frozen, and named for what they are."""

from __future__ import annotations

import enum
import functools
import hashlib
import re
from dataclasses import dataclass, field
from typing import Any, Callable, FrozenSet, Mapping, Optional, Tuple, Union

LONGEST_NAME = 128  # characters of the name of a unit or a driver (contract 3.1)
MOST_UNITS = 256  # that one call may name (contract 4.2a)

# An id as the engine makes them (contract 3.6).
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Kind(enum.Enum):
    """What a policy unit does; the value is the word used in conf files, logs and faults."""

    FILTER = "filter"
    COST_FUNCTION = "cost_function"
    BALANCE = "balance"

    @property
    def function(self) -> str:
        """The name of the plugin's function (contract 5.2)."""
        return _FUNCTIONS[self]

    @property
    def words(self) -> str:
        """The kind in a sentence: ``cost function``."""
        return self.value.replace("_", " ")


_FUNCTIONS = {
    Kind.FILTER: "do_filter",
    Kind.COST_FUNCTION: "do_score",
    Kind.BALANCE: "do_balance",
}


class AnswerForm(enum.Enum):
    """Which of the two shapes a caller gets (contract 1.3)."""

    DESIGN = "design"
    ENGINE = "engine"


class OnFailure(enum.Enum):
    """What a failed filter does to the hosts (contract 4.2)."""

    IGNORE = "ignore"
    REJECT = "reject"


class Outcome(enum.Enum):
    OK = "ok"
    REFUSED = "refused"  # it did not run: a property's value is not one that it takes
    RAISED = "raised"
    TIMED_OUT = "timed out"
    KILLED = "killed"
    BAD_ANSWER = "bad answer"


@dataclass(frozen=True)
class Limits:
    """What one plugin call may use (contract 6)."""

    timeout: float  # seconds of wall clock
    memory: int  # bytes of RLIMIT_DATA above what the process has when the call begins
    cpu: int  # seconds of processor time
    open_files: int
    calls_per_process: int = 1000  # then its process is replaced; 1: a process for each call


@dataclass(frozen=True)
class PluginUser:
    """Whom the processes of plugins run as, where that is not the daemon's own user."""

    name: str
    uid: int
    gid: int
    # As they were when the daemon started.
    groups: Tuple[int, ...] = field(compare=False)
    home: str = field(compare=False)


@dataclass(frozen=True)
class Module:
    """One source file as the registry holds it: text and compiled, never a module object."""

    name: str
    path: str
    source: bytes
    code: bytes  # marshalled; opened only in a process of a plugin call


@dataclass(frozen=True)
class PluginCode:
    """A plugin with the helper modules it imports, as they were when it last loaded."""

    name: str
    folder: str
    modules: Tuple[Module, ...]  # the plugin itself first
    wants_engine: bool = False  # it names plugin.engine_connection
    wants_statistics: bool = False  # those of the hosts and VMs that it is given

    @functools.cached_property
    def version(self) -> str:
        """Tells this code from any other: a digest of all that its process runs."""
        digest = hashlib.sha256(f"{self.folder}\0{self.name}".encode())
        for module in self.modules:
            digest.update(f"\0{module.name}\0{module.path}\0".encode() + module.code)
        return digest.hexdigest()


@dataclass(frozen=True)
class Property:
    """One custom property of a unit; ``default`` is None where there is none."""

    name: str
    pattern: str  # a regular expression for the whole value, or {low-high}
    default: Optional[str] = None
    checked: bool = True  # False: the pattern is for Java alone, and any value is taken here


@dataclass(frozen=True)
class PropertySet:
    name: str
    properties: Tuple[Property, ...]
    text: Optional[str] = None  # as the engine gets it; None: made of the properties


@dataclass(frozen=True)
class PolicyUnit:
    """One filter, cost function or balance, ready to be called."""

    name: str
    kind: Kind
    description: str
    plugin: PluginCode
    checksum: str  # "sha256:" and hex digits, over the plugin file and its conf file
    limits: Limits
    properties: Optional[PropertySet] = None
    on_failure: OnFailure = OnFailure.IGNORE
    class_name: Optional[str] = None  # of a class unit (contract 5.3); None: a function unit


@dataclass(frozen=True)
class Source:
    """One source file as it was read from a folder of plugins."""

    name: str  # of the module
    path: str
    text: bytes


@dataclass(frozen=True)
class Candidate:
    """A file that may be a plugin, with all that it may import from its folder."""

    source: Source
    folder: str
    neighbours: Tuple[Source, ...]
    refused: Tuple[Tuple[str, str], ...] = ()  # modules there that are not to be run, and why


@dataclass(frozen=True)
class FoundUnit:
    """A policy unit that analysis found in a plugin's file."""

    name: str
    kind: Kind
    description: str
    line: int
    class_name: Optional[str] = None  # of a class unit (contract 5.3)
    properties: str = ""  # its own properties_validation, in the engine's syntax


@dataclass(frozen=True)
class PublishedMethod:
    """A method of a driver, with the names by which it takes its arguments."""

    name: str
    help: str
    signature: str  # as it is shown: (size, days=7)
    required: Tuple[str, ...] = ()
    optional: Tuple[str, ...] = ()


@dataclass(frozen=True)
class FoundDriver:
    """A driver that analysis found in a plugin's file, as its class says it."""

    class_name: str
    line: int
    description: str
    name: str
    topic: Optional[str]  # None: it publishes nothing
    interfaces: Tuple[str, ...] = ()  # of a scheduler: those that it defines, by their names
    methods: Tuple[PublishedMethod, ...] = ()
    policies: Tuple[str, ...] = ()
    version: Optional[str] = None
    written_for: Optional[str] = None
    properties: str = ""  # its properties_validation
    default_values: str = ""


@dataclass(frozen=True)
class FileFault:
    """Why a file cannot be loaded (contract 5.5)."""

    file: str
    line: Optional[int]
    message: str


@dataclass(frozen=True)
class Analysis:
    """What a process of its own found in one file: units, drivers and code, or why not.

    A helper module has none of them, and no fault.
    """

    units: Tuple[FoundUnit, ...] = ()
    modules: Tuple[Module, ...] = ()
    wants_engine: bool = False
    wants_statistics: bool = False
    fault: Optional[FileFault] = None
    drivers: Tuple[FoundDriver, ...] = ()
    doubts: Tuple[FileFault, ...] = ()  # what loads, and cannot have been meant


@dataclass(frozen=True)
class Document:
    """An XML document as it came; opened only by a reader.

    ``encoding`` is set where the bytes are known to be in it whatever the document's
    own declaration says (an XML-RPC string has been decoded once already).
    """

    data: bytes
    encoding: Optional[str] = None


def is_document(text: str) -> bool:
    """Whether a text is an XML document, and not an id (contract 1.4)."""
    return text.lstrip("\ufeff \t\r\n").startswith("<")


Hosts = Union[Tuple[str, ...], Document]  # ids, or a document (contract 1.4)
Vm = Union[str, Document]


@dataclass(frozen=True)
class WantedUnit:
    """A unit as the caller names it; the factor is 1 but for cost functions."""

    name: str
    factor: int = 1


@dataclass(frozen=True)
class Caller:
    """Who asks, and how they want the answer."""

    request_id: str
    form: AnswerForm
    peer: str  # address:port, for the log; before it the name in a client's certificate


@dataclass(frozen=True)
class Request:
    """One of the three run calls, decoded."""

    caller: Caller
    kind: Kind
    wanted: Tuple[WantedUnit, ...]
    hosts: Hosts
    vm: Optional[Vm]  # None for a balance
    properties: Mapping[str, str]


@dataclass(frozen=True)
class Migration:
    """A balance's answer: the VM to move and the hosts it may go to."""

    vm: str
    hosts: Tuple[str, ...]


# A filter's accepted hosts; a cost function's cost per host; a balance's migration or nothing.
Answer = Union[Tuple[str, ...], Mapping[str, int], Migration, None]


@dataclass(frozen=True)
class CallResult:
    """How one plugin call ended. A plugin's failure is a value, not an exception."""

    unit: str
    outcome: Outcome
    value: Any = None  # an Answer; of a driver, what its method returns
    message: str = ""  # one line, for an administrator; empty when all is well
    seconds: float = 0.0
    notes: Tuple[str, ...] = ()  # what was put right in a good answer (hosts not given, ...)
    stdout: str = ""
    stderr: str = ""
    traceback: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK


@dataclass(frozen=True)
class EngineAccess:
    """What a plugin's connection to the engine is made with: a token, never the password."""

    url: str  # of the REST API
    ca_file: Optional[str]  # None: the system's authorities
    token: str


@dataclass(frozen=True)
class NoEngine:
    """Why a plugin gets no connection to the engine."""

    reason: str


Engine = Union[EngineAccess, NoEngine]

NO_ENGINE = NoEngine("scheduler.conf has no [engine] section")
# Where nobody asked the engine for a token, as none seemed to be needed.
NOT_NAMED = NoEngine("neither the plugin's file nor its helpers name engine_connection; import it")


@dataclass(frozen=True)
class UnitCall:
    """One unit to call, with the properties as they were given."""

    unit: PolicyUnit
    properties: Mapping[str, str]


@dataclass(frozen=True)
class Decision:
    """The whole record of one answered request; ``wire`` picks from it what a form shows."""

    request: Request
    hosts: Tuple[str, ...]
    results: Tuple[CallResult, ...]
    answer: Answer
    errors: Tuple[str, ...] = ()
    unit_errors: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """A method's answer, with the fields that the log's line on the request has besides.

    ``results`` tell how each plugin call ended.
    """

    answer: object
    told: Mapping[str, object] = field(default_factory=dict)
    results: Tuple[CallResult, ...] = ()


@dataclass(frozen=True)
class Method:
    """A method that the server offers.

    ``signatures`` is what ``system.methodSignature`` tells: per signature the type of the
    result, then of each parameter, in XML-RPC's words. ``run`` gives the answer, or a ``Reply``.
    """

    name: str
    help: str
    signatures: Tuple[Tuple[str, ...], ...]
    run: Callable[[Caller, Tuple[object, ...]], object]
    forms: FrozenSet[AnswerForm] = frozenset(AnswerForm)  # in which it is offered like this
