"""Where the time of one call goes, stage by stage.

::

    client sends ─► decode ─► units looked up ─► Executor.run ─► plugin's file run ─► called
    client has it ◄─ encode ◄─ answer put together ◄─ result taken in ◄───────────── done ◄─┘

Every process marks on the one monotonic clock when it was where: the client by itself, the
daemon by wrappers around three of its functions, the plugin by its own lines in a file. The
stages of a call add up to its whole time. ``python -m bench.stages MARKS CONFIG FOLDER`` is the
daemon with the wrappers; its marks are written when it ends.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

from bench import client, documents, plugins, report, servers
from ovirt_scheduler.command import cli
from ovirt_scheduler.processes import executor
from ovirt_scheduler.server import dispatch

NAMES = (
    "HTTP: the request comes in",
    "the call is decoded",
    "parameters checked, units looked up",
    "documents read, the task to the plugin's process",
    "the plugin's file is run, the hosts are made",
    "the plugins' functions, with what lies between them",
    "the result comes back",
    "the answer is put together",
    "the answer is encoded",
    "HTTP: the answer goes out",
)

# What is called: title, filters, hosts, as XML?
_CALLS = (
    ("1 filter, 10 ids", 1, 10, False),
    ("5 filters, 10 ids", 5, 10, False),
    ("1 filter, 1,000 ids", 1, 1000, False),
    ("1 filter, 10 hosts as XML", 1, 10, True),
    ("5 filters, 1,000 hosts as XML", 5, 1000, True),
)

Calls = dict[str, list[float]]


def measure(folder: Path, calls: int) -> Calls:
    """Call so often each way.

    Args:
        folder: for the plugins and the daemon's state; made here.
        calls: of each kind; of those with documents a tenth.

    Returns:
        For each kind of call the median seconds of each stage, in the order of NAMES.
    """
    folder.mkdir()
    plugins.write(folder / "plugins", plugins.MARKS)
    found = {}
    for title, units, hosts, as_xml in _CALLS:
        own = folder / f"{units} {hosts} {as_xml}"
        own.mkdir()
        times = calls // 10 if as_xml else calls
        found[title] = _stages(own, folder / "plugins", units, times, _hosts(hosts, as_xml=as_xml))
    return found


def table(calls: Calls) -> str:
    return report.stages(NAMES, list(calls), list(calls.values()))


def _hosts(count: int, *, as_xml: bool) -> object:
    return documents.hosts(count) if as_xml else documents.host_ids(count)


def _stages(folder: Path, code: Path, units: int, calls: int, hosts: object) -> list[float]:
    marks, of_plugins = folder / "marks.json", folder / "marks"
    of_plugins.touch()
    vm = documents.VM if isinstance(hosts, str) else documents.VM_ID
    properties = {"marks": str(of_plugins)}
    wanted = documents.call("runFilters", plugins.MARKS[:units], hosts, vm, properties)
    settings = folder / "scheduler.conf"
    settings.write_text(
        "listening_port = 0\nlistening_address = 127.0.0.1\nssl = false\n"
        f"log_file = {folder / 'log'}\nplugins_conf_path = {folder}\n",
        "utf-8",
    )
    program = ["-m", "bench.stages", str(marks), str(settings), str(code)]
    with servers.Server(program, {"STATE_DIRECTORY": str(folder)}) as server:
        connection = client.Connection(server.address)
        request, sent, received = client.request(wanted), [], []
        for _ in range(calls + 2):  # the first two warm up
            sent.append(time.monotonic())
            connection.ask(request)
            received.append(time.monotonic())
        connection.close()
    ours = json.loads(marks.read_text("utf-8"))
    theirs = [
        tuple(map(float, line.split())) for line in of_plugins.read_text("utf-8").split("\n")[:-1]
    ]
    each = [
        _differences(
            sent[number],
            {name: spans[number] for name, spans in ours.items()},
            theirs[number * units : (number + 1) * units],
            received[number],
        )
        for number in range(2, calls + 2)
    ]
    return [statistics.median(stage) for stage in zip(*each)]


def _differences(
    sent: float,
    daemon: dict[str, Sequence[float]],
    of_plugins: Sequence[Sequence[float]],
    received: float,
) -> list[float]:
    """The time of each stage of one call."""
    loaded, called, _ = of_plugins[0]
    times = [
        sent, *daemon["decode_call"], daemon["run"][0], loaded, called, of_plugins[-1][2],
        daemon["run"][1], *daemon["encode_answer"], received,
    ]  # fmt: skip
    return [after - before for before, after in zip(times, times[1:])]


def _marked(marks: dict[str, list[Sequence[float]]], owner: Any, name: str) -> None:
    """Have a function mark when it begins and ends."""
    function: Callable[..., Any] = getattr(owner, name)
    spans = marks.setdefault(name, [])

    def wrapper(*arguments: Any) -> Any:
        begun = time.monotonic()
        answer = function(*arguments)
        spans.append((begun, time.monotonic()))
        return answer

    setattr(owner, name, wrapper)


def main() -> int:
    path, settings, folder = sys.argv[1:]
    marks: dict[str, list[Sequence[float]]] = {}
    _marked(marks, dispatch, "decode_call")
    _marked(marks, executor.Executor, "run")
    _marked(marks, dispatch, "encode_answer")
    status = cli.main(["serve", "--config", settings, "--plugins", folder])
    Path(path).write_text(json.dumps(marks), "utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
