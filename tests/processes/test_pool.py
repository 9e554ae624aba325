"""Which processes of plugins are kept, for how long, and what their ends cost: no call elsewhere."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ovirt_scheduler.errors import ExecutorUnavailable, Overloaded, UnreadableDocument
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.results import CallOutcome
from ovirt_scheduler.model.tasks import Setup
from ovirt_scheduler.model.units import Kind, PolicyUnit
from ovirt_scheduler.model.values import properties
from ovirt_scheduler.processes import pool
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.processes.protocol import messages
from ovirt_scheduler.processes.worker_handle import Worker
from tests.support.jobs import HOSTS, LIMITS, job_of, only, running
from tests.support.processes import SPARE_BELOW, offspring, open_files, title, zygote_of
from tests.support.waiting import LONG, wait_until

READER = "ovirt-scheduler: reader"

_MANY = 450  # whose ends are more than a socket holds


def pid_of(executor: Executor, unit: PolicyUnit) -> int:
    return int(only(executor.run(job_of([unit]))).stdout)


def below(executor: Executor) -> list[int]:
    return offspring(zygote_of(executor))


def test_a_plugins_process_serves_one_call_after_another(own_with, unit_named):
    """And no other plugin's."""
    own = own_with(patience=5.0)  # the machine may be busy
    unit, other = unit_named("tells_its_pid"), unit_named("prints")
    pids = {pid_of(own, unit) for _ in range(20)}
    assert len(pids) == 1
    only(own.run(job_of([other])))
    assert {pid_of(own, unit) for _ in range(3)} == pids


@pytest.mark.long
def test_values_of_properties_cost_no_process(own_with, unit_named):
    """The alarm under which they are held to their patterns is taken back."""
    own = own_with(patience=5.0)  # the machine may be busy
    unit = replace(
        unit_named("tells_its_pid"), properties=properties.parse("tells_its_pid", "a=x+", "")
    )
    jobs = [job_of([unit], properties={"a": "xx"}) for _ in range(5)]
    assert len({only(own.run(job)).stdout for job in jobs}) == 1
    assert own.state().replaced == {}


@pytest.mark.long
def test_units_of_one_plugin_share_its_process(own_with, unit_named, tmp_path):
    """Filter and cost function of a file are functions of the same code."""
    own = own_with(patience=5.0)  # the machine may be busy
    (tmp_path / "Both.py").write_text(
        "import os\n"
        "def do_filter(hosts, vm, properties):\n    print(os.getpid())\n    return hosts\n"
        "def do_score(hosts, vm, properties):\n    print(os.getpid())\n    return {}\n"
    )
    one, two = (
        unit_named("Both", kind, folder=tmp_path) for kind in (Kind.FILTER, Kind.COST_FUNCTION)
    )
    assert pid_of(own, one) == pid_of(own, two)


@pytest.mark.long
def test_an_edited_plugin_has_a_process_of_its_own(own, unit_of):
    """The old version's answers no call of the new one, and ends when it is idle."""
    code = (
        "import os\ndef do_filter(hosts, vm, properties):\n    print(os.getpid())\n    return {}\n"
    )
    before = pid_of(own, unit_of(code.format("hosts")))
    result = only(own.run(job_of([unit_of(code.format("hosts[:1]"))])))
    assert result.value == HOSTS[:1]
    assert int(result.stdout) != before


def test_other_limits_take_another_process(own, unit_named):
    """They are the process's, and cannot be raised again."""
    unit = unit_named("tells_its_pid")
    less = replace(unit, limits=replace(LIMITS, memory=LIMITS.memory // 2))
    assert pid_of(own, unit) != pid_of(own, less)


@pytest.mark.long
def test_what_is_not_wanted_any_more_ends(own_with, unit_named):
    """A plugin that was edited or taken away leaves no process."""
    own = own_with(idle=0.0, rest=0.05)
    unit = unit_named("tells_its_pid")
    pid = pid_of(own, unit)
    own.prewarm([])
    wait_until(lambda: below(own), suits=lambda seen: pid not in seen)
    assert own.state().replaced["outdated"] == 1


@pytest.mark.long
def test_a_process_that_is_always_in_use_is_replaced_when_it_is_old(own_with, unit_named):
    """By its birth, however short ago its last call was: libraries are updated under it."""
    own = own_with(patience=5.0, life=2.0)  # the machine may be busy
    unit = unit_named("tells_its_pid")
    pid = pid_of(own, unit)
    wait_until(lambda: pid_of(own, unit), suits=lambda seen: seen != pid)
    assert own.state().replaced.keys() == {"served"}


def test_after_a_rush_one_process_of_a_plugin_is_left(own_with, unit_named):
    """The memory of those that were needed for it is given back."""
    own = own_with(idle=0.2, rest=0.05)
    unit = unit_named("tells_its_pid")
    own.prewarm([(unit.plugin, unit.limits)])
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda _: own.run(job_of([unit])), range(200)))
    assert wait_until(lambda: len(below(own)), suits=lambda seen: seen == 1 + SPARE_BELOW)


