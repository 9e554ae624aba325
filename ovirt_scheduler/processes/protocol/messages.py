"""The messages of worker processes to the daemon: JSON; the daemon checks every value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Optional, TypeVar

from ovirt_scheduler.model.analysis import Analysis, FileFault, FoundDriver, FoundUnit
from ovirt_scheduler.model.results import CallOutcome, CallResult
from ovirt_scheduler.model.tasks import CallInputs, Function, Returns
from ovirt_scheduler.model.values import typed_json
from ovirt_scheduler.model.values.text import one_line, shortened
from ovirt_scheduler.processes.protocol import compact_json
from ovirt_scheduler.processes.protocol.frames import FrameError
from ovirt_scheduler.processes.protocol.packed_answers import (
    MISSHAPEN,
    PACKINGS,
    Misnamed,
    text,
    texts,
)

TRACEBACK_LIMIT = 64 << 10  # characters

ANALYSIS_LIMIT = 64 << 20  # bytes
_FAULT_LIMIT = 4096  # characters
_DESCRIPTION_LIMIT = 16 << 10  # characters
_ANALYSIS_VALUES = 50_000  # in one: the units of a file, and all that it imports
_MOST_UNITS = 1000  # of a file, and as many drivers, and methods of one of them
_LAST_LINE = 1 << 31  # of a file
_ENTITY_BYTES = 4  # of a document, at least, for each value in the message about it
_CHARACTER_BYTES = 12  # of JSON at most, as two halves of a surrogate pair
# Of an answer beside its value: a message, and a traceback.
_BESIDE_VALUE = (_CHARACTER_BYTES * TRACEBACK_LIMIT) + (64 << 10)
_LONGEST_REASON = 200  # characters for a host
_REASON_BYTES = _CHARACTER_BYTES * _LONGEST_REASON + 16
_MOST_NOTES = 3
_FEW_BYTES = 1 << 20  # a message of so many needs no count of its values
_MARKS = 5  # strings, brackets and commas of one value at most: "key":{"dateTime":"..."},
_STRING = re.compile(rb'"[^"]*"')

_Described = TypeVar("_Described", FoundUnit, FoundDriver)


_OUTCOMES = {outcome.value: outcome for outcome in CallOutcome}  # the class takes ten times as long

# Of a printed answer: the bytes of stdout and of stderr that it was read from.
ReadOutput = Optional[tuple[int, int]]
# The reasons of a call, by host, and notes on reasons that were dropped.
ReasonsAndNotes = tuple[Mapping[str, str], Sequence[str]]
NO_NOTES: tuple[str, ...] = ()
NO_REASONS: ReasonsAndNotes = ({}, ())


def answer_limit(function: Function, inputs: CallInputs) -> int:
    """The bytes that an answer can need."""
    most = PACKINGS[function.returns].most(inputs)[0]
    return _BESIDE_VALUE + most + _REASON_BYTES * len(inputs.hosts)


def pack_answer(
    returns: Returns,
    value: object,
    hosts: Sequence[str],
    read: ReadOutput = None,
    reasons: ReasonsAndNotes = NO_REASONS,
) -> bytes:
    """The message of a good answer."""
    fields: list[object] = ["ok", PACKINGS[returns].pack(value, hosts), "", "", read]
    return compact_json.encode([*fields, *_pack_reasons(hosts, reasons)])


def pack_failure(outcome: CallOutcome, message: str, trace: str = "") -> bytes:
    """The message of a call that failed."""
    return compact_json.encode([outcome.value, None, message, trace, None])


def pack_unread(
    message: str, hosts: Sequence[str], read: ReadOutput, reasons: ReasonsAndNotes
) -> bytes:
    """The message of a call that printed no answer, as far as its own process knows."""
    fields = [CallOutcome.BAD_ANSWER.value, None, message, "", read]
    return compact_json.encode([*fields, *_pack_reasons(hosts, reasons)])


def _pack_reasons(hosts: Sequence[str], reasons: ReasonsAndNotes) -> list[object]:
    if not any(reasons):
        return []
    by_host, notes = reasons
    place_of = {host: place for place, host in enumerate(hosts)}
    return [[[place_of[host], text] for host, text in by_host.items()], notes]


def unpack_answer(
    payload: bytes, function: Function, inputs: CallInputs
) -> tuple[CallResult, ReadOutput]:
    """Read the answer to a call, and check it against the call's inputs.

    Returns:
        The result, without time and output; and how much output it was read from, if from any.

    Raises:
        FrameError: it has not the shape.
    """
    packing = PACKINGS[function.returns]
    value, notes = None, NO_NOTES
    try:
        most = packing.most(inputs)[1] + 2 * len(inputs.hosts)
        word, packed, message, trace, read, *rest = _loaded(payload, most)
        outcome, message = _OUTCOMES[word], text(message) and one_line(message)
        if outcome is CallOutcome.OK:
            try:
                value, notes = packing.unpack(packed, inputs)
            except Misnamed as error:
                outcome, message = CallOutcome.BAD_ANSWER, one_line(f"{function.name} {error}")
        reasons, remarks = _unpack_reasons(rest, inputs.hosts) if rest else ({}, ())
        result = CallResult(
            function.unit,
            outcome,
            value,
            message,
            notes=tuple(map(one_line, notes)),
            remarks=remarks,
            traceback=text(trace)[-TRACEBACK_LIMIT:],
            reasons=reasons,
        )
        return result, None if read is None else (int(read[0]), int(read[1]))
    except MISSHAPEN as error:
        raise FrameError(f"not an answer of a {function.kind}: {error!r:.200}") from None


def _unpack_reasons(packed: Any, hosts: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    texts_by_place, notes = packed
    reasons: dict[str, str] = {}
    for place, why in texts_by_place:
        if type(place) is not int or place < 0:
            raise TypeError("no place of a host")
        reasons[hosts[place]] = one_line(text(why), _LONGEST_REASON)
    return reasons, tuple(one_line(note) for note in texts(notes)[:_MOST_NOTES])


def _loaded(payload: bytes, most: int) -> Any:
    """Read the JSON of a message.

    Its values are counted before they are made: a value may take sixty times the memory of its
    text.

    Args:
        most: values that it may have, beside a few.

    Raises:
        ValueError: it is no JSON, or has more values.
        RecursionError: it has too many levels.
    """
    if len(payload) > _FEW_BYTES:
        marks = _MARKS * most + _FEW_BYTES // 4
        bare = payload.replace(rb"\\", b"").replace(rb"\"", b"")
        strings = bare.count(b'"') // 2
        if strings <= marks:
            bare = _STRING.sub(b"", bare)
        if strings + sum(map(bare.count, (b",", b"[", b"{"))) > marks:
            raise ValueError(f"it holds more than {most} values")
    return compact_json.decode(payload)


class ReadDocument(NamedTuple):
    """The result of reading one document."""

    ids: tuple[Optional[str], ...] = ()
    names: tuple[str, ...] = ()  # in the same order; "" for an entity without one
    problem: str = ""  # why it cannot be read; empty if it was read
    note: str = ""  # which entities were dropped, and why; empty if none was


def pack_read(
    documents: Sequence[ReadDocument], states: Sequence[dict[str, list[object]]]
) -> bytes:
    """The message of a reader."""
    return compact_json.encode([documents, states])


def read_limit(size: int) -> int:
    """The bytes that a reader's message can need for so many bytes of documents."""
    return _FEW_BYTES + 6 * size


