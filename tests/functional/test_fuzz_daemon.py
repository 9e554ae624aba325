"""A daemon as hostile clients see it: every sample and many made calls, over real sockets.

After each it answers a good call rightly, and at the end it holds no more than an idle one.
"""

from __future__ import annotations

import re
import select
import socket
import time
import xmlrpc.client
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.daemon import Daemon
from tests.support.fuzzed_requests import CALLS, CHUNKED, FAULTS, TOKENS
from tests.support.fuzzing import assert_told, corpus, damaged, tries
from tests.support.paths import PLUGINS
from tests.support.processes import SPARE_BELOW, offspring

PATHS = ["/", "/RPC2", "/design", "/engine"]
HOSTS = ["host-1", "host-2"]
GOOD = xmlrpc.client.dumps((["keeps_first"], HOSTS, "vm-1", {}), "runFilters").encode()
SECONDS = 60.0  # bounds every wait; nothing takes as long

# What the samples come to: these are answered, these get the fault that is said, and the
# others are no calls: -32700, with line and column.
FIRST_HOST = {"base64_of_hosts", "cdata_for_hosts"}
BOTH_HOSTS = {
    *("attributes_many", "cdata_in_a_name", "comment_in_a_name", "good", "instruction_in_a_value"),
    *(
        "instruction_of_a_stylesheet",
        "latin1_declared",
        "mark_of_utf8",
        "member_with_an_empty_name",
    ),
    *("nil_for_properties", "nil_with_namespace", "nil_without_namespace"),
    *("utf16_with_mark", "utf16_without_mark", "version_two"),
}
NO_COSTS = {"i8_with_namespace"}
OTHER_FAULTS: dict[str, tuple[int, str]] = {
    "base64_of_a_bomb": (102, "hosts, line 1, column 13: a document type is not allowed"),
    "date_for_a_vm": (-32602, "vm: expected an XML document as a string, or an id"),
    "factor_beyond_32_bits": (-32602, "the factor of keeps_all: 2147483648 is beyond 32 bits"),
    "factors_without_pairs": (-32602, "cost_functions[0]: expected [name, factor]"),
    "hosts_as_a_struct": (-32602, "hosts: expected"),
    "hosts_as_plain_text": (102, "hosts: a string has to be an XML document"),
    "hosts_document_cut": (102, "hosts, line 1, column 21"),
    "hosts_document_with_a_doctype": (102, "a document type is not allowed"),
    "hosts_of_numbers": (-32602, "hosts[0]: expected a string, not an int"),
    "hosts_twice": (-32602, "hosts[1]: 'host-1' is hosts[0] already"),
    "hosts_with_an_empty_id": (-32602, "hosts[1]: an empty id"),
    "i8_with_another_prefix": (-32602, "properties: expected a struct of strings, not an int"),
    "method_of_a_multicall": (-32601, "there is no method 'system.multicall'"),
    "method_of_a_thousand_letters": (-32601, "there is no method 'dddd"),
    "method_private": (-32601, "there is no method '__class__.__init__'"),
    "method_turned_round": (-32601, "there is no method 'dis\\u202ecover'"),
    "method_with_a_bell": (-32601, "there is no method 'dis\\x85cover'"),
    "nil_for_hosts": (-32602, "hosts: expected"),
    "parameters_none": (-32602, "runFilters takes 4 parameters"),
    "parameters_too_few": (-32602, "runFilters takes 4 parameters"),
    "parameters_too_many": (-32602, "runFilters takes 4 parameters"),
    "properties_as_an_array": (-32602, "properties: expected a struct of strings, not an array"),
    "properties_of_arrays": (-32602, "properties['a']: expected a string, not an array"),
    "unit_many_times": (-32602, "the filter 'keeps_all' is named more than once; name it once"),
    "unit_of_a_path": (101, "there is no filter named '../keeps_all'"),
    "unit_unknown": (101, "there is no filter named 'no such unit\\u2028'"),
    "vm_blank": (-32602, "vm: an empty id"),
    "vm_document_of_a_host": (102, "VM, line 1, column 1: expected <vms> or <vm>, found <host>"),
}
NO_CALLS = {
    "deep_arrays": "64 within each other",
    "doctype_external": "a document type declaration is not allowed",
    "encoding_of_pythons": "send UTF-8",
    "entity_bomb": "a document type declaration is not allowed",
    "function_twice_in_a_struct": "the struct's member 'keeps_all' occurs twice",
    "member_twice": "the struct's member 'a' occurs twice",
    "member_without_a_value": "<member> ends early",
}

# Status of each HTTP request that is not 400; None: the connection is closed without an answer.
STATUS = {
    **dict.fromkeys(("good_by_length", "good_in_chunks", "good_packed_in_chunks"), 200),
    **dict.fromkeys(("gzip_of_gzip", "path_with_a_query"), 200),
    **dict.fromkeys(("path_of_another", "path_upwards", "path_with_a_bracket"), 404),
    **dict.fromkeys(("chunked_twice", "chunked_and_gzip"), 501),
    **dict.fromkeys(("gzip_named_twice", "brotli"), 415),
    **dict.fromkeys(("length_of_a_hundred_digits", "chunk_of_an_endless_size"), 413),
    "length_missing": 411,
    **dict.fromkeys(("headers_two_hundred", "trailers_many"), 431),
    "verb_unknown": 405,
    "version_unknown": 505,
    "tls_hello_to_a_plain_port": None,
}


# What an idle daemon holds at most with one place for calls: the process that forks, those that wait
# for a task, and one of each plugin, the shipped ones included; three descriptors to talk to each of them.
MOST_PROCESSES = 1 + SPARE_BELOW + len([*PLUGINS.glob("*.py")]) + 2
MOST_DESCRIPTORS = 13 + 3 * MOST_PROCESSES
MOST_MEMORY = 300 << 20  # bytes


