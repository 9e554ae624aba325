"""What a call changes in its process: the next call of that plugin finds it as it was."""

from __future__ import annotations

import bisect
import json
import logging

import pytest

from ovirt_scheduler.model.tasks import ENDS
from ovirt_scheduler.processes.worker import loaded_modules
from tests.support.jobs import HOSTS
from tests.support.process_changes import PUT_BACK, REPLACED, changing
from tests.support.settled_calls import ordinary, seen

pytestmark = pytest.mark.long


@pytest.mark.parametrize("change", PUT_BACK, ids=lambda change: change.what)
def test_what_a_plugin_may_well_change_is_put_back(calls_of, change):
    """In the same process, the next call finds it as it was."""
    calls = calls_of(changing(change))
    found = [seen(calls.call()) for _ in range(3)]
    assert found[0] == found[1] == found[2]
    assert calls.replaced == {}


@pytest.mark.parametrize("change", REPLACED, ids=lambda change: change.what)
def test_a_process_that_differs_otherwise_is_replaced(calls_of, caplog, change):
    """The next call has another one, in which it is as it was; why is counted and logged."""
    caplog.set_level(logging.DEBUG, "ovirt_scheduler.processes.pool")
    calls = calls_of(changing(change))
    (pid, found), (next_pid, next_found) = seen(calls.call()), seen(calls.call())
    assert calls.replaced == {change.ends: 2}
    assert next_pid != pid
    if "0x" not in found:
        assert next_found == found
    assert f"Changes.py is ended: {ENDS[change.ends]}" in caplog.text


@pytest.mark.parametrize("change", [*PUT_BACK, *REPLACED], ids=lambda change: change.what)
def test_with_one_call_for_each_process_nothing_is_seen_either(calls_of, change):
    """Each call has a process of its own, made ahead."""
    calls = calls_of(changing(change), calls_per_process=1)
    (pid, found), (next_pid, next_found) = seen(calls.call()), seen(calls.call())
    assert sum(calls.replaced.values()) == 2
    assert next_pid != pid
    if "0x" not in found:
        assert next_found == found


@pytest.mark.parametrize(
    "source",
    [
        ordinary("", "import sys\nsys.path.insert(0, '/opt/lib')"),
        ordinary("", "import sys\nsys.path.remove(sys.path[-1])"),
        ordinary("", "os.environ['TRACE'] = '1'\nos.environ['TZ'] = 'UTC'\ndel os.environ['PATH']"),
        ordinary("", "import locale\nlocale.setlocale(locale.LC_ALL, 'C.UTF-8')"),
        ordinary("", "import warnings\nwarnings.simplefilter('ignore')\nos.umask(0o77)"),
        ordinary("", "import decimal, random\nrandom.seed(1)\ndecimal.getcontext().prec = 9"),
        ordinary("", "import socket, sys\nsocket.setdefaulttimeout(5)\nsys.setrecursionlimit(5000)"),
        ordinary("", "import logging\nlogging.basicConfig(level=10)\nlogging.captureWarnings(True)"),
        ordinary(
            "logging.getLogger('Changes').warning('hello')",
            "import logging\nlogging.getLogger('Changes').addHandler(logging.FileHandler('log'))",
        ),
        ordinary("import colorsys, xml.dom.minidom, sqlite3"),
        ordinary("import concurrent.futures\nconcurrent.futures.ThreadPoolExecutor"),
        ordinary("import asyncio\nasyncio.run(asyncio.sleep(0))"),
        ordinary(
            "asyncio.run(main())",
            "import asyncio, time\n"
            "async def main():\n"
            "    await asyncio.gather(*[asyncio.to_thread(time.sleep, 0) for _ in range(4)])\n",
        ),
        ordinary("with ThreadPoolExecutor(4) as pool:\n    assert sum(pool.map(len, ['a'] * 9)) == 9",
                 "from concurrent.futures import ThreadPoolExecutor"),
        ordinary("import subprocess\nsubprocess.run(['true'], check=True)\nos.system('true')"),
        ordinary(
            "import tempfile\n"
            "with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as file:\n"
            "    file.write(b'x')"
        ),
        ordinary("import multiprocessing, uuid, ssl, urllib.request\nuuid.uuid4()"),
        ordinary("import re, fnmatch, struct\nre.compile('tr[a]ce')\nfnmatch.fnmatch('a', 'b*')"),
        ordinary("import warnings\nwarnings.warn('careful')\nwarnings.warn('deep', stacklevel=99)"),
        ordinary("import time\ntime.tzset()\ntime.strftime('%c', time.localtime(-10**9))"),
        ordinary("kept = [b'x' * 4096 for _ in range(8000)]"),
        ordinary("class A: pass\na = A()\na.a = a", "import dataclasses, enum\n"
                 "@dataclasses.dataclass\nclass D:\n    a: int = 0\n"
                 "class E(enum.Enum):\n    A = 1"),
    ],
    ids=lambda source: source[10:60].strip().splitlines()[0],
)  # fmt: skip
def test_ordinary_plugins_keep_their_process(calls_of, caplog, source):
    """Twenty calls have one, whatever is set at the top level, imported late, or ends in time."""
    caplog.set_level(logging.DEBUG, "ovirt_scheduler.processes.pool")
    calls = calls_of(source)
    found = [calls.call() for _ in range(20)]
    assert [result.value for result in found] == [HOSTS] * 20, found[0]
    assert calls.replaced == {}, caplog.text
    assert len({result.stdout for result in found}) == 1


def test_numpy_and_its_threads_keep_their_process(calls_of, caplog):
    """Native threads of a library that was imported late are no difference."""
    pytest.importorskip("numpy")
    caplog.set_level(logging.DEBUG, "ovirt_scheduler.processes.pool")
    calls = calls_of(ordinary("import numpy\nnumpy.ones((300, 300)) @ numpy.ones((300, 300))"))
    assert len({calls.call().stdout for _ in range(20)}) == 1
    assert calls.replaced == {}


def test_a_thread_that_a_call_tells_to_end_may_take_a_moment(calls_of):
    """An executor that is not shut down ends its threads when it is freed."""
    calls = calls_of(
        ordinary("ThreadPoolExecutor(2).submit(len, '').result()",
                 "from concurrent.futures import ThreadPoolExecutor")
    )  # fmt: skip
    assert len({calls.call().stdout for _ in range(5)}) == 1
    assert calls.replaced == {}


def test_an_interpreter_that_says_no_version_of_a_dict_is_looked_at_all_the_same(monkeypatch):
    """The values of all modules are, then."""
    monkeypatch.setattr(loaded_modules, "_HAS_VERSIONS", False)
    modules = loaded_modules.LoadedModules()
    assert modules.difference() == ""
    monkeypatch.setattr(json, "dumps", None)
    assert modules.restore_needed() == "json.dumps"
    assert json.dumps is not None
    monkeypatch.setattr(bisect, "insort", None)
    assert modules.difference() == "bisect.insort"
