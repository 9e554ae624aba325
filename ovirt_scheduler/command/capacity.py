"""``ovirt-scheduler maintenance`` and ``capacity``: questions before a host is taken down."""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

from ovirt_scheduler.clusters.inquiries import Inquiries
from ovirt_scheduler.clusters.offers import Offers
from ovirt_scheduler.clusters.persistence import FILE, DriveMemory
from ovirt_scheduler.command import arguments, control_client, tables
from ovirt_scheduler.command.arguments import progress_line
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.command.workbench import section_of
from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.errors import BadUsage, CallRefused, NoAnswer
from ovirt_scheduler.history import query
from ovirt_scheduler.model.cluster_state import status_words
from ovirt_scheduler.model.losses import Loss, reservation_words
from ovirt_scheduler.model.values import spelling
from ovirt_scheduler.model.values.text import count_of
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.settings.value_types import TYPES
from ovirt_scheduler.workbench import snapshot
from ovirt_scheduler.workbench.entity_document import EntityDocument
from ovirt_scheduler.workbench.host_loss import WAITS, Questions
from ovirt_scheduler.workbench.simulated_cluster import UP, SimulatedVm
from ovirt_scheduler.workbench.snapshot import Snapshot

_GIB = 1 << 30
_LEAST_MEMORY = 1 << 20  # bytes of a VM
_MOST_PROCESSORS = 4096
_MOST_NAMES = 4  # in a cell
_MOST_LINES = 20  # about VMs
_NONE_UP = "no host is up: no VM has a place"
_SOURCE = {
    "--cluster FILE": "a saved cluster, which snapshot writes, instead of the engine of [engine]",
    "--section CLUSTER": "one of [clusters] (default: the cluster's)",
}


def add(to: arguments.Add) -> None:
    """Add ``maintenance`` and ``capacity`` to the command line."""
    command = arguments.add_command(to, "maintenance", _maintenance, settings=("config", "plugins"))
    command.add_argument("host", metavar="HOST", nargs="?", help="its name")
    arguments.add_options(command, {
        "--all CLUSTER": "an order in which all hosts of the cluster can be emptied", **_SOURCE,
    })  # fmt: skip
    command = arguments.add_command(to, "capacity", _capacity, settings=("config", "plugins"))
    command.add_argument("all", metavar="CLUSTER", nargs="?", help="its name")
    arguments.add_options(command, {
        **_SOURCE,
        "--vm MEMORY,PROCESSORS": "how many more of such a VM fit: 8GiB,4",
        "--like VM": "how many more fit that are as this one",
    })  # fmt: skip
    command.set_defaults(host=None)


def _maintenance(options: argparse.Namespace) -> Shown:
    """Say what would happen if a host went to maintenance.

    Say where each VM of the host can go, where the scheduler, filters, cost functions and affinity
    rules of the cluster's section would place it, and what stands in the way: "blocks" (no host
    takes it), "breaks RULE" (the engine goes on, and breaks it), "waits for you" (the engine waits
    until you act). Then, what the loss of the fullest other host would do. With --all: an order in
    which all hosts can be emptied and come back, or which cannot. Nothing is changed. The exit
    status is 0 if it can be done, 1 if not or, with --all, if no host is up.

    examples:
      maintenance lynx
      maintenance lynx --cluster cluster.xml.gz
      maintenance --all Default -o json
    """
    if (options.host is None) == (options.all is None):
        raise BadUsage("name a host, or a cluster with --all")
    with _questions(options) as (questions, about):
        return _order(questions, about) if options.all else _empty(questions, about, options.host)


