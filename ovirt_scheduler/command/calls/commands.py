"""The calls of the daemon as commands: discover, filter, score, balance, select, schedule.

Units and schedulers are called in the engine form, whose answers name the units that failed.
They are listed in the design form, which says more of each.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Optional

from ovirt_scheduler.command import arguments, control_client, tables
from ovirt_scheduler.command.calls import daemon_client, input_files, offered_units
from ovirt_scheduler.command.calls.daemon_client import MethodCaller
from ovirt_scheduler.command.calls.input_files import CommandInputs, names, read_options, running_on
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.errors import BadUsage
from ovirt_scheduler.history import explanation, outcomes, ranking
from ovirt_scheduler.history.record import OK, Record
from ovirt_scheduler.log.format import printable
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.requests import AnswerForm
from ovirt_scheduler.model.results import CallResult
from ovirt_scheduler.model.units import Kind

_DESIGN, _ENGINE = AnswerForm.DESIGN, AnswerForm.ENGINE

_OF_CALL = ("unit", "message", "notes", "traceback", "stdout", "stderr")

_NO_HOSTS = "no hosts\n"

_ABOUT = """{0}.

{0}.
The running daemon answers. With --local this command runs the plugins itself, and shows what they
print, and their tracebacks. -o names shows names alone, one on a line, and problems on standard
error.

examples:
  {1}
  {2}{3} --url https://sched:18781