def unpack_read(payload: bytes, size: int) -> tuple[tuple[ReadDocument, ...], list[object]]:
    """Read the message of a reader of so many bytes of documents.

    Returns:
        What is to be said of each document, and what was seen in each.

    Raises:
        FrameError: it has not the shape.
    """
    try:
        documents, states = _loaded(payload, size // _ENTITY_BYTES)
        read = tuple(
            ReadDocument(
                tuple(_text_or_none(each) for each in ids), texts(names), text(problem), text(note)
            )
            for ids, names, problem, note in documents
        )
        if states.__class__ is not list or len(states) != len(read):
            raise ValueError("not of each document")
    except MISSHAPEN as error:
        raise FrameError(f"not what a reader tells: {error!r:.200}") from None
    return read, states


def pack_split(lengths: Sequence[Optional[Sequence[int]]]) -> bytes:
    """The message of a reader that has cut documents.

    Args:
        lengths: for each document the bytes of each of its pieces; None if it cannot be read.
    """
    return compact_json.encode(lengths)


def unpack_split(payload: bytes, count: int, size: int) -> list[Optional[list[int]]]:
    """Read the message of a reader that has cut so many documents of so many bytes.

    Returns:
        For each document the bytes of each of its pieces; None if it cannot be read.

    Raises:
        FrameError: it has not the shape.
    """
    try:
        lengths: list[Optional[list[int]]] = _loaded(payload, size // _ENTITY_BYTES)
        for pieces in lengths:
            sizes = () if pieces is None else pieces
            if not all(type(each) is int and each >= 0 for each in sizes):
                raise TypeError("no length")
        if len(lengths) != count:
            raise ValueError(f"{len(lengths)} documents")
    except MISSHAPEN as error:
        raise FrameError(f"not what a reader tells: {error!r:.200}") from None
    return lengths


def unpack_analysis(payload: bytes) -> Analysis:
    """Read the message of an analysing process, which ``typed_json.dump`` wrote.

    Raises:
        FrameError: it has not the shape of an analysis.
    """
    try:
        fields = _loaded(payload, _ANALYSIS_VALUES)
        json.dumps(fields, ensure_ascii=False).encode("utf-8")  # refuses half a surrogate pair
        analysis: Analysis = typed_json.checked(fields, Analysis)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not an analysis: {error!s:.200}") from None
    # The process ran the file, and may say anything.
    problem = _misshapen(analysis)
    if problem:
        raise FrameError(f"not an analysis: {problem}")
    return replace(
        analysis,
        units=tuple(map(_with_short_texts, analysis.units)),
        drivers=tuple(map(_driver_with_short_texts, analysis.drivers)),
        fault=analysis.fault and _on_one_line(analysis.fault),
        doubts=tuple(map(_on_one_line, analysis.doubts)),
    )


def _misshapen(analysis: Analysis) -> str:
    """A problem that no honest analysis of any file has; empty if there is none."""
    units, drivers = analysis.units, analysis.drivers
    methods = max((len(driver.methods) for driver in drivers), default=0)
    faults = (*analysis.doubts, *filter(None, [analysis.fault]))
    lines = [unit.line for unit in units] + [driver.line for driver in drivers]
    lines += [fault.line or 0 for fault in faults]
    problems = (
        (max(len(units), len(drivers), methods) > _MOST_UNITS,
         f"more than {_MOST_UNITS} units, drivers or methods"),
        (any(unit.class_name not in (None, unit.name) for unit in units),
         "a unit whose name is not its class's"),
        (not all(0 <= line < _LAST_LINE for line in lines), "a line that is none"),
        ((units or drivers) and not analysis.modules, "units without the code of a file"),
    )  # fmt: skip
    return next((problem for is_wrong, problem in problems if is_wrong), "")


def _on_one_line(fault: FileFault) -> FileFault:
    return replace(fault, message=one_line(fault.message, _FAULT_LIMIT))


def _with_short_texts(described: _Described) -> _Described:
    """A unit or driver with a description of bounded length, as ``discover`` answers it."""
    return replace(described, description=shortened(described.description, _DESCRIPTION_LIMIT))


def _driver_with_short_texts(driver: FoundDriver) -> FoundDriver:
    methods = tuple(
        replace(
            method,
            help=shortened(method.help, _DESCRIPTION_LIMIT),
            signature=one_line(method.signature, _DESCRIPTION_LIMIT),
        )
        for method in driver.methods
    )
    return _with_short_texts(replace(driver, methods=methods))


def _text_or_none(value: object) -> Optional[str]:
    return None if value is None else text(value)