def _empty(questions: Questions, about: _About, name: str) -> Shown:
    """The answer on one host."""
    hosts = {host.name: host for host in questions.cluster.hosts.values()}
    host = hosts.get(name)
    if host is None:
        raise BadUsage(f"there is no host {name} in {about.cluster}{spelling.hint(name, hosts)}")
    if host.status != UP and not host.vms:
        line = f"{name} {status_words(host.status)}, and runs no VM: nothing is left to do"
        return about.shown("", [line], True, host=name, vms=[])
    leaving, loss = questions.empty(host)
    pace = about.seconds_a_gib
    rows = [
        (
            vm.vm, f"{vm.memory / _GIB:g} GiB" if vm.memory else "not known", _names(vm.hosts),
            vm.target, _duration(pace and pace * vm.memory / _GIB), vm.obstacle, vm.why,
        )
        for vm in leaving
    ]  # fmt: skip
    staying, number = sum(not vm.target for vm in leaving), count_of(len(leaving), "VM")
    whole = _duration(pace and sum(pace * vm.memory / _GIB for vm in leaving))
    lines = [f"{vm.vm} {vm.obstacle}: {vm.remedy}" for vm in leaving if vm.obstacle]
    if staying:
        lines.append(f"{name} cannot be emptied: {staying} of {number} would stay")
    else:
        takes = f", {whole} one after another" if whole else ""
        lines.append(f"{name} can be emptied: {number}{takes}")
    if loss is not None:
        lines += _loss_lines(loss, f"if {loss.host}, the fullest host, failed after that: ")
    else:
        lines.append("no other host is up")
    headings = ("VM", "MEMORY", "CAN GO TO", "GOES TO", "TAKES", "OBSTACLE", "WHY")
    return about.shown(
        tables.table(headings, rows), lines, not staying, host=name, seconds_a_gib=pace,
        vms=[vm._asdict() for vm in leaving], afterwards=loss and _loss_fields(loss),
    )  # fmt: skip


def _order(questions: Questions, about: _About) -> Shown:
    """The answer on all hosts of a cluster."""
    hosts, vms = questions.cluster.hosts, questions.cluster.vms
    waiting = [vm for host in questions.up for vm in host.vms.values() if vm.why_stays]
    order = questions.order()
    names = [hosts[key].name for key in order.hosts]
    after = f"after {', '.join(names)}" if names else "at all"
    whys = {hosts[key].name: ("in any order", why) for key, why in order.never.items()}
    whys.update(
        (hosts[key].name, (after, f"{vms[vm].name} has no place: {why}"))
        for key, (vm, why) in order.blocked.items()
    )
    lines = [f"{vm.name} {WAITS}: it {vm.why_stays}; {vm.remedy}" for vm in waiting]
    lines += [f"{host.name} {status_words(host.status)}, and is not in the order"
              for host in hosts.values() if host.status != UP]  # fmt: skip
    lines += [f"{host} cannot be emptied {when}: {why}" for host, (when, why) in whys.items()]
    if not questions.up:
        lines.append(_NONE_UP)
    elif not order.is_best:
        lines.append("not every order was tried: there are too many")
    elif names and not order.blocked:
        which = "the others" if whys else "all hosts"
        lines.append(f"{which} can be emptied in this order, one after another")
    return about.shown(
        tables.table(("", "HOST"), [*enumerate(names, 1)]), lines,
        bool(questions.up) and not (whys or waiting),
        order=names, blocked={host: why for host, (_, why) in whys.items()},
        waiting={vm.name: vm.why_stays for vm in waiting}, all_tried=order.is_best,
    )  # fmt: skip