"""


def add(to: arguments.Add) -> None:
    """Add a command for each call."""
    # Name, help, example, what makes the call; of each argument: metavar, number, help.
    for name, brief, example, ask, words in (
        ("discover", "List the policy units", "--local", lambda call, _: discover(call), {}),
        ("filter", "Ask which hosts filters accept",
         "Quiet --hosts hosts.xml --vm vm.xml --property most=5",
         lambda call, options: run_filters(call, options.unit, read_options(options)),
         {"unit": ("NAME", "+", "a filter")}),
        ("score", "Ask what cost functions make of hosts",
         "Quiet=2 Memory --hosts hosts.xml --vm vm.xml", _score,
         {"unit": ("NAME[=FACTOR]", "+", "a cost function, and its factor (default: 1)")}),
        ("balance", "Ask which VM a balance would migrate", "Memory --hosts hosts.xml",
         lambda call, options: run_balance(call, options.unit[0], read_options(options)),
         {"unit": ("NAME", 1, "the balance")}),
        ("schedulers", "List the schedulers", "--local", lambda call, _: schedulers(call), {}),
        ("select", "Ask which host a scheduler would start a VM on",
         "default --hosts hosts.xml --property filters=Quiet",
         lambda call, options: select_host(call, options.unit[0], read_options(options)),
         {"unit": ("SCHEDULER", 1, "its name")}),
        ("topics", "List the topics and their methods", "--local", lambda call, _: topics(call),
         {}),
        ("schedule", "Call a method of a topic", "compute select_host hosts=@hosts.xml vm=@vm.xml",
         _schedule,
         {"topic": ("TOPIC", None, "its name"), "method": ("METHOD", None, "one of the topic's"),
          "argument": ("KEY=VALUE", "*", "argument: JSON, or else text; @FILE: a file's text")}),
    ):  # fmt: skip
        with_hosts, call = "--hosts" in example, f"{name} {example}"
        documents = " --hosts hosts.xml" if with_hosts else ""
        command = arguments.add_command(
            to, name, _run, _ABOUT.format(brief, call, call.partition(" --")[0], documents),
            output=("table", "json", "names"), settings=("config", "plugins"),
        )  # fmt: skip
        command.set_defaults(ask=ask, kind="cost function" if name == "score" else name)
        arguments.add_options(command.add_mutually_exclusive_group(), {
            "--url URL": "the daemon's (default: the address in the settings)",
            "--local": "run the plugins here, without the daemon",
        })  # fmt: skip
        arguments.add_options(command, arguments.CA)
        if with_hosts:
            input_files.add(command, with_vm=name != "balance")
        for word, (metavar, number, text) in words.items():
            # Without a default argparse calls an argument required that may be left out.
            command.add_argument(word, metavar=metavar, nargs=number, default=[], help=text)


def _score(call: MethodCaller, options: argparse.Namespace) -> Shown:
    named_factors = input_files.factors("score", options.unit)
    factors = {name: 1 if factor is None else factor for name, factor in named_factors}
    return run_cost_functions(call, factors, read_options(options))


def _schedule(call: MethodCaller, options: argparse.Namespace) -> Shown:
    return schedule(call, options.topic, options.method, input_files.json_pairs(options.argument))


def _run(options: argparse.Namespace) -> Shown:
    """Call the daemon, or the plugins in this process.

    Raises:
        BadUsage: options that do not go together.
    """
    if options.plugins is not None and not options.local:
        raise BadUsage("--plugins needs --local: the daemon has folders of its own")
    opened: AbstractContextManager[MethodCaller] = daemon_client.of_options(options)
    if options.local:
        opened = daemon_client.local(arguments.settings(options))
    with opened as call, input_files.naming_files(options):
        shown: Shown = options.ask(call, options)
        notes = [*offered_units.unknown_properties(call, options)]
    if not options.local and options.url is None:
        units = [name.partition("=")[0] for name in getattr(options, "unit", ())]
        notes += control_client.old_versions(arguments.state(), units)
    sys.stderr.writelines(f"note: {printable(note)}\n" for note in notes)
    return shown


def discover(call: MethodCaller) -> Shown:
    """List every policy unit."""
    units = offered_units.units(call)
    rows = [(unit["name"], unit["kind"], unit["properties"], unit["description"]) for unit in units]
    text = tables.table(("UNIT", "KIND", "PROPERTIES", "DESCRIPTION"), rows)
    named = list(dict.fromkeys(str(unit["name"]) for unit in units))
    return Shown(text or "no policy units; ovirt-scheduler check says why\n", units, names=named)


def run_filters(call: MethodCaller, units: Sequence[str], inputs: CommandInputs) -> Shown:
    """Ask which hosts every filter accepts."""
    answer = _Answer(call, inputs, "runFilters", list(units), *inputs.parameters(), units=units)
    accepted = answer.result
    accepted_ids = {*accepted}
    rejected = [host for host in answer.hosts if host not in accepted_ids]
    text = answer.table("VERDICT", {**dict.fromkeys(accepted, "accepted"),
                                    **dict.fromkeys(rejected, "rejected")})  # fmt: skip
    if answer.hosts and not answer.was_judged:
        verdict = "accepts them all" if accepted else "accepts none of them"
        text = f"no filter has judged the hosts: the answer {verdict}\n"
    return answer.shown(text, {"accepted": accepted, "rejected": rejected}, accepted, _NO_HOSTS)


def run_cost_functions(
    call: MethodCaller, factors: Mapping[str, int], inputs: CommandInputs
) -> Shown:
    """Ask for the weighted sum of costs of each host; the best host comes first."""
    answer = _Answer(
        call, inputs, "runCostFunctions", dict(factors), *inputs.parameters(), units=factors
    )
    costs: dict[str, int] = {}
    weighted: dict[str, dict[str, int]] = {}  # by unit, if the answer has their names
    for host, cost, *unit in answer.result:
        name = unit[0] if unit else ""
        # With a unit's name it is that unit's cost before its factor (contract 3.4).
        weighted.setdefault(name, {})[host] = share = cost * factors.get(name, 1)
        costs[host] = costs.get(host, 0) + share
    best_first = sorted(costs, key=lambda host: costs[host])
    text = answer.table("COST", {host: costs[host] for host in best_first})
    notes = (answer.left_out(name, share) for name, share in weighted.items())
    text += "".join(f"note: {printable(note)}\n" for note in notes if note)
    return answer.shown(text, {"costs": costs}, best_first, _NO_HOSTS)


def run_balance(call: MethodCaller, unit: str, inputs: CommandInputs) -> Shown:
    """Ask which VM to migrate, and where it may go."""
    parameters = inputs.parameters(with_vm=False)
    answer = _Answer(call, inputs, "runLoadBalancing", unit, *parameters, units=[unit])
    vm, targets = answer.result
    if not vm:
        return answer.shown("", {"migration": None}, nothing=f"nothing to do\n{answer.reasons()}")
    text = _migrations(answer, inputs, {vm: targets}) + answer.reasons()
    return answer.shown(text, {"migration": {"vm": vm, "hosts": targets}}, [vm])


def schedulers(call: MethodCaller) -> Shown:
    """List every scheduler, with its properties."""
    offered = call(_DESIGN, "getSchedulers").answer
    rows = [
        (
            scheduler["name"],
            scheduler["topic"],
            ", ".join(scheduler["interfaces"]),
            "; ".join(f"{each['name']}={each['validation']}" for each in scheduler["inputs"]),
            scheduler["description"],
        )
        for scheduler in offered
    ]
    headings = ("SCHEDULER", "TOPIC", "INTERFACES", "PROPERTIES", "DESCRIPTION")
    text = tables.table(headings, rows)
    return Shown(text or "no schedulers\n", offered, names=[str(each["name"]) for each in offered])


def topics(call: MethodCaller) -> Shown:
    """List every topic, with the methods of its driver."""
    drivers = call(_DESIGN, "getTopics").answer
    rows = [
        (driver["topic"], driver["driver"], method["name"] + method["signature"], method["help"])
        for driver in drivers
        for method in driver["methods"]
    ]
    text = tables.table(("TOPIC", "DRIVER", "METHOD", "DESCRIPTION"), rows)
    return Shown(text or "no topics\n", drivers, names=[str(each["topic"]) for each in drivers])


def select_host(call: MethodCaller, scheduler: str, inputs: CommandInputs) -> Shown:
    """Ask which host a scheduler would start the VM on."""
    answer = _Answer(call, inputs, "selectHost", scheduler, *inputs.parameters())
    host = answer.result
    if not host:
        removed = answer.reasons()
        remaining = (
            f": {outcomes.remaining_hosts(answer.decision)}" if answer.decision and removed else ""
        )
        return answer.shown("", {"host": None}, nothing=f"no host{remaining}\n{removed}")
    others = [each for each in answer.best_first() if each != host]
    text = answer.table("VERDICT", {host: "selected", **dict.fromkeys(others, "not selected")})
    return answer.shown(text, {"host": host}, [host])


def any_hosts(call: MethodCaller, scheduler: str, inputs: CommandInputs) -> Shown:
    """Ask a scheduler whether there is a host for the VM."""
    answer = _Answer(call, inputs, "hasAnyHosts", scheduler, *inputs.parameters())
    sentence = "there is a host" if answer.result else "there is no host"
    return answer.shown(f"{sentence}\n", {"result": answer.result})


def migrations(
    call: MethodCaller,
    method: str,
    scheduler: str,
    inputs: CommandInputs,
    change: Sequence[str] = (),
) -> Shown:
    """Ask a scheduler what it would migrate.

    Args:
        method: ``loadBalance``, ``onTimerInvoked``, or with a change the name of a hook.
        change: the id of a host or VM, its former status, its new one.
    """
    hosts, properties = inputs.parameters(with_vm=False)
    vms = inputs.vms if isinstance(inputs.vms, str) else list(inputs.vms)
    answer = _Answer(call, inputs, method, scheduler, *change, hosts, vms, properties)
    vm_names = names(inputs.vms, "vm")
    moved = [vm_names.get(vm) or vm for vm in answer.result]
    text = _migrations(answer, inputs, answer.result)
    return answer.shown(text, {"migrations": answer.result}, moved, "nothing to do\n")


def _migrations(answer: _Answer, inputs: CommandInputs, moves: Mapping[str, Sequence[str]]) -> str:
    """A table of migrations.

    Args:
        moves: by the VM's id the ids of the hosts that it may go to; none: any host.
    """
    vm_names, hosts = names(inputs.vms, "vm"), running_on(inputs.vms)
    rows = [
        (
            vm_names.get(vm), vm, answer.hosts.get(hosts.get(vm, "")),
            answer.hosts.get(target) if target else "any host", target,
        )
        for vm, targets in moves.items()
        for target in targets or [""]
    ]  # fmt: skip
    return tables.table(("VM", "VM ID", "FROM HOST", "TO HOST", "HOST ID"), rows)


def schedule(call: MethodCaller, topic: str, method: str, arguments: Mapping[str, object]) -> Shown:
    """Call a method of a topic's driver, and show what it returns as JSON."""
    answer = _Answer(call, CommandInputs(()), "schedule", topic, method, arguments)
    text = tables.document(answer.result)
    fields = {"result": answer.result}
    return answer.shown("" if answer.result == "" else text, fields, nothing=text)


