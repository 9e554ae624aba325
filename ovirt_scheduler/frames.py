"""The messages between daemon, zygote, request process and call.

::

    daemon  -- FORK: serial + a socket, KILL: serial -->  zygote           SOCK_SEQPACKET
    daemon  -- ASK: whether it lives ------------------>  zygote
    daemon  <-- READY, ENDED: serial, status -----------  zygote

    daemon  -- one frame: a Job, DriverJob, Candidate ->  request process  SOCK_STREAM
    daemon  <-- frames: OPENED, RESULT..., DONE --------  request process  (REFUSED, SEEN, ...)

    request process  -- one frame: a CallTask --------->  a call that waits ahead
    request process  <-- its answer, an empty frame? ---  call, by a pipe
                         (the second says that nothing of the call is left but its process)

A frame is a length of eight bytes, most significant first, and as many bytes. Downwards they
are pickled dataclasses: whoever can write there is the daemon. Upwards they are JSON, read
with suspicion: whatever a plugin could have written is never unpickled.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import struct
from dataclasses import asdict, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from ovirt_scheduler.cluster_seen import Seen, SeenHost, SeenVm, Survey
from ovirt_scheduler.drivers import DriverJob
from ovirt_scheduler.model import (
    Analysis,
    Answer,
    CallResult,
    CallTask,
    Candidate,
    FileFault,
    FoundDriver,
    FoundUnit,
    Job,
    Kind,
    Migration,
    Module,
    Outcome,
    PublishedMethod,
)

READY = b"ready"
ORDER = struct.Struct("!cI")  # FORK, KILL or ASK, serial of the request process
FORK, KILL, ASK = b"f", b"k", b"a"
OUT_OF_MEMORY = 71  # exit status of a request process: EX_OSERR of sysexits.h
ENDED = struct.Struct("!Ii")  # serial of the request process, its wait status

ANSWER_LIMIT = 64 << 20  # bytes of one frame from a call

_LENGTH = struct.Struct("!Q")

# What reading a message raises that has not the expected shape.
MISSHAPEN = (AttributeError, KeyError, ValueError, TypeError, OverflowError, RecursionError)

_JSON = json.JSONEncoder(separators=(",", ":"))

Task = Union[Job, DriverJob, Candidate, Survey, CallTask]
Head = Dict[str, Any]


def signal_name(number: int) -> str:
    """SIGSEGV, or the number of a real-time signal, which has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class FrameError(Exception):
    """Bytes that are no frame of ours."""


def frame(payload: bytes) -> Tuple[bytes, bytes]:
    """The two pieces to send, in their order; a large payload is not copied."""
    return _LENGTH.pack(len(payload)), payload


def write(descriptor: int, *payloads: bytes) -> None:
    """Send frames through a pipe or a socket, in one piece where they are small."""
    view = memoryview(b"".join(piece for payload in payloads for piece in frame(payload)))
    while view:
        view = view[os.write(descriptor, view) :]


