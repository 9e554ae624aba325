"""The bare limits: what single steps cost that no daemon can do without.

As a program of its own, ``python -m bench.limits ROUNDS SIZE...``, it loads the SDK as the zygote
does, measures in that process, and writes JSON; sizes are numbers of hosts.
"""

from __future__ import annotations

import gc
import json
import os
import ssl
import statistics
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Callable

import lxml.etree  # noqa: F401  loaded as the zygote has it
import ovirtsdk4.services
import ovirtsdk4.types
import ovirtsdk4.writers  # noqa: F401
from ovirtsdk4.reader import Reader

from bench import documents, usage
from bench.servers import PROJECT

_LOAD_SDK = "import lxml.etree, ovirtsdk4.services, ovirtsdk4.types, ovirtsdk4.writers"


@dataclass(frozen=True)
class Limits:
    """Medians in seconds; memory in bytes."""

    start: float  # a Python process that loads the SDK and ends
    memory: int  # such a process, at rest
    fork: float  # fork, exit and wait of such a process
    pipe: float  # a byte over a pipe to a waiting process, and one back
    decoding: Mapping[int, float]  # the call with so many hosts as XML, by the standard library
    reading: Mapping[int, float]  # those hosts, by the SDK


def measure(rounds: int, sizes: Sequence[int]) -> Limits:
    """Measure each in a process of its own.

    Args:
        rounds: of what takes longest; the rest is done more often.
        sizes: numbers of hosts.
    """
    starts = [_seconds(_start) for _ in range(rounds)]
    told = subprocess.run(
        [sys.executable, "-m", "bench.limits", str(rounds), *map(str, sizes)],
        cwd=PROJECT, check=True, stdout=subprocess.PIPE,
    ).stdout  # fmt: skip
    found = json.loads(told)
    for by_size in ("decoding", "reading"):
        found[by_size] = {int(size): seconds for size, seconds in found[by_size].items()}
    return Limits(start=statistics.median(starts), **found)


def decode_and_read(call: bytes, hosts: bytes) -> bytes:
    """The least that a call with documents takes: the library's decoding, one reading.

    Returns:
        Nothing, in the form of an answer.
    """
    xmlrpc.client.loads(call)
    gc.disable()  # as the daemon does while it reads
    Reader.read(hosts)
    gc.enable()
    return b""


def handshakes(certificate: Path, rounds: int) -> tuple[float, float]:
    """Seconds of a TLS handshake in memory, both sides: full, and with a resumed session."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, certificate.with_name("key.pem"))
    trust = ssl.create_default_context(cafile=str(certificate))
    session = _shake_hands(server, trust, None)
    full = [_seconds(lambda: _shake_hands(server, trust, None)) for _ in range(rounds)]
    resumed = [_seconds(lambda: _shake_hands(server, trust, session)) for _ in range(rounds)]
    return statistics.median(full), statistics.median(resumed)


def _shake_hands(
    server: ssl.SSLContext, trust: ssl.SSLContext, session: ssl.SSLSession | None
) -> ssl.SSLSession | None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = trust.wrap_bio(to_client, to_server, server_hostname="localhost", session=session)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    sides = [ours, theirs]
    while sides:
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                pass
    theirs.write(b".")
    ours.read(1)  # the tickets come before it
    return ours.session


def _start() -> None:
    subprocess.run([sys.executable, "-c", _LOAD_SDK], check=True)


def _seconds(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def _median(step: Callable[[], object], rounds: int) -> float:
    return statistics.median(_seconds(step) for _ in range(rounds))


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _pipe(rounds: int) -> float:
    """A waiting process that answers each byte with one."""
    from_us, to_it = os.pipe()
    from_it, to_us = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(to_it)
        while os.read(from_us, 1):
            os.write(to_us, b".")
        os._exit(0)
    os.close(from_us)

    def round_trip() -> None:
        os.write(to_it, b".")
        os.read(from_it, 1)

    median = _median(round_trip, rounds)
    os.close(to_it)
    os.waitpid(pid, 0)
    return median


def main() -> None:
    rounds, *sizes = map(int, sys.argv[1:])
    gc.collect()
    gc.freeze()
    found: dict[str, object] = {
        "memory": usage.memory(os.getpid()),
        "fork": _median(_fork, 20 * rounds),
        "pipe": _pipe(100 * rounds),
    }
    decoding, reading = {}, {}
    for size in sizes:
        hosts = documents.hosts(size)
        call = documents.call("runFilters", [], hosts, documents.VM, {})
        data = hosts.encode()
        decoding[size] = _median(partial(xmlrpc.client.loads, call), rounds)
        gc.disable()  # as above
        reading[size] = _median(partial(Reader.read, data), rounds)
        gc.enable()
    json.dump({**found, "decoding": decoding, "reading": reading}, sys.stdout)


if __name__ == "__main__":
    main()