class _Answer:
    """The answer to a call in the engine form, taken apart (contract 3.2).

    Args:
        units: the names of the policy units that are called.

    Attributes:
        hosts: the name of each host that was asked about, by its id.
    """

    def __init__(
        self,
        call: MethodCaller,
        inputs: CommandInputs,
        method: str,
        *parameters: object,
        units: Collection[str] = (),
    ) -> None:
        reply = call(_ENGINE, method, *parameters)
        fields: dict[str, Any] = reply.answer
        self._units = units
        self.hosts = names(inputs.hosts)
        self.result = fields["result"]
        self._calls = reply.results
        self.problems = [
            message if _names(message, unit) else f"{unit}: {message}"
            for unit, messages in fields.get("plugin_errors", {}).items()
            for message in messages
        ]
        self.problems += fields.get("errors", [])
        self._record = reply.record

    @functools.cached_property
    def record(self) -> Optional[Record]:
        """The record of the decision, if it is known (contract 8.1)."""
        return self._record()

    @property
    def was_judged(self) -> bool:
        """Whether a filter that counts has judged the hosts, as far as it is known."""
        if self.record is None:
            return aggregate.ALL_FILTERS_FAILED not in self.problems
        filters = ranking.units_of(self.record, Kind.FILTER)
        return any(unit.get("outcome", OK) == OK for unit in filters)

    @property
    def decision(self) -> Optional[Record]:
        """The record, cleaned of what a terminal must not show."""
        return None if self.record is None else explanation.cleaned(self.record)

    def table(self, heading: str, values: Mapping[str, object]) -> str:
        """A table of hosts with their values, and with the reasons if they are known.

        Args:
            values: one for each host, by its id.
        """
        rows = [(self.hosts.get(host), host, value) for host, value in values.items()]
        why = self._why(values)
        if not any(why):
            return tables.table(("HOST", "ID", heading), rows)
        with_reasons = [(*row, reason) for row, reason in zip(rows, why)]
        return tables.table(("HOST", "ID", heading, "WHY"), with_reasons)

    def left_out(self, unit: str, costs: Mapping[str, int]) -> str:
        """The hosts that a cost function favours as it leaves them out, in a sentence; or empty.

        Args:
            unit: empty for all that were asked.
            costs: of the other hosts, with the factor; not empty.
        """
        names = [name or host for host, name in self.hosts.items() if host not in costs]
        if not names or max(costs.values()) <= 0:
            return ""
        return (
            f"{unit or 'every cost function'} leaves {outcomes.listed(names, 'and')} out, which "
            "counts as a cost of 0, and so favours a host beside costs above 0"
        )

    def reasons(self) -> str:
        """A table of the hosts, if there is a reason for one of them."""
        why = self._why(self.hosts)
        rows = [(name, host, reason) for (host, name), reason in zip(self.hosts.items(), why)]
        return tables.table(("HOST", "ID", "WHY"), rows) if any(why) else ""

    def _why(self, hosts: Iterable[str]) -> list[str]:
        decision = self.decision
        if decision is None or explanation.is_plain(decision):
            return []
        of_host = explanation.why(decision)
        return [of_host.get(host, "") for host in hosts]

    def best_first(self) -> list[str]:
        """The hosts by their ranks, where these are known; those that have none come last."""
        decided = () if self.record is None else self.record.get("hosts", ())
        ranks = {each["id"]: each["rank"] for each in decided if "rank" in each}
        return sorted(self.hosts, key=lambda host: ranks.get(host, len(ranks) + 1))

    def _in_shadow(self) -> list[str]:
        """The units that the call names, and that only look on, as far as it is known.

        What they say is added to the record later; it has every other unit.
        """
        record: Optional[Record] = vars(self).get("record")
        if record is None:
            return []
        live = {unit["name"] for unit in record["units"] if unit.get("mode") != "shadow"}
        return [name for name in self._units if name not in live]

    def shown(
        self, text: str, fields: Mapping[str, object], listed: Sequence[str] = (), nothing: str = ""
    ) -> Shown:
        """Show the answer and its problems; of calls in this process also output and tracebacks.

        Args:
            listed: the names for ``-o names``; for hosts their ids.
            nothing: shown if there is neither a text nor a problem.
        """
        lines = [text or ("" if self.problems else nothing)]
        lines += [f"problem: {printable(problem)}\n" for problem in self.problems]
        lines += [
            f"note: {printable(name)} is in shadow and does not count; why shows what it said\n"
            for name in self._in_shadow()
        ]
        fields = {**fields, "problems": self.problems}
        if vars(self).get("record") is not None:
            fields["decision"] = self.record
        if self._calls:
            fields["calls"] = [_call_fields(result) for result in self._calls]
            lines += itertools.chain.from_iterable(map(_printed, self._calls))
        named = [self.hosts.get(each) or each for each in listed]
        return Shown("".join(lines), fields, not self.problems, named, self.problems)


def _names(message: str, unit: str) -> bool:
    """Whether a message begins with the name: ``scheduler A: ...``, ``no filter named 'A'``."""
    return re.match(rf"[a-z ]+ '?{re.escape(unit)}\b", message) is not None


def _printed(result: CallResult) -> Iterator[str]:
    """What a plugin printed, and its traceback, each with a heading unless it is empty."""
    for heading in ("traceback", "stdout", "stderr"):
        text = getattr(result, heading)
        if text.strip():
            yield f"{result.unit}: {heading}:\n{text.rstrip()}\n"


def _call_fields(result: CallResult) -> dict[str, object]:
    """How a plugin call ended, for JSON."""
    return {
        **{name: getattr(result, name) for name in _OF_CALL},
        "outcome": result.outcome.value,
        "milliseconds": round(result.seconds * 1000, 1),
    }
