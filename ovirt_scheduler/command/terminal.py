"""The calls of the command line: to a running daemon, or to plugins in this process.

Units and schedulers are called in the engine form, whose answers name the units that failed.
They are listed in the design form, which says more of each.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import itertools
import ssl
import xmlrpc.client
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional
from urllib.parse import SplitResult, urlsplit
from xml.etree import ElementTree
from xml.parsers.expat import ExpatError
from xmlrpc.client import Fault, ProtocolError, SafeTransport, Transport

from ovirt_scheduler.command import tables
from ovirt_scheduler.command.inputs import Inputs, names
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.daemon.runtime import Services
from ovirt_scheduler.errors import BadInput, BadUsage, CallRefused, NoAnswer, UnreadableDocument
from ovirt_scheduler.history import explanation, schema
from ovirt_scheduler.log.format import printable
from ovirt_scheduler.model import aggregate
from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.model.results import CallResult
from ovirt_scheduler.model.text import NOT_IN_XML
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.security import certificates
from ovirt_scheduler.security.atomic_file import read_whole
from ovirt_scheduler.server.method import Reply
from ovirt_scheduler.settings.config import Settings

# Calls a method: answer form, name, parameters. The reply has the results of the plugins' calls if
# they ran in this process; XML-RPC has nothing of what they printed. It has the record of what was
# decided, where that can be had.
Call = Callable[..., Reply]
# Looks for the record of a decision that a daemon has just made: the daemon's calls, the id.
Find = Callable[[Call, str], Optional[Mapping[str, Any]]]

# By their elements in the discover document (contract 2.1).
_KINDS = {"Filter": Kind.FILTER, "CostFunction": Kind.COST_FUNCTION, "Balance": Kind.BALANCE}

_DESIGN, _ENGINE = AnswerForm.DESIGN, AnswerForm.ENGINE

_OF_CALL = ("unit", "message", "notes", "traceback", "stdout", "stderr")

_NO_HOSTS = "no hosts\n"
_SECONDS = 125.0  # for an answer; the daemon gives every one within 119

_OTHER_NAME = (62, 64)  # a host name, an address: X509_verify_cert_error_string(3)


def nowhere(_call: Call, _decision: str) -> None:
    """No record can be found."""


def remote(url: str, certificate: Optional[Path], find: Find = nowhere, instead: str = "") -> Call:
    """Calls to a running daemon.

    Args:
        url: of the daemon, without a path.
        certificate: PEM, to trust beside the system's authorities.
        find: for the records of what is decided.
        instead: what does without a daemon, for the message where none answers.

    Raises:
        BadUsage: the URL cannot be a daemon's.
        BadInput: the certificate cannot be read.

    Raises (when called):
        BadUsage: a parameter that XML-RPC cannot carry.
        NoAnswer: nobody answers there, or nobody who can be trusted.
        CallRefused: the daemon answered with a fault.
        UnreadableDocument: with the fault that says so.
    """
    address = _address(url)
    make: Callable[..., _Http] = _Http
    if address.scheme == "https":
        make = functools.partial(_Https, context=_trust(certificate))

    def call(form: AnswerForm, name: str, *parameters: Any) -> Reply:
        try:
            body = xmlrpc.client.dumps(parameters, name, allow_none=True)
        except OverflowError:
            raise BadUsage(f"{name}: XML-RPC takes integers of at most 32 bits") from None
        unsent = NOT_IN_XML.search(body)
        if unsent:
            raise BadUsage(f"{name}: cannot be sent with {unsent[0]!r}, which XML does not have")
        transport = make(use_builtin_types=True)
        with _explained(url, instead), contextlib.closing(transport):
            (answer,) = transport.request(
                address.netloc,
                f"{address.path.rstrip('/')}/{form.value}",
                body.encode(),
            )
        return Reply(answer, record=lambda: find(call, transport.request_id))

    return call


@contextlib.contextmanager
def _explained(url: str, instead: str) -> Iterator[None]:
    """Say of each failure of a call what it means, and what to do."""
    try:
        yield
    except Fault as fault:
        if fault.faultCode == UnreadableDocument.fault_code:
            raise UnreadableDocument(fault.faultString) from None
        raise CallRefused(f"{fault.faultString} (fault {fault.faultCode})") from None
    except ssl.SSLCertVerificationError as error:
        mend = "name the daemon's certificate with --ca"
        if error.verify_code in _OTHER_NAME:
            mend = "name one of its names in --url"
        raise NoAnswer(
            f"{url}: its certificate is not trusted: {error.verify_message}; {mend} "
            "(ovirt-scheduler cert show tells where it lies, and its names)"
        ) from None
    except ssl.SSLError as error:
        raise NoAnswer(
            f"{url}: {error.reason or error}; it may speak no TLS (ssl = false): --url http://"
        ) from None
    except ProtocolError as error:
        tls = "; it may speak TLS (ssl = true): --url https://" if url.startswith("http:") else ""
        raise NoAnswer(f"{url}: HTTP {error.errcode} {error.errmsg}{tls}") from None
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(
            f"{url}: {error!s:.200}; is the daemon running (systemctl status ovirt-scheduler)? "
            f"--url names another one{', ' if instead else ''}{instead}"
        ) from None
    except (ExpatError, xmlrpc.client.Error, ValueError, TypeError, LookupError):
        raise NoAnswer(f"{url}: what answers there is no ovirt-scheduler; mend --url") from None


@contextlib.contextmanager
def local(settings: Settings) -> Iterator[Call]:
    """Call the plugins of the settings in this process; no state is kept.

    Raises:
        ExecutorUnavailable: no process can be started to run plugins in.
        RequestError: when called: what would be a fault.
    """
    with runtime.started(settings) as running:
        running.registry.refresh()
        yield here(running.services)


def here(services: Services) -> Call:
    """Call services of this process."""
    offered = {(form, each.name): each for each in services.methods() for form in each.forms}

    def call(form: AnswerForm, name: str, *parameters: object) -> Reply:
        answer = offered[form, name].run(Caller("local", form, "here"), parameters)
        return answer if isinstance(answer, Reply) else Reply(answer)

    return call


def discover(call: Call) -> Shown:
    """List every policy unit."""
    document = str(call(_DESIGN, "discover").answer)
    root = ElementTree.fromstring(document)  # noqa: S314  of a daemon that is trusted
    units = [_unit(element) for group in root for element in group]
    rows = [
        (unit["name"], Kind(unit["kind"]).words, unit["properties"], unit["description"])
        for unit in units
    ]
    text = tables.table(("UNIT", "KIND", "PROPERTIES", "DESCRIPTION"), rows)
    named = list(dict.fromkeys(str(unit["name"]) for unit in units))
    return Shown(text or "no policy units; ovirt-scheduler check tells why\n", units, names=named)


def run_filters(call: Call, units: Sequence[str], inputs: Inputs) -> Shown:
    """Ask which hosts every filter accepts."""
    answer = _Answer(call, inputs, "runFilters", list(units), *inputs.parameters())
    accepted = answer.result
    rejected = [host for host in answer.hosts if host not in accepted]
    text = answer.table("VERDICT", {**dict.fromkeys(accepted, "accepted"),
                                    **dict.fromkeys(rejected, "rejected")})  # fmt: skip
    if aggregate.ALL_FILTERS_FAILED in answer.problems:
        taken = "accepts them all" if accepted else "accepts none of them"
        text = f"no filter has judged the hosts: the answer {taken}\n"
    return answer.shown(text, {"accepted": accepted, "rejected": rejected}, accepted, _NO_HOSTS)


def run_cost_functions(call: Call, factors: Mapping[str, int], inputs: Inputs) -> Shown:
    """Ask for the weighted sum of costs of each host; the best host comes first."""
    answer = _Answer(call, inputs, "runCostFunctions", dict(factors), *inputs.parameters())
    costs: dict[str, int] = {}
    for host, cost, *unit in answer.result:
        # With a unit's name it is that unit's own cost (contract 3.4).
        costs[host] = costs.get(host, 0) + cost * (factors[unit[0]] if unit else 1)
    best_first = sorted(costs, key=lambda host: costs[host])
    text = answer.table("COST", {host: costs[host] for host in best_first})
    return answer.shown(text, {"costs": costs}, best_first, _NO_HOSTS)


def run_balance(call: Call, unit: str, inputs: Inputs) -> Shown:
    """Ask which VM to migrate, and where it may go."""
    parameters = inputs.parameters(with_vm=False)
    answer = _Answer(call, inputs, "runLoadBalancing", unit, *parameters)
    vm, targets = answer.result
    if not vm:
        return answer.shown("", {"migration": None}, nothing=f"nothing to do\n{answer.reasons()}")
    named = names(inputs.vms, "vm").get(vm) or vm
    rows = [(named, answer.hosts.get(host), host) for host in targets] or [(named, "any host", "")]
    text = tables.table(("VM", "TO HOST", "ID"), rows) + answer.reasons()
    return answer.shown(text, {"migration": {"vm": vm, "hosts": targets}}, [vm])


def schedulers(call: Call) -> Shown:
    """List every scheduler, with its properties."""
    found = call(_DESIGN, "getSchedulers").answer
    rows = [
        (
            each["name"],
            each["topic"],
            ", ".join(each["interfaces"]),
            "; ".join(f"{one['name']}={one['validation']}" for one in each["inputs"]),
            each["description"],
        )
        for each in found
    ]
    headings = ("SCHEDULER", "TOPIC", "INTERFACES", "PROPERTIES", "DESCRIPTION")
    text = tables.table(headings, rows)
    return Shown(text or "no schedulers\n", found, names=[each["name"] for each in found])


def topics(call: Call) -> Shown:
    """List every topic, with the methods of its driver."""
    found = call(_DESIGN, "getTopics").answer
    rows = [
        (each["topic"], each["driver"], f"{method['name']}{method['signature']}", method["help"])
        for each in found
        for method in each["methods"]
    ]
    text = tables.table(("TOPIC", "DRIVER", "METHOD", "DESCRIPTION"), rows)
    return Shown(text or "no topics\n", found, names=[each["topic"] for each in found])


def select_host(call: Call, scheduler: str, inputs: Inputs) -> Shown:
    """Ask which host a scheduler would start the VM on."""
    answer = _Answer(call, inputs, "selectHost", scheduler, *inputs.parameters())
    host = answer.result
    if not host:
        removed = answer.reasons()
        left = f": {explanation.left(answer.decision)}" if answer.decision and removed else ""
        return answer.shown("", {"host": None}, nothing=f"no host{left}\n{removed}")
    others = [each for each in answer.best_first() if each != host]
    text = answer.table("VERDICT", {host: "selected", **dict.fromkeys(others, "not selected")})
    return answer.shown(text, {"host": host}, [host])


def any_hosts(call: Call, scheduler: str, inputs: Inputs) -> Shown:
    """Ask a scheduler whether there is a host for the VM."""
    answer = _Answer(call, inputs, "hasAnyHosts", scheduler, *inputs.parameters())
    found = "there is a host" if answer.result else "there is no host"
    return answer.shown(f"{found}\n", {"result": answer.result})


def migrations(
    call: Call, method: str, scheduler: str, inputs: Inputs, change: Sequence[str] = ()
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
    rows = [
        (vm_names.get(vm), vm, answer.hosts.get(host) if host else "any host", host)
        for vm, targets in answer.result.items()
        for host in targets or [""]
    ]
    text = tables.table(("VM", "VM ID", "TO HOST", "HOST ID"), rows)
    moved = [vm_names.get(vm) or vm for vm in answer.result]
    return answer.shown(text, {"migrations": answer.result}, moved, "nothing to do\n")


def schedule(call: Call, topic: str, method: str, arguments: Mapping[str, object]) -> Shown:
    """Call a method of a topic's driver, and show what it returns as JSON."""
    answer = _Answer(call, Inputs(()), "schedule", topic, method, arguments)
    text = tables.document(answer.result)
    fields = {"result": answer.result}
    return answer.shown("" if answer.result == "" else text, fields, nothing=text)


