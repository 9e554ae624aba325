"""A process started afresh for each plugin call, as the old proxy worked.

::

    call ──► front ──► python3 -c SCRIPT ──stdout──► literal_eval ──► answer
                       (a process for each unit, all at once; the arguments are in SCRIPT)

``python -m bench.fresh FOLDER`` serves the plugins of the folder.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from typing import Any

from bench import front

_BY_IDS = """\
import sys
sys.path.insert(0, {folder!r})
import {name}
answer = {name}.{name}().do_filter({hosts!r}, {vm!r}, {properties!r})
answer is None or print(answer)
"""
_BY_ENTITIES = """\
import sys
sys.path.insert(0, {folder!r})
import {name}
from ovirtsdk4.reader import Reader
hosts, vm = Reader.read({hosts!r}.encode()), Reader.read({vm!r}.encode())
"""
_FILTER = "print([host.id for host in {name}.do_filter(hosts, vm, {properties!r})])\n"
_SCORE = "print([(h.id, cost) for h, cost in {name}.do_score(hosts, vm, {properties!r})])\n"


def run_filters(
    folder: str, names: list[str], hosts: object, vm: str, properties: object
) -> list[str]:
    """The hosts that every filter accepted, given as a list of ids or as a document."""
    script = _BY_IDS if isinstance(hosts, list) else _BY_ENTITIES + _FILTER
    answers = _run(script, folder, names, hosts, vm, properties)
    return [host for host in answers[0] if all(host in answer for answer in map(set, answers))]


def run_cost_functions(
    folder: str, functions: list[tuple[str, int]], hosts: str, vm: str, properties: object
) -> dict[str, int]:
    names = [name for name, _ in functions]
    total: dict[str, int] = {}
    answers = _run(_BY_ENTITIES + _SCORE, folder, names, hosts, vm, properties)
    for (_, factor), answer in zip(functions, answers):
        for host, cost in answer:
            total[host] = total.get(host, 0) + factor * cost
    return total


def _run(
    script: str, folder: str, names: list[str], hosts: object, vm: str, properties: object
) -> list[Any]:
    """What each unit's process printed.

    Raises:
        OSError: the arguments are longer than a command line may be.
    """
    processes = []
    try:
        for name in names:
            text = script.format(
                folder=folder, name=name, hosts=hosts, vm=vm, properties=properties
            )
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", text], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
                )
            )
    finally:
        answers = [process.communicate()[0] for process in processes]
    return [ast.literal_eval(answer.decode()) for answer in answers]


if __name__ == "__main__":
    front.serve(
        {
            "runFilters": functools.partial(run_filters, sys.argv[1]),
            "runCostFunctions": functools.partial(run_cost_functions, sys.argv[1]),
        }
    )