def test_no_more_processes_are_kept_than_are_allowed(unit_of):
    """Those that were used longest ago end."""
    with running(parallel=2, max_waiting=8, most_processes=2) as few:
        text = (
            "import os\ndef do_filter(hosts, vm, properties):\n"
            "    print(os.getpid())\n    return hosts\n"
        )
        units = [unit_of(text, f"p{number}") for number in range(4)]
        pids = [pid_of(few, unit) for unit in units]
        wait_until(lambda: set(pids) & set(below(few)), suits=lambda seen: len(seen) == 2)
        assert set(pids[2:]) <= set(below(few))


def test_the_process_used_longest_ago_ends_first_where_there_are_too_many(own, unit_of):
    """Used, and not made: the older one is called last."""
    text = "def do_filter(hosts, vm, properties):\n    return hosts\n"
    units = {name: unit_of(text, name) for name in ("one", "two")}
    own.prewarm([(unit.plugin, unit.limits) for unit in units.values()])
    wait_until(lambda: own.state().of_plugins == 2)
    own.wait_until_idle(LONG)
    with own._pool._lock:
        ((older,), (younger,)) = sorted(
            (idle for key, idle in own._pool._idle.items() if key != pool.READERS),
            key=lambda idle: idle[0].born,
        )
    for worker in (younger, older):
        assert only(own.run(job_of([units[Path(worker.file).stem]]))).value == HOSTS
        own.wait_until_idle(LONG)
    with own._pool._lock:
        own._pool._most = 1
        own._pool._look()
        assert [worker for worker, _ in own._pool._over] == [younger]


@pytest.mark.long
def test_a_call_that_gets_no_process_is_counted_nowhere(own, unit_named):
    """Else there would be fewer processes kept for the calls after it."""
    unit = unit_named("tells_its_pid")
    own.close()
    with pytest.raises(Overloaded):
        own.run(job_of([unit]))
    assert own._pool.of_plugins == 0


def test_idle_processes_may_be_killed_and_no_request_notices(own, unit_named):
    """kill -9 of a plugin's process, and of those that nobody uses yet."""
    unit = unit_named("tells_its_pid")
    for _ in range(3):
        pid = pid_of(own, unit)
        for each in below(own):
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(each, signal.SIGKILL)
        assert pid_of(own, unit) != pid


@pytest.mark.long
def test_a_reader_that_is_killed_fails_its_request_alone(own, unit_named):
    """It says so, and the next document is read."""
    big = Document(
        b"<hosts>" + b"".join(b"<host id='%d'/>" % n for n in range(50_000)) + b"</hosts>"
    )
    unit = unit_named("keeps_all")
    reader = reader_of(own)
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(own.run, job_of([unit], hosts=big))
        wait_until(lambda: _grown(reader))
        os.kill(reader, signal.SIGKILL)
        told = str(call.exception(LONG))
    assert "the process that read the documents died by SIGKILL" in told
    good = Document(b"<hosts><host id='a'/></hosts>")
    assert only(own.run(job_of([unit], hosts=good))).value == ("a",)


def reader_of(executor: Executor) -> int:
    """The reader that is idle, once there is one."""
    return wait_until(lambda: next((pid for pid in below(executor) if title(pid) == READER), 0))


def test_a_reader_reads_one_request_after_another(own, unit_named):
    """It is there before the first one."""
    unit, reader = unit_named("keeps_all"), reader_of(own)
    for number in range(20):
        document = Document(b"<hosts><host id='%d'/></hosts>" % number)
        assert only(own.run(job_of([unit], hosts=document))).value == (str(number),)
        own.wait_until_idle(LONG)
    assert reader_of(own) == reader
    assert own.state().replaced == {}