class _Answer:
    """The answer to a call in the engine form, taken apart (contract 3.2).

    Attributes:
        hosts: the name of each host that was asked about, by its id.
    """

    def __init__(self, call: Call, asked: Inputs, method: str, *parameters: object) -> None:
        reply = call(_ENGINE, method, *parameters)
        fields: dict[str, Any] = reply.answer
        self.hosts = names(asked.hosts)
        self.result = fields["result"]
        self._calls = reply.results
        self.problems = [
            # What says that there is none of that name says the name, too.
            message if f"named {unit!r}" in message else f"{unit}: {message}"
            for unit, messages in fields.get("plugin_errors", {}).items()
            for message in messages
        ]
        self.problems += fields.get("errors", [])
        self._record = reply.record

    @functools.cached_property
    def record(self) -> Optional[Mapping[str, Any]]:
        """What was decided (contract 8.1)."""
        record = self._record()
        if record is None or isinstance(record["time"], str):
            return record
        return {**record, "time": schema.written(record["time"])}

    @property
    def decision(self) -> Optional[Mapping[str, Any]]:
        """The same for a person to read."""
        return None if self.record is None else explanation.cleaned(self.record)

    def table(self, heading: str, values: Mapping[str, object]) -> str:
        """Hosts with a value each, by their ids, and with the reasons where they are known."""
        rows = [(self.hosts.get(host), host, value) for host, value in values.items()]
        why = self._why(values)
        if not any(why):
            return tables.table(("HOST", "ID", heading), rows)
        told = [(*row, reason) for row, reason in zip(rows, why)]
        return tables.table(("HOST", "ID", heading, "WHY"), told)

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

    def shown(
        self, text: str, fields: Mapping[str, object], found: Sequence[str] = (), nothing: str = ""
    ) -> Shown:
        """Show the answer and its problems; of calls in this process also output and tracebacks.

        Args:
            found: for who wants names alone; of a host its id will do.
            nothing: shown if there is neither a text nor a problem.
        """
        lines = [text or ("" if self.problems else nothing)]
        lines += [f"problem: {printable(problem)}\n" for problem in self.problems]
        fields = {**fields, "problems": self.problems}
        if vars(self).get("record") is not None:  # that of a topic's method is not waited for
            fields["decision"] = self.record
        if self._calls:
            fields["calls"] = [_call_fields(result) for result in self._calls]
            lines += itertools.chain.from_iterable(map(_printed, self._calls))
        named = [self.hosts.get(each) or each for each in found]
        return Shown("".join(lines), fields, not self.problems, named, self.problems)