def _capacity(options: argparse.Namespace) -> Shown:
    """Say what a cluster can lose, and how many more VMs fit.

    Say, for each host that is lost, which VMs find no place by the scheduler, filters, cost
    functions and affinity rules of the cluster's section, and why: those that are highly available
    first. With --vm or --like: how many more of such a VM fit, without a loss and with each. The
    exit status is 0 if every VM finds a place whichever host is lost, 1 if not or if no host is up.

    examples:
      capacity Default
      capacity Default --vm 8GiB,4
      capacity --cluster cluster.xml.gz --like web
    """
    with _questions(options) as (questions, about):
        kind = _kind(options, questions)
        losses = [questions.lose(host, kind) for host in (None, *questions.up)]
    rows = [
        (
            loss.host or "none", len(loss.homeless), loss.urgent,
            *(() if kind is None else (loss.more,)), _names([vm.vm for vm in loss.homeless]),
        )
        for loss in losses
    ]  # fmt: skip
    worst = max(losses, key=lambda loss: loss.severity)
    lines = ["every VM finds a place, whichever host is lost"] if questions.up else [_NONE_UP]
    if worst.homeless:
        lines = _loss_lines(worst, f"the worst is the loss of {worst.host}: ")
    has_urgent = any(vm.is_highly_available and vm.host for vm in questions.cluster.vms.values())
    if questions.up:
        lines += filter(None, [reservation_words(questions.reserves, worst, has_urgent)])
    if kind is not None:
        least = min(losses[1:], key=lambda loss: loss.more or 0, default=None)
        after = f", and {least.more} after the loss of {least.host}" if least else ""
        lines.append(f"{losses[0].more} more such VMs fit{after}")
        if questions.counts_at_most:
            lines.append(f"at most {questions.counts_at_most} on a host are counted")
    of_kind = () if kind is None else ("MORE FIT",)
    headings = ("LOST", "WITHOUT A PLACE", "HIGHLY AVAILABLE", *of_kind, "VMS")
    return about.shown(
        tables.table(headings, rows), lines, bool(questions.up) and not worst.homeless,
        losses=[_loss_fields(loss) for loss in losses], worst=worst.host,
        ha_reservation=questions.reserves,
        counted_at_most=questions.counts_at_most,
    )  # fmt: skip


def _kind(options: argparse.Namespace, questions: Questions) -> Optional[SimulatedVm]:
    """The VM of which is asked how many more fit.

    Raises:
        BadUsage: the options name none, or both do.
    """
    vms = {vm.name: vm for vm in questions.cluster.vms.values()}
    if options.vm and options.like:
        raise BadUsage("give one of --vm and --like")
    if options.like:
        if options.like not in vms:
            hint = spelling.hint(options.like, vms)
            raise BadUsage(f"--like {options.like}: there is no such VM{hint}")
        return questions.cluster.add_like(vms[options.like])
    if options.vm is None:
        return None
    memory, _, processors = options.vm.partition(",")
    try:
        size, number = TYPES["size"].read(memory), int(processors or 1)
    except ValueError:
        size = number = 0
    if size < _LEAST_MEMORY or not 1 <= number <= _MOST_PROCESSORS:
        raise BadUsage(
            f"--vm {options.vm}: write memory and processors, such as 8GiB,4: at least 1 MiB, and "
            f"1 to {_MOST_PROCESSORS} processors"
        )
    return questions.cluster.add("new", size, number, 0.0)


class _DaemonInquiries(Inquiries):
    """Questions of this process, of which the daemon of a state folder gets to know.

    Nobody does if no daemon runs, or this user may not ask it.
    """

    def __init__(self, state: Path) -> None:
        super().__init__()
        self._state = state

    def note(self, vm: str, began: float, ended: float) -> None:
        """Have the daemon note a question, as ``Inquiries`` does."""
        with contextlib.suppress(NoAnswer, CallRefused):
            control_client.ask(self._state, "inquiry", vm=vm, began=began, ended=ended)


@contextlib.contextmanager
def _questions(options: argparse.Namespace) -> Iterator[tuple[Questions, _About]]:
    """What answers the questions, from a saved cluster or from the engine's.

    Raises:
        ConfigError: there is no engine to ask.
        BadUsage: there is no such host, cluster or section.
    """
    settings = arguments.settings(options)
    with runtime.started(settings) as running, progress_line() as tell:
        running.registry.refresh()
        inventory, offers = running.services.inventory, None
        if options.cluster is not None:
            saved = Snapshot.read(options.cluster)
            if options.all and options.all.lower() != saved.cluster.lower():
                hint = spelling.hint(options.all, [saved.cluster])
                raise BadUsage(f"{options.cluster} has the cluster {saved.cluster}{hint}")
        elif not (options.all or options.host):
            raise BadUsage("name a cluster, or a --cluster FILE")
        elif settings.engine is None or inventory is None:
            raise arguments.no_engine(settings, "name a --cluster FILE")
        else:
            name = options.all or snapshot.cluster_of(inventory, options.host, tell)
            saved = snapshot.take(settings.engine, name, tell)
            if options.host:
                offers = Offers(
                    saved.cluster, inventory, math.inf, _DaemonInquiries(arguments.state())
                )
        section = section_of(options.section, settings, saved.cluster)
        about = _About(saved, options.cluster, section, offers)
        questions = Questions(running, saved, section, about.offered, tell)
        about.problems = questions.problems
        try:
            yield questions, about
        finally:
            questions.close()