@pytest.mark.parametrize(
    "last",
    [
        b"<hosts><host id='a'><memory>x</memory></host></hosts>",
        b"<hosts><host id='a'><memory>1<b/></memory></host></hosts>",
        b"<hosts><host id='a'/>" + b" " * (1 << 20) + b"</hosts>",
    ],
    ids=["refused", "by the SDK", "large"],
)
@pytest.mark.long
def test_a_document_that_is_not_plain_is_its_readers_last(own, unit_named, last):
    """What it did to the reader's memory is no other request's."""
    unit, reader = unit_named("keeps_all"), reader_of(own)
    with contextlib.suppress(UnreadableDocument):
        own.run(job_of([unit], hosts=Document(last)))
    wait_until(lambda: own.state().replaced, suits=lambda seen: seen.get("served") == 1)
    wait_until(lambda: below(own), suits=lambda seen: reader not in seen)
    assert own.wait_until_idle(LONG) == []  # it is nobody's fault
    assert reader_of(own) != reader


@pytest.mark.long
def test_readers_are_no_processes_of_plugins_to_be_kept(unit_named):
    """``kept_processes = 0`` ends none of them, and one is ready ahead."""
    with running(parallel=2, max_waiting=8, most_processes=0) as few:
        reader = reader_of(few)
        unit = unit_named("keeps_all")
        for number in range(5):
            document = Document(b"<hosts><host id='%d'/></hosts>" % number)
            assert only(few.run(job_of([unit], hosts=document))).value == (str(number),)
            few.wait_until_idle(LONG)
        assert reader_of(few) == reader
        with contextlib.suppress(UnreadableDocument):
            few.run(job_of([unit], hosts=Document(b"<hosts>")))
        wait_until(lambda: below(few), suits=lambda seen: reader not in seen)
        assert reader_of(few)


@pytest.mark.long
def test_an_answer_for_which_there_is_no_memory_loses_no_reader(own, unit_named, monkeypatch):
    """The next request is served, and no descriptor and no count is left behind."""
    unit, document = unit_named("keeps_all"), Document(b"<hosts><host id='a'/></hosts>")
    reader_of(own)

    def unpack(*_: object) -> object:
        raise MemoryError

    before = open_files()
    with monkeypatch.context() as patched:
        patched.setattr(messages, "unpack_read", unpack)
        with pytest.raises(MemoryError):
            own.run(job_of([unit], hosts=document))
    assert own._pool._busy == {}
    assert only(own.run(job_of([unit], hosts=document))).value == ("a",)
    wait_until(lambda: len(open_files()), suits=lambda seen: seen <= len(before) + 3)


@pytest.mark.long
def test_an_idle_reader_that_is_killed_costs_nobody_a_document(own, unit_named):
    """Another one reads it, and no call of a plugin ends."""
    unit, document = unit_named("keeps_all"), Document(b"<hosts><host id='a'/></hosts>")
    pid = pid_of(own, unit_named("tells_its_pid"))
    for _ in range(5):
        os.kill(reader_of(own), signal.SIGKILL)
        assert only(own.run(job_of([unit], hosts=document))).value == ("a",)
    assert pid in below(own)


@pytest.mark.long
def test_requests_at_once_have_a_reader_each(own_with, unit_named):
    """One is left after a while."""
    own = own_with(idle=0.2, rest=0.05)
    unit = unit_named("keeps_all")
    hosts = b"".join(b"<host id='%d'/>" % number for number in range(2000))
    jobs = [job_of([unit], hosts=Document(b"<hosts>%s</hosts>" % hosts)) for _ in range(16)]
    with ThreadPoolExecutor(8) as threads:
        for found in threads.map(own.run, jobs):
            assert len(only(found).value) == 2000
    wait_until(lambda: [*map(title, below(own))].count(READER), suits=lambda seen: seen == 1)


