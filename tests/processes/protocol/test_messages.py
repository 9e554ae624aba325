"""What processes below the zygote tell: whole, bounded, and read with suspicion."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ovirt_scheduler.model.analysis import (
    Analysis,
    FileFault,
    FoundDriver,
    FoundUnit,
    PublishedMethod,
)
from ovirt_scheduler.model.plugins import Module
from ovirt_scheduler.model.results import CallOutcome, CallResult, Migration
from ovirt_scheduler.model.tasks import CallInputs, Function, Returns
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.model.values import typed_json
from ovirt_scheduler.processes.protocol import messages
from ovirt_scheduler.processes.protocol.frames import FrameError
from ovirt_scheduler.processes.protocol.messages import ReadDocument
from tests.support.command import script

pytestmark = pytest.mark.long

INPUTS = CallInputs(("h1", "h2"), vm="vm")
HALF_A_PAIR = "\ud800"


def function(returns: Returns) -> Function:
    return Function("u", "filter", "do_filter", returns, parameters=("hosts",))


@pytest.mark.parametrize(
    ("returns", "value"),
    [
        (Returns.HOSTS, ("h1",)),
        (Returns.COSTS, {"h1": -3, "h2": 10**18}),
        (Returns.MIGRATION, Migration("vm", ("h1",))),
        (Returns.MIGRATION, None),
        (Returns.TRUTH, False),
        (Returns.VALUE, {"struct": b"\xff"}),
    ],
)
@pytest.mark.parametrize("read", [None, (3, 4)])
def test_an_answer_arrives(returns, value, read):
    """With how much of the output it was read from."""
    payload = messages.pack_answer(returns, value, INPUTS.hosts, read)
    found = messages.unpack_answer(payload, function(returns), INPUTS)
    assert found == (CallResult("u", CallOutcome.OK, value), read)


def test_a_failure_arrives():
    """Its message is a line, whatever text is in it."""
    payload = messages.pack_failure(CallOutcome.RAISED, "a \N{SNOWMAN}\nb", "line\nline")
    found = messages.unpack_answer(payload, function(Returns.HOSTS), INPUTS)
    message = "a \N{SNOWMAN} b"
    failed = CallResult("u", CallOutcome.RAISED, message=message, traceback="line\nline")
    assert found == (failed, None)


def test_a_failure_carries_no_value():
    """What a failed call answered does not count."""
    payload = json.dumps(["raised", [[0], 0, []], "no", "", None]).encode()
    result, _ = messages.unpack_answer(payload, function(Returns.HOSTS), INPUTS)
    assert result.value is None


def test_of_a_long_traceback_the_end_is_kept():
    """Where the error is."""
    payload = json.dumps(["raised", None, "no", "x" * 100_000 + "end", None]).encode()
    result, _ = messages.unpack_answer(payload, function(Returns.HOSTS), INPUTS)
    assert len(result.traceback) == messages.TRACEBACK_LIMIT
    assert result.traceback.endswith("xend")


def test_no_characters_make_an_answer_too_long():
    """Beyond 16 bits, JSON writes each in twelve bytes; a reason never fails its call."""
    hosts = tuple(f"h{number}" for number in range(1000))
    inputs = CallInputs(hosts)
    reasons = dict.fromkeys(hosts, "\N{GRINNING FACE}" * 200)
    payload = messages.pack_answer(Returns.HOSTS, hosts, hosts, reasons=(reasons, ()))
    assert len(payload) <= messages.answer_limit(function(Returns.HOSTS), inputs)
    result, _ = messages.unpack_answer(payload, function(Returns.HOSTS), inputs)
    assert result.reasons == reasons
    trace = "\N{GRINNING FACE}" * messages.TRACEBACK_LIMIT
    payload = messages.pack_failure(CallOutcome.RAISED, trace[:500], trace)
    assert len(payload) <= messages.answer_limit(function(Returns.HOSTS), INPUTS)


GOOD = ["ok", [[0], 0, []], "", "", None]


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"{", b"[]", b"1", b"{}", b"\xff", b"[" * 100_000, b"1" * 10_000, b"null",
        *(
            json.dumps([*GOOD[:place], wrong, *GOOD[place + 1 :]]).encode()
            for place, several in enumerate((
                ("splendid", [], None),
                ("h", None, {"h": 1}),
                (None, 7, HALF_A_PAIR),
                (None, 7, HALF_A_PAIR),
                (7, [], [1], ["a", "b"], [float("inf"), 1], {}),
            ))
            for wrong in several
        ),
        json.dumps(GOOD[:-1]).encode(), json.dumps(GOOD).encode() + b" 1",
        json.dumps([*GOOD, 1]).encode(),
        *(  # what is said: a text for a host by its place, and notes
            json.dumps([*GOOD, said, notes]).encode()
            for said, notes in (
                ([[-1, "x"]], []), ([[9, "x"]], []), ([[True, "x"]], []), ([[0, 7]], []),
                ([0], []), (0, []), ([], [7]), ([], "x"),
            )
        ),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_refused(payload):
    """In one sentence that names the kind, however much came."""
    with pytest.raises(FrameError, match="not an answer of a filter: ") as refused:
        messages.unpack_answer(payload, function(Returns.HOSTS), INPUTS)
    assert len(str(refused.value)) < 300


BOUNDED = """
import resource, sys
from ovirt_scheduler.processes.protocol import messages
from ovirt_scheduler.processes.protocol.frames import FrameError
from ovirt_scheduler.model.tasks import CallInputs, Function, Returns

