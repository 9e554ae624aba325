"""Good clients: each call's answer is known beforehand, and compared with what comes.

An answer that differs is forgiven only where the contract has it: fault 104 of a daemon that is at
its limit, and, of a call that a kill may have hit, the errors of section 4.2 of the contract.
"""

from __future__ import annotations

import random
import ssl
import threading
import time
import xmlrpc.client
from collections.abc import Sequence
from dataclasses import dataclass
from xml.parsers.expat import ExpatError

from bench import client, documents
from bench.client import Address
from torture.subject import REQUEST_SECONDS, Subject
from torture.tally import Tally

IDS = documents.host_ids(10)
PROPERTIES = {"marker": "86399", "vm": documents.VM_ID, "answer": "{}"}

_PATIENCE = REQUEST_SECONDS + 12.0  # seconds from a call to its answer, connecting included
_FULL, _INTERNAL, _UNREADABLE = 104, -32603, 102
_HIT = "answered with the error of a call that was hit"


@dataclass(frozen=True)
class Call:
    """A call and its answer.

    Attributes:
        request: the HTTP request.
        answer: what is right.
        hit: what else is allowed where processes of the call were killed.
    """

    name: str
    request: bytes
    answer: object
    hit: Sequence[object] = ()


def calls(misbehaving: Sequence[str]) -> list[Call]:
    """The calls that good clients make: each kind by ids, and by documents."""
    made = []
    costs = {host: int(host[-4:], 16) for host in IDS}
    doubled = {host: 2 * cost for host, cost in costs.items()}
    half = IDS[::2]
    for hosts, vm in ((IDS, documents.VM_ID), (documents.hosts(len(IDS)), documents.VM)):
        rest = (hosts, vm, PROPERTIES)
        made += [
            _call("filter", half, [IDS], "runFilters", ["Half"], *rest),
            _call("filters", half[::2], [IDS, half], "runFilters", ["Half", "Printed"], *rest),
            _call("costs", doubled, [{}], "runCostFunctions", [["Half", 2], ["raises", 1]], *rest),
            _call(
                "balance", {documents.VM_ID: IDS[1:]}, [{}],
                "runLoadBalancing", "Half", hosts, PROPERTIES,
            ),
        ]  # fmt: skip
        made += [
            _call(f"filter after {name}", half, [IDS], "runFilters", [name, "Half"], *rest)
            for name in misbehaving
        ]
    return made


def _call(name: str, answer: object, hit: Sequence[object], method: str, *args: object) -> Call:
    return Call(name, client.request(documents.call(method, *args)), answer, hit)


class GoodClient:
    """Calls again and again over kept connections until it is told to stop.

    Args:
        slow: how many calls in a hundred go to plugins that misbehave.
    """

    def __init__(self, subject: Subject, tally: Tally, chosen: random.Random, slow: int) -> None:
        self._subject = subject
        self._address: Address = subject.address
        self._trust = subject.trust()
        self._tally = tally
        self._chosen = chosen
        self._slow = slow
        every = calls(subject.misbehaving)
        self._quick = [call for call in every if " after " not in call.name]
        self._others = [call for call in every if " after " in call.name]
        self._connection: client.Connection | None = None

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            slow = self._chosen.randrange(100) < self._slow
            self.make(self._chosen.choice(self._others if slow else self._quick))
            stop.wait(self._chosen.random())
        self._hang_up()

    def make(self, call: Call) -> None:
        """Make one call and judge its answer."""
        begin = time.monotonic()
        body = self._ask(call)
        self._tally.count("good calls")
        if body is None:
            self._judge(call, begin, "no answer at all", allowed=False)
        else:
            self._compare(call, begin, body)

    def _compare(self, call: Call, begin: float, body: bytes) -> None:
        try:
            ((answer,), _) = xmlrpc.client.loads(body.decode(), use_builtin_types=True)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode == _FULL:
                self._tally.count("refused: the daemon is at its limit (104)")
            else:
                allowed = fault.faultCode in (_INTERNAL, _UNREADABLE)
                self._judge(call, begin, f"fault {fault.faultCode}: {fault.faultString}", allowed)
        except (ValueError, ExpatError) as error:
            self._judge(call, begin, f"an answer that is none: {error}", allowed=False)
        else:
            if answer == call.answer:
                self._tally.count("answered rightly")
            else:
                self._judge(call, begin, f"{answer!r:.300}", allowed=answer in call.hit)

    def _judge(self, call: Call, begin: float, what: str, allowed: bool) -> None:
        if allowed and self._tally.harmed(begin):
            self._tally.count(_HIT)
        else:
            calm = "" if self._tally.harmed(begin) else ", and nothing had been killed"
            self._tally.find(f"{call.name}: got {what}{calm}")

    def _ask(self, call: Call) -> bytes | None:
        give_up = time.monotonic() + _PATIENCE
        while time.monotonic() < give_up and self._subject.alive:
            try:
                if self._connection is None:
                    self._connection = client.Connection(self._address, self._trust)
                    self._connection.socket.settimeout(_PATIENCE)
                body = self._connection.ask(call.request)
            except (OSError, ssl.SSLError):
                self._hang_up()
                self._tally.count("connections closed before an answer")
                continue
            if body:
                return body
            self._hang_up()  # the request did not arrive in time
            self._tally.count("HTTP errors")
        return None

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