def _grown(pid: int) -> bool:
    """Whether a process has used some processor time."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) > 5


@pytest.mark.long
def test_idle_there_are_spare_processes_and_one_of_each_plugin(own, unit_named):
    """And a reader."""
    unit = unit_named("keeps_all")
    own.run(job_of([unit], hosts=Document(b"<hosts><host id='a'/></hosts>")))
    assert wait_until(lambda: len(below(own)), suits=lambda seen: seen == 1 + SPARE_BELOW)
    assert [*map(title, below(own))].count("ovirt-scheduler: plugin keeps_all") == 1


@pytest.fixture
def never_ready(unit_of):
    """A filter that answers, and keeps its process busy for an hour then."""
    return unit_of(
        "import time\n"
        "class Hangs:\n"
        "    def __del__(self):\n        time.sleep(3600)\n"
        "def do_filter(hosts, vm, properties):\n"
        "    global it\n    it = Hangs()\n    return hosts\n"
    )


@pytest.mark.long
def test_a_call_does_not_wait_until_a_process_is_given_up(own_with, never_ready):
    """It has another one before."""
    own = own_with(settle=3600.0)
    results = [only(own.run(job_of([never_ready]))) for _ in range(2)]
    assert [result.outcome for result in results] == [CallOutcome.OK] * 2


@pytest.mark.long
def test_a_process_that_is_never_ready_again_costs_no_later_call(never_ready):
    """However few calls there are at once: a call that waited for it has another in time."""
    with running(parallel=1, max_waiting=8) as one:
        results = [only(one.run(job_of([never_ready]))) for _ in range(4)]
        wait_until(lambda: one.state().replaced.get("not ready"))
    assert {result.outcome for result in results} == {CallOutcome.OK}


@pytest.mark.long
def test_a_task_that_cannot_be_told_costs_no_process(own, unit_named):
    """None is taken for a call that cannot begin."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    unit = unit_named("keeps_all")
    own.run(job_of([unit]))
    before = own._pool.of_plugins
    job = job_of([unit])
    job = job._replace(calls=tuple(each._replace(properties={"a": deep}) for each in job.calls))
    with pytest.raises(RecursionError):
        own.run(job)
    assert own._pool.of_plugins == before
    assert own.state().replaced == {}


@pytest.mark.long
def test_a_spare_process_that_ends_as_it_is_made_is_not_kept(own, unit_named):
    """What was told of its end came too early: else a request would find it, much later."""

    def ended(deadline: float) -> Worker:
        worker = own._forker.fork(deadline)
        worker.end()
        return worker

    kept = pool.Pool(ended, 4, 1)
    kept._make([], 2)
    assert kept._spare == []


@pytest.mark.long
def test_what_is_asked_for_while_no_process_can_be_had_is_not_forgotten(own_with, unit_named):
    """The keeping thread looks again, and does not rest before."""
    own = own_with(rest=3600.0)
    unit = unit_named("keeps_all")
    refused: list[bool] = []

    def fork(deadline: float) -> Worker:
        if not refused:
            refused.append(True)
            kept.prewarm([Setup(unit.plugin, unit.limits)])
            raise ExecutorUnavailable("not now")
        return own._forker.fork(deadline)

    kept = pool.Pool(fork, 4, 1)
    kept.start()
    try:
        assert wait_until(lambda: kept.of_plugins) == 1
    finally:
        kept.close()


@pytest.mark.long
def test_what_keeps_processes_ready_outlives_a_trouble_of_its_own(own, unit_named, caplog):
    """It tells of it once, and tries again."""
    unit = unit_named("keeps_all")
    troubles = [RuntimeError("odd")] * 3

    def fork(deadline: float) -> Worker:
        if troubles:
            raise troubles.pop()
        return own._forker.fork(deadline)

    kept = pool.Pool(fork, 4, 1)
    kept.start()
    try:
        kept.prewarm([Setup(unit.plugin, unit.limits)])
        assert wait_until(lambda: kept.of_plugins) == 1
    finally:
        kept.close()
    assert caplog.text.count("keeping processes ready: RuntimeError: odd") == 1


@pytest.mark.long
def test_many_processes_that_end_together_are_no_knot(unit_named, request):
    """As after a reload with a lower kept_processes: calls go on, and so does the zygote."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < _MANY * 4:
        pytest.skip("too few descriptors for as many processes")
    request.addfinalizer(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_MANY * 4, hard))
    with running(parallel=2, max_waiting=8, most_processes=_MANY) as many:
        zygote = many._forker._zygote
        zygote._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # holds few messages
        unit = unit_named("keeps_all")
        more = [replace(unit.limits, cpu=unit.limits.cpu + number) for number in range(_MANY)]
        many.prewarm([(unit.plugin, limits) for limits in more])
        wait_until(lambda: many._pool.of_plugins, suits=lambda seen: seen == _MANY)
        many.keep_at_most(2)
        wait_until(lambda: zygote._workers, suits=lambda seen: len(seen) <= 2 + SPARE_BELOW)
        assert only(many.run(job_of([unit]))).value == HOSTS
        assert zygote_of(many) == zygote.pid
        assert not zygote.was_killed