class Unframer:
    """Cuts a stream of bytes, fed as it comes, into the payloads of its frames."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._wanted: Optional[int] = None

    def feed(self, data: bytes) -> List[bytes]:
        """The payloads that are complete now.

        Raises:
            FrameError: a frame is longer than the limit.
        """
        self._buffer += data
        payloads: List[bytes] = []
        while True:
            if self._wanted is None:
                if len(self._buffer) < _LENGTH.size:
                    return payloads
                (self._wanted,) = _LENGTH.unpack_from(self._buffer)
                del self._buffer[: _LENGTH.size]
                if self._wanted > self._limit:
                    raise FrameError(f"a frame of {self._wanted} bytes; at most {self._limit}")
            if len(self._buffer) < self._wanted:
                return payloads
            payloads.append(bytes(self._buffer[: self._wanted]))
            del self._buffer[: self._wanted]
            self._wanted = None


def pack_task(task: Task) -> bytes:
    return pickle.dumps(task, pickle.HIGHEST_PROTOCOL)


def unpack_task(payload: bytes) -> Task:
    task = pickle.loads(payload)  # noqa: S301  downwards only: the daemon wrote it
    if not isinstance(task, (Job, DriverJob, Candidate, Survey, CallTask)):
        raise FrameError(f"a task of type {type(task).__name__}")
    return task


def pack(kind: str, **fields: object) -> bytes:
    """A message upwards."""
    return _JSON.encode({"type": kind, **fields}).encode("ascii")


def unpack(payload: bytes) -> Tuple[str, Head]:
    """The type and the fields of a message.

    Raises:
        FrameError: it is not JSON, or not a message.
    """
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not JSON: {error}") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise FrameError("not a message")
    return message.pop("type"), message


def pack_result(result: CallResult, position: int) -> bytes:
    """The result of the call at this position of its job."""
    return pack("result", position=position, **_fields(result))


def pack_printed(result: CallResult, stdout: int, stderr: int) -> bytes:
    """The result that was read from so many bytes of what the call printed."""
    return pack("result", position=0, read=[stdout, stderr], **_fields(result))


def _fields(result: CallResult) -> Head:
    fields = dict(vars(result))
    fields["outcome"] = result.outcome.value
    if isinstance(result.value, Migration):
        fields["value"] = [result.value.vm, result.value.hosts]
    return fields


def unpack_result(fields: Head, kind: Kind) -> Tuple[int, CallResult]:
    """The position and the result, as a call or a request process tells them.

    Raises:
        FrameError: it has not the shape of a result of this kind of unit.
    """
    try:
        position, result = int(fields["position"]), read_result(fields)
        return position, (
            replace(result, value=_VALUES[kind](fields["value"])) if result.ok else result
        )
    except MISSHAPEN as error:
        raise FrameError(f"not a result of a {kind.words}: {error!r:.200}") from None


def read_result(fields: Head) -> CallResult:
    """A result without its value, whose shape is that of the plugin.

    Raises:
        Any of ``MISSHAPEN``.
    """
    return CallResult(
        unit=text(fields["unit"]),
        outcome=Outcome(fields["outcome"]),
        message=text(fields["message"]),
        seconds=float(fields["seconds"]),
        notes=texts(fields["notes"]),
        stdout=text(fields["stdout"]),
        stderr=text(fields["stderr"]),
        traceback=text(fields["traceback"]),
    )


def pack_seen(seen: Seen) -> bytes:
    return pack(
        "seen",
        hosts={key: [host.name, host.status] for key, host in seen.hosts.items()},
        vms={key: [vm.name, vm.status, vm.host] for key, vm in seen.vms.items()},
    )


def unpack_seen(fields: Head) -> Seen:
    """What is seen of a cluster.

    Raises:
        FrameError: it has not the shape.
    """
    try:
        return Seen(
            {text(key): SeenHost(*map(text, host)) for key, host in fields["hosts"].items()},
            {
                text(key): SeenVm(text(name), text(status), _text_or_none(host))
                for key, (name, status, host) in fields["vms"].items()
            },
        )
    except MISSHAPEN as error:
        raise FrameError(f"not what is seen of a cluster: {error!r:.200}") from None


def pack_analysis(analysis: Analysis) -> bytes:
    fields = asdict(analysis)
    for unit in fields["units"]:
        unit["kind"] = unit["kind"].value
    for module in fields["modules"]:
        module["source"] = base64.b64encode(module["source"]).decode("ascii")
        module["code"] = base64.b64encode(module["code"]).decode("ascii")
    return pack("analysis", **fields)


def unpack_analysis(fields: Head) -> Analysis:
    """What an analysing call found.

    Raises:
        FrameError: it has not the shape of an analysis.
    """
    try:
        fault = fields["fault"]
        return Analysis(
            units=tuple(
                FoundUnit(
                    text(unit["name"]),
                    Kind(unit["kind"]),
                    text(unit["description"]),
                    int(unit["line"]),
                    _text_or_none(unit["class_name"]),
                    text(unit["properties"]),
                )
                for unit in fields["units"]
            ),
            drivers=tuple(map(_driver, fields["drivers"])),
            modules=tuple(
                Module(
                    text(module["name"]),
                    text(module["path"]),
                    base64.b64decode(module["source"], validate=True),
                    base64.b64decode(module["code"], validate=True),
                )
                for module in fields["modules"]
            ),
            wants_engine=bool(fields["wants_engine"]),
            wants_statistics=bool(fields["wants_statistics"]),
            fault=None if fault is None else _fault(fault),
            doubts=tuple(map(_fault, fields["doubts"])),
        )
    except MISSHAPEN as error:
        raise FrameError(f"not an analysis: {error!r:.200}") from None


def _fault(fields: Head) -> FileFault:
    line = fields["line"]
    return FileFault(
        text(fields["file"]), None if line is None else int(line), text(fields["message"])
    )


def _driver(fields: Head) -> FoundDriver:
    return FoundDriver(
        class_name=text(fields["class_name"]),
        line=int(fields["line"]),
        description=text(fields["description"]),
        name=text(fields["name"]),
        topic=_text_or_none(fields["topic"]),
        interfaces=texts(fields["interfaces"]),
        methods=tuple(
            PublishedMethod(
                text(method["name"]),
                text(method["help"]),
                text(method["signature"]),
                texts(method["required"]),
                texts(method["optional"]),
            )
            for method in fields["methods"]
        ),
        policies=texts(fields["policies"]),
        version=_text_or_none(fields["version"]),
        written_for=_text_or_none(fields["written_for"]),
        properties=text(fields["properties"]),
        default_values=text(fields["default_values"]),
    )


def _text_or_none(value: object) -> Optional[str]:
    return None if value is None else text(value)


def text(value: object) -> str:
    """The value, where it is a string that can be written; else any of ``MISSHAPEN``."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is not a string")
    value.encode("utf-8")  # JSON can write half of a surrogate pair, which nothing else can
    return value


def texts(value: object) -> Tuple[str, ...]:
    """The values, where they are strings in an array; else any of ``MISSHAPEN``."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.60} is not a list")
    return tuple(map(text, value))


def _costs(value: object) -> Mapping[str, int]:
    if not isinstance(value, dict) or not all(type(cost) is int for cost in value.values()):
        raise TypeError(f"{value!r:.60} does not map hosts to integers")
    return {text(host): cost for host, cost in value.items()}


def _migration(value: object) -> Optional[Migration]:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise TypeError(f"{value!r:.60} is not a VM and its hosts")
    return Migration(text(value[0]), texts(value[1]))


_VALUES: Mapping[Kind, Callable[[object], Answer]] = {
    Kind.FILTER: texts,
    Kind.COST_FUNCTION: _costs,
    Kind.BALANCE: _migration,
}