class _About:
    """What an answer rests on.

    Attributes:
        seconds_a_gib: of the migrations of the last hour, the median; None: there were none.
        problems: failures of plugins, without which the answer counts.
    """

    def __init__(
        self,
        saved: Snapshot,
        file: Optional[Path],
        section: ClusterSettings,
        offers: Optional[Offers],
    ) -> None:
        self.cluster, self._time, self._offers = saved.cluster, saved.time, offers
        self.seconds_a_gib = _pace(saved)
        self.problems: Collection[str] = ()
        self._silent: set[str] = set()  # VMs about which the engine says nothing
        source = f"{file.name}, saved {saved.time}{_age(saved.time)}" if file else "the engine"
        filters = "" if offers else ", without the engine's own filters"
        policy = f"the section {section.name}" if section.file else "the default scheduler alone"
        self._policy = (
            f"{saved.cluster} from {source}{filters}: as {policy} would place the VMs; the "
            "engine's own choice may differ"
        )

    def offered(self, vm: str) -> Optional[Collection[str]]:
        """The hosts that the engine would migrate a VM to; None: it does not say."""
        hosts = self._offers.hosts(vm) if self._offers else None
        if hosts is None and self._offers:
            self._silent.add(vm)
        return hosts

    def shown(self, table: str, lines: Sequence[str], well: bool, **values: object) -> Shown:
        """An answer, with what it rests on."""
        notes = [f"problem: {problem}; the answer counts without it" for problem in self.problems]
        if self._silent:
            number = count_of(len(self._silent), "VM")
            notes.append(f"the engine does not say where it would migrate {number}")
        below = "".join(f"{line}\n" for line in (*lines, *notes))
        texts = (f"{self._policy}\n", below)
        fields = {
            "cluster": self.cluster, "taken": self._time, "policy": self._policy,
            "engine_filters": bool(self._offers), "silent": len(self._silent),
            "problems": [*self.problems], "ready": well, **values,
        }  # fmt: skip
        return Shown((f"\n{table}\n" if table else "").join(texts), fields, well)


def _loss_lines(loss: Loss, words: str) -> list[str]:
    if not loss.homeless:
        return [f"{words}every VM finds a place"]
    lines = [f"{words}{count_of(len(loss.homeless), 'VM')} without a place"]
    lines += [
        f"  {vm.vm}{' (highly available)' if vm.highly_available else ''}: {vm.why}"
        for vm in loss.homeless[:_MOST_LINES]
    ]
    if len(loss.homeless) > _MOST_LINES:
        lines.append("  and more; -o json has them all")
    return (
        lines if loss.is_best else [*lines, "  not every placement was tried: there are too many"]
    )


def _loss_fields(loss: Loss) -> dict[str, Any]:
    return {**loss._asdict(), "homeless": [vm._asdict() for vm in loss.homeless]}


def _names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _duration(seconds: Optional[float]) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _age(moment: str) -> str:
    """How old a saved cluster is, in words; empty if it is not known."""
    try:
        hours = (time.time() - query.moment(moment)) / 3600
    except ValueError:
        return ""
    return f", {hours / 24:.0f} days ago" if hours >= 48 else f", {hours:.0f} hours ago"


def _pace(saved: Snapshot) -> Optional[float]:
    """Seconds a GiB: the median of the migrations that this machine's daemon followed lately."""
    migrated = DriveMemory(arguments.state() / FILE).cluster(saved.cluster).migrated
    vms = {
        key: EntityDocument(saved.vms[key]).memory
        for key in {m.vm for m in migrated} & saved.vms.keys()
    }
    paces = [
        (migration.ended - migration.begun) * _GIB / vms[migration.vm]
        for migration in migrated
        if migration.ended is not None and vms.get(migration.vm)
    ]
    return statistics.median(paces) if paces else None