def is_idle(daemon: Daemon) -> bool:
    descriptors = len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))
    return descriptors <= MOST_DESCRIPTORS and len(offspring(daemon.pid)) <= MOST_PROCESSES


def resident(daemon: Daemon) -> int:
    """Bytes of memory."""
    status = Path(f"/proc/{daemon.pid}/status").read_text("utf-8")
    found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert found
    return int(found[1]) << 10


def exchange(daemon: Daemon, data: bytes) -> bytes:
    """Send, say that this was all, and read to the end."""
    address = urlsplit(daemon.url)
    with socket.create_connection(("127.0.0.1", address.port or 0), SECONDS) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            received = b""
            while piece := connection.recv(1 << 16):
                received += piece
        except ConnectionError:  # it did not care for the rest
            return b""
        return received


def post(body: bytes, path: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def status_of(answer: bytes) -> Any:
    """The status of the last answer; None where there is none."""
    found = re.findall(rb"^HTTP/1\.1 (\d{3}) .*\r$", answer, re.MULTILINE)
    return int(found[-1]) if found else None


def called(daemon: Daemon, body: bytes, *paths: str) -> list[Any]:
    """The value, or the ``Fault``, that a call gets on each path; then a good one is answered."""
    sent = [*(post(body, path) for path in paths), post(GOOD, "/design")]
    received = exchange(daemon, b"".join(sent)).split(b"HTTP/1.1 200 OK\r\n")
    assert received[0] == b""
    assert len(received) == len(sent) + 1
    *values, good = (value_of(answer.partition(b"\r\n\r\n")[2]) for answer in received[1:])
    assert good == HOSTS[:1]
    return values


def value_of(document: bytes) -> Any:
    try:
        ((value,), _) = xmlrpc.client.loads(document)
    except xmlrpc.client.Fault as fault:
        assert fault.faultCode in FAULTS, fault
        assert_told(fault.faultString)
        return fault
    return value


@pytest.fixture(scope="module")
def daemon(start_daemon: Any) -> Daemon:
    running: Daemon = start_daemon(plugins=PLUGINS, settings="ssl = false\nmax_parallel_calls = 1")
    called(running, GOOD, *PATHS)
    return running


def expected(name: str) -> Any:
    """What a sample is answered with in the design form."""
    if name in NO_COSTS:
        return {}
    return HOSTS[:1] if name in FIRST_HOST else HOSTS


@pytest.mark.parametrize("sample", corpus("calls"), ids=lambda path: path.stem)
def test_a_sample_of_a_call(daemon: Daemon, sample: Path) -> None:
    """On every path it gets the answer or the fault that is told above."""
    name = sample.stem
    answered = name in FIRST_HOST | BOTH_HOSTS | NO_COSTS
    code, words = OTHER_FAULTS.get(name, (-32700, NO_CALLS.get(name, "")))
    for path, answer in zip(PATHS, called(daemon, sample.read_bytes(), *PATHS)):
        if isinstance(answer, xmlrpc.client.Fault):
            assert not answered
            assert answer.faultCode == code
            assert words in answer.faultString
        elif path == "/engine":
            # There it is told in the answer.
            assert answered or code == 101 or name == "unit_many_times"
        else:
            assert answer == expected(name)


@pytest.mark.parametrize("sample", corpus("requests"), ids=lambda path: path.stem)
def test_a_sample_of_an_http_request(daemon: Daemon, sample: Path) -> None:
    """It gets its status; a connection that may be out of step is closed."""
    answer = exchange(daemon, sample.read_bytes())
    assert status_of(answer) == STATUS.get(sample.stem, 400)
    called(daemon, GOOD, "/")


def test_made_calls(daemon: Daemon) -> None:
    """Calls of all sorts, on every path."""

    @tries(40)
    @given(CALLS, st.sampled_from(PATHS))
    def check(body: bytes, path: str) -> None:
        called(daemon, body, path)

    check()


HEADS = damaged(
    st.builds(
        "POST {} HTTP/1.{}\r\nHost: x\r\n{}: {}\r\n\r\n".format,
        st.sampled_from(PATHS),
        st.sampled_from("01"),
        st.sampled_from(["Content-Length", "Transfer-Encoding", "Content-Encoding", "Expect", "X"]),
        st.sampled_from(["0", "5", "-1", "chunked", "gzip", "100-continue", "\xb2"]),
    ).map(lambda head: head.encode("latin-1")),
    TOKENS,
)


def test_made_requests(daemon: Daemon) -> None:
    """Heads and bodies that do not fit each other get an HTTP answer, or the end."""

    @tries(40)
    @given(st.lists(st.tuples(HEADS, CHUNKED), max_size=2))
    def check(parts: list[tuple[bytes, bytes]]) -> None:
        answer = exchange(daemon, b"".join(head + body for head, body in parts))
        assert not answer or answer.startswith(b"HTTP/1.1 ")
        assert b"HTTP/1.1 500" not in answer

    check()
    called(daemon, GOOD, "/")


def test_the_daemon_holds_no_more_than_an_idle_one(daemon: Daemon) -> None:
    """Descriptors, processes, memory; and its log tells of no mistake of ours."""
    give_up = time.monotonic() + SECONDS
    while not is_idle(daemon) and time.monotonic() < give_up:
        select.select([], [], [], 0.02)
    assert is_idle(daemon)
    assert resident(daemon) < MOST_MEMORY
    assert "this is a bug" not in daemon.log
    failing = re.findall(r'Traceback \(most recent call last\):\n *File "([^"]+)"', daemon.log)
    assert {Path(file).parent for file in failing} <= {PLUGINS}