begin, piece, read = sys.argv[1:]
forged = begin + piece * ((60 << 20) // len(piece))
payload = f'["ok",[{forged}0],"","",null]'.encode()
function = Function("d", "scheduler", "f", Returns.VALUE)
inputs = CallInputs()
del forged
used = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
# The payload twice, for what is looked at in place of it, and a little.
extra = 2 * len(payload) + (60 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (used + extra, used + extra))
try:
    if read == "answer":
        assert len(payload) <= messages.answer_limit(function, inputs)
        messages.unpack_answer(payload, function, inputs)
    elif read == "analysis":
        messages.unpack_analysis(payload)
    else:
        messages.unpack_read(payload, 1 << 20)
except FrameError as error:
    print("refused:", error)
"""


@pytest.mark.parametrize("read", ["answer", "analysis", "read"])
@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        ("", "[],"),
        ("", "{},"),
        ("", "999,"),
        ("", '{"":0},'),
        ("", '"ab",'),
        ("", '"'),
        ('"', "\\\\"),
        ('"', '\\\\"'),
        ('"', '\\"'),
    ],
)
def test_sixty_megabytes_of_nothing_take_no_memory(begin, piece, read):
    """Each value would take up to sixty times the memory that it is written in."""
    done = script(BOUNDED, begin, piece, read)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused: ")
    assert len(done.stdout) < 400


def test_a_large_answer_of_few_values_is_read():
    """Its commas, brackets and quotes are text."""
    value = '[],{"\\' * 1_000_000
    payload = messages.pack_answer(Returns.VALUE, [value], ())
    result, _ = messages.unpack_answer(payload, function(Returns.VALUE), CallInputs())
    assert result.value == [value]


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_what_was_read_arrives(size):
    """Ids, problems and notes, and what was seen where that was asked for."""
    document = b"<vm id='00000000'/>" * size
    ids = tuple(f"{number:08}" for number in range(size))
    read = (
        ReadDocument(ids, ("",) * len(ids)),
        ReadDocument((None,)),
        ReadDocument(problem="not well-formed"),
        ReadDocument(note="n"),
    )
    hosts = {each: ["name of it", "up", "c"] for each in ids}
    payload = messages.pack_read(read, [hosts, {}, {}, {}])
    assert len(payload) <= messages.read_limit(len(document))
    documents, seen = messages.unpack_read(payload, len(document))
    assert documents == read
    assert seen == [hosts, {}, {}, {}]
    vms = {each: ["name of it", "up", None, None, ""] for each in ids}
    payload = messages.pack_read(read, [vms, {}, {}, {}])
    assert len(payload) <= messages.read_limit(len(document))
    _, seen = messages.unpack_read(payload, len(document))
    assert seen == [vms, {}, {}, {}]


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"{}", b'[[]]', b'[1, []]',
     b'[[[]], []]', b'[[[[7], "", ""]], []]',
     b'[[[[], null, ""]], []]', b'[[["", 1, ""]], []]',
     b'[[], [{}]]', b'[[], {}]', b'[[], null]'],
)  # fmt: skip
def test_what_no_reader_tells_is_refused(payload):
    """It has read documents from outside, and is not trusted either."""
    with pytest.raises(FrameError):
        messages.unpack_read(payload, 1000)


@pytest.mark.parametrize(
    "payload",
    [b"", b"{}", b"[[1]]", b"[[1], [-1]]", b'[[1], ["a"]]', b"[[1], [true]]", b"[[1], 1]"],
)
def test_what_no_reader_tells_of_pieces_is_refused(payload):
    """Of two documents: lengths alone, or null."""
    assert messages.unpack_split(messages.pack_split([[0, 7], None]), 2, 1000) == [[0, 7], None]
    with pytest.raises(FrameError):
        messages.unpack_split(payload, 2, 1000)


ANALYSIS = Analysis(
    (FoundUnit("u", Kind.BALANCE, "what it does", 7),),
    (Module("u", "/p/u.py", b"\xff source", b"\0code"),),
    drivers=(
        FoundDriver(
            class_name="D",
            line=3,
            description="what it is for",
            name="d",
            topic=None,
            interfaces=("LoadBalancer",),
            methods=(PublishedMethod("m", "help", "(a, b=1)", ("a",), ("b",)),),
            policies=("p", "q"),
            version="1",
            written_for="4.5",
            properties="k=v",
            default_values="v",
        ),
    ),
)


@pytest.mark.parametrize(
    "analysis",
    [
        Analysis(),
        ANALYSIS,
        replace(ANALYSIS, modules=(Module("u", "/p/u.py", b"x" * (1 << 20), b"y" * (2 << 20)),) * 9),
        Analysis(wants_engine=True, doubts=(FileFault("/p/u.py", 3, "not a name"),)),
        Analysis(fault=FileFault("/p/u.py", 3, "syntax error")),
        Analysis(fault=FileFault("/p/u.py", None, "is empty")),
    ],
)  # fmt: skip
def test_an_analysis_arrives_as_it_was_sent(analysis):
    """Source and code are bytes of any kind."""
    assert messages.unpack_analysis(typed_json.dump(analysis)) == analysis


def test_texts_of_an_analysis_are_cut_where_they_arrive():
    """A docstring may be computed; discover answers it."""
    fields = json.loads(typed_json.dump(ANALYSIS))
    (method,) = fields["drivers"][0]["methods"]
    for each, name in ((fields["units"][0], "description"), (fields["drivers"][0], "description"),
                       (method, "help")):  # fmt: skip
        each[name] = "x" * 1_000_000
    fields["doubts"] = [{"file": "/p/u.py", "line": 3, "message": "two\nlines " + "x" * 1_000_000}]
    found = messages.unpack_analysis(json.dumps(fields).encode())
    (driver,) = found.drivers
    cut = "x" * 16_383 + "\u2026"
    descriptions = [found.units[0].description, driver.description, driver.methods[0].help]
    assert descriptions == [cut, cut, cut]
    (doubt,) = found.doubts
    assert doubt.message.startswith("two lines x")
    assert len(doubt.message) == 4096


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("units", {"kind": "weigher"}),
        ("units", {"line": float("inf")}),
        ("units", {"description": HALF_A_PAIR}),
        ("modules", {"code": "not base64"}),
        ("modules", {"source": 7}),
        ("modules", {"path": None}),
        ("drivers", {"topic": 7}),
        ("drivers", {"policies": "p"}),
        ("drivers", {"methods": [{}]}),
        ("drivers", {"methods": 7}),
    ],
)
def test_an_analysis_of_another_shape_is_refused(part, change):
    """The analysing process has run the plugin: it is not trusted either."""
    fields = json.loads(typed_json.dump(ANALYSIS))
    fields[part][0].update(change)
    with pytest.raises(FrameError, match="not an analysis"):
        messages.unpack_analysis(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "fields", [[], None, {"fault": {}, "units": []}, {"units": [{}]}, {"x": 1}]
)
def test_an_analysis_without_its_parts_is_refused(fields):
    """What there is, is whole, and nothing else is there."""
    with pytest.raises(FrameError, match="not an analysis"):
        messages.unpack_analysis(json.dumps(fields).encode())


def test_of_a_deeply_nested_message_a_refusal_is_made():
    """Whoever sent it."""
    with pytest.raises(FrameError):
        messages.unpack_analysis(b"[" * 1_000_000)
