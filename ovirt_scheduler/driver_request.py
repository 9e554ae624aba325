"""What a request process does for a driver: units first, then the driver's method.

::

    hosts ──► filters, one after another ──► cost functions, side by side ──► the method
              on the hosts that are left      their weighted sum: self.costs

All of them share the entities, which are read once.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Callable, Dict, List, Tuple, cast

from ovirt_scheduler import (
    aggregate,
    driver_call,
    driver_frames,
    entities,
    frames,
    properties,
    unit_calls,
)
from ovirt_scheduler import given as reading
from ovirt_scheduler.driver_call import DriverGiven
from ovirt_scheduler.drivers import Changes, DriverAnswer, DriverJob, Migrations, Returns
from ovirt_scheduler.errors import BadParameters, RefusedProperty, RequestError, SlowProperty
from ovirt_scheduler.given import Given
from ovirt_scheduler.model import CallResult, Document, Job, Kind, Outcome, UnitCall
from ovirt_scheduler.supervisor import Supervisor


def work(job: DriverJob, supervisor: Supervisor, send: Callable[[bytes], None]) -> None:
    """Do what the job asks, and tell of it as it goes.

    Args:
        send: takes each message for the daemon.
    """
    problems: List[str] = []
    try:
        if job.strict:
            _check_properties(job)
        given = _read(job, problems)
    except RequestError as error:
        send(frames.pack("refused", code=error.fault_code, message=str(error)))
        return
    vm_id = given.vm and given.vm.id
    send(frames.pack("opened", hosts=list(given.hosts), vm=vm_id, errors=problems))
    if job.changes is not None:
        _tell_changes(job, job.changes, given, supervisor, send)
        return
    given = _after_units(job, given, supervisor, send)
    if given.hosts or not _selects(job):
        result, answer = _called(job, given, supervisor)
        send(driver_frames.pack_driver(result, answer))


def _tell_changes(
    job: DriverJob,
    changes: Changes,
    given: DriverGiven,
    supervisor: Supervisor,
    send: Callable[[bytes], None],
) -> None:
    """Call a hook for each of the changes that there is time for, on entities read once."""
    for number, change in enumerate(changes.all):
        if number and time.monotonic() >= changes.until:
            break
        one = job.of(change)
        vm, host = one.subjects.vm, one.subjects.host
        about = replace(
            given,
            vm=given.vms[vm] if isinstance(vm, str) else None,
            host=given.hosts[host] if isinstance(host, str) else None,
        )
        send(driver_frames.pack_driver(*_called(one, about, supervisor)))


def _selects(job: DriverJob) -> bool:
    """Whether the method is one that can find nothing without hosts."""
    defined = job.driver.defines(job.method)
    return defined is not None and defined.interface == "HostSelector" and bool(defined.parameters)


def _check_properties(job: DriverJob) -> None:
    """
    Raises:
        RefusedProperty: a value that the driver's properties refuse, or those of a unit.
    """
    for unit_call in (*job.filters, *job.cost_functions):
        unit_calls.check_properties(unit_call, job.deadline)
    _check_own_properties(job)


def _check_own_properties(job: DriverJob) -> None:
    driver = job.driver
    seconds = min(driver.limits.timeout, job.deadline - time.monotonic())
    owner = f"{driver.words} {driver.name}"
    properties.check(owner, driver.properties, job.properties, seconds)


def _read(job: DriverJob, problems: List[str]) -> DriverGiven:
    """
    Raises:
        UnreadableDocument: of the caller's documents.
        BadParameters: the host whose status has changed is not among the hosts.
    """
    subjects, known = job.subjects, job.known
    with reading.reading(job.documents):
        hosts = reading.read_hosts(subjects.hosts, known, problems)
        vms = reading.read_vms(subjects.vms, known, problems)
        vm = None
        if isinstance(subjects.vm, str) and subjects.vm in vms:
            vm = vms[subjects.vm]
        elif subjects.vm is not None:
            vm = reading.read_vm(subjects.vm, known, problems)
        host = None
        if isinstance(subjects.host, Document):
            host = entities.read_host(subjects.host)
        elif subjects.host is not None:
            host = hosts.get(subjects.host)
            if host is None:
                raise BadParameters(
                    f"host: {subjects.host!r:.80} is not among the hosts; give it with them, or "
                    "its document here"
                )
    return DriverGiven(hosts, vms, vm, host, costs={})


def _after_units(
    job: DriverJob, given: DriverGiven, supervisor: Supervisor, send: Callable[[bytes], None]
) -> DriverGiven:
    """Run the filters and the cost functions; the hosts that are left, and their costs."""
    ids = tuple(given.hosts)
    results = _units(job, Kind.FILTER, job.filters, given, supervisor)
    for position, result in enumerate(results):
        send(frames.pack_result(result, position))
    ids, _ = aggregate.filtered(ids, results, [each.unit.on_failure for each in job.filters])
    left = replace(given, hosts={host: given.hosts[host] for host in ids})
    results = _units(job, Kind.COST_FUNCTION, job.cost_functions, left, supervisor)
    for position, result in enumerate(results, len(job.filters)):
        send(frames.pack_result(result, position))
    costs, _, _ = aggregate.summed(job.wanted_costs, results, len(job.wanted_costs))
    return replace(left, costs=costs)


def _units(
    job: DriverJob,
    kind: Kind,
    calls: Tuple[UnitCall, ...],
    given: DriverGiven,
    supervisor: Supervisor,
) -> List[CallResult]:
    """The results of those that ran, in their order."""
    units = Job(
        kind=kind,
        calls=calls,
        hosts=(),  # those of ``of`` count
        vm=None,
        deadline=job.deadline,
        strict=job.strict,
        parallel=job.parallel,
        engine=job.engine,
    )
    of = Given(tuple(given.hosts), given.vm and given.vm.id, given.hosts, given.vm)
    results = dict(unit_calls.run(supervisor, units, of)) if calls else {}
    return [results[position] for position in sorted(results)]


def _called(
    job: DriverJob, given: DriverGiven, supervisor: Supervisor
) -> Tuple[CallResult, DriverAnswer]:
    driver = job.driver
    begun = time.monotonic()
    try:
        if not job.strict:
            _check_own_properties(job)
    except RefusedProperty as error:
        outcome = Outcome.TIMED_OUT if isinstance(error, SlowProperty) else Outcome.REFUSED
        seconds = time.monotonic() - begun
        return CallResult(driver.name, outcome, message=str(error), seconds=seconds), None
    called = unit_calls.work(driver.limits, lambda: driver_call.run(job, given))
    ((_, ended),) = supervisor.run([called], job.deadline)
    result, answer = None, cast("DriverAnswer", None)
    if ended.payload is not None:
        try:
            _, fields = frames.unpack(ended.payload)
            result, answer = driver_frames.unpack_driver(fields, job.returns)
        except frames.FrameError as error:
            ended = replace(ended, problem=f"its answer cannot be read: {error}")
    result = unit_calls.completed(result, driver.name, driver.limits, ended)
    return _held(job, result, answer, given)


def _held(
    job: DriverJob, result: CallResult, answer: DriverAnswer, given: DriverGiven
) -> Tuple[CallResult, DriverAnswer]:
    """A good answer without the hosts and VMs that were not given (contract 3.6)."""
    defined = job.driver.defines(job.method)
    if not result.ok or defined is None or "hosts" not in defined.parameters:
        return result, answer
    strangers: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()
    if job.returns is Returns.SELECTION:
        selected = cast("Tuple[str, ...]", answer)
        answer = tuple(host for host in selected if host in given.hosts)
        strangers = tuple(host for host in selected if host not in given.hosts)
    elif job.returns is Returns.MIGRATIONS:
        answer, notes, strangers = _held_migrations(cast("Migrations", answer), given)
    notes += unit_calls.note_of_strangers("hosts", strangers)
    return replace(result, notes=(*result.notes, *notes)), answer


def _held_migrations(
    migrations: Migrations, given: DriverGiven
) -> Tuple[Migrations, Tuple[str, ...], Tuple[str, ...]]:
    """Those of the VMs and hosts given; a note on other VMs, and the other hosts."""
    kept: Dict[str, Tuple[str, ...]] = {}
    strangers: Dict[str, None] = {}
    vms = {*given.vms, *(() if given.vm is None else (given.vm.id,))}
    for vm, hosts in migrations.items():
        good = tuple(host for host in hosts if host in given.hosts)
        strangers.update((host, None) for host in hosts if host not in given.hosts)
        # No hosts means any host: dropping some must not make it so.
        if vm in vms and (good or not hosts):
            kept[vm] = good
    others = tuple(vm for vm in migrations if vm not in vms)
    return kept, unit_calls.note_of_strangers("VMs", others), tuple(strangers)