def _printed(result: CallResult) -> Iterator[str]:
    """What a plugin printed, and its traceback, each with a heading; nothing that is empty."""
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


def _unit(element: ElementTree.Element) -> dict[str, object]:
    """One unit of the discover document (contract 2.1)."""
    return {
        "name": element.get("name") or element.findtext("name"),
        "kind": _KINDS[element.tag].value,
        "description": element.get("description", ""),
        "properties": element.findtext("Properties/CustomProperties") or "",
        "defaults": element.findtext("Properties/default_values") or "",
        "checksum": element.get("checksum", ""),
    }


class _Http(Transport):
    """Notes the id of what was asked last, which is the decision's (contract 8.4)."""

    request_id = ""

    def make_connection(self, host: Any) -> Any:
        connection = super().make_connection(host)
        connection.timeout = _SECONDS
        return connection

    def parse_response(self, response: Any) -> Any:
        self.request_id = response.getheader("X-Request-Id", "")
        return super().parse_response(response)


class _Https(_Http, SafeTransport):
    """The same over TLS."""


def _address(url: str) -> SplitResult:
    """The parts of a daemon's URL.

    Raises:
        BadUsage: it cannot be one.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in ("https", "http") and (parts.hostname or "").encode("idna"):
            _ = parts.port  # fails if it is no number
            return parts
        problem = "begin it with https:// (or http:// where ssl = false), then the host"
    except ValueError as error:  # UnicodeError is one, too
        problem = str(error)
    raise BadUsage(f"--url {url}: {problem}")


def _trust(certificate: Optional[Path]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if certificate is not None:
        try:
            # Comments may be in any alphabet.
            text = read_whole(certificate, certificates.MOST_BYTES).decode("ascii", "ignore")
            context.load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError):
            raise BadInput(f"{certificate}: holds no PEM certificate; name one with --ca") from None
        except FileNotFoundError:
            raise BadInput(
                f"{certificate}: is not there; the daemon makes its certificate when it first "
                "starts: is it running? sudo ovirt-scheduler cert export prints that of systemd's "
                "daemon; --ca names a copy"
            ) from None
        except OSError as error:
            raise BadInput(
                f"{certificate}: cannot be read: {error.strerror}; copy the daemon's certificate "
                "to where you can read it, and name it with --ca"
            ) from None
    return context
