"""Calls to a running daemon, or to plugins in this process; and where decisions are looked up."""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.client
import os
import reprlib
import ssl
import time
import xmlrpc.client
from collections.abc import Iterator
from contextlib import AbstractContextManager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Union, cast
from urllib.parse import SplitResult, urlsplit
from xml.etree.ElementTree import ParseError
from xml.parsers.expat import ExpatError
from xmlrpc.client import Fault, ProtocolError

from ovirt_scheduler.command import arguments
from ovirt_scheduler.daemon import certificate_report, runtime
from ovirt_scheduler.daemon.runtime import Services
from ovirt_scheduler.errors import (
    BadInput,
    BadUsage,
    CallRefused,
    HistoryUnreadable,
    NoAnswer,
    UnreadableDocument,
)
from ovirt_scheduler.history import conversion, store
from ovirt_scheduler.history.query import Query, written
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.model.results import CallResult
from ovirt_scheduler.model.values.text import NOT_IN_XML, one_line
from ovirt_scheduler.security import certificates
from ovirt_scheduler.security.addresses import url_host
from ovirt_scheduler.security.atomic_file import read_whole
from ovirt_scheduler.server.dispatch import Reply
from ovirt_scheduler.server.http import listening
from ovirt_scheduler.settings.table import Settings

_TRUST_IT = (
    "name the daemon's certificate with --ca; if it was renewed, systemctl reload ovirt-scheduler "
    "has the daemon use the new one"
)
_AS_ROOT = "sudo reads the state folder, for which none needs to run"
_SECONDS = 125.0  # for an answer; the daemon takes at most 119
_MOST_BYTES = 1 << 30  # of an answer
_MOST_OF_REASON = 200  # characters, why a call was refused
_RECORD_SECONDS, _PAUSE = 2.5, 0.1  # to wait for a record at most, and between two queries
# X509_verify_cert_error_string(3)
_EXPIRED = 10
_OTHER_NAME = (62, 64)  # a host name, an address
# Raised where an answer is read that has another form.
_MISSHAPEN = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError,
              ParseError)  # fmt: skip


class MethodAnswer(NamedTuple):
    """The answer to a call.

    Attributes:
        results: how plugins' calls ended, if they ran in this process: XML-RPC carries no output of
            theirs.
        record: returns the record of the decision; None if there is none, or it cannot be read.
    """

    answer: Any
    results: tuple[CallResult, ...] = ()
    record: Callable[[], Optional[Record]] = lambda: None


MethodCaller = Callable[..., MethodAnswer]  # calls a method: answer form, name, parameters


class Daemon:
    """A running daemon: calls its methods, and looks up what it has recorded.

    Attributes:
        url: of the daemon.
        latest_call: the name of the method and its answer; None before the first.

    Raises (when called):
        BadUsage: a parameter that XML-RPC cannot carry.
        NoAnswer: nobody answers there, or nobody who can be trusted.
        CallRefused: the daemon answered with a fault.
        UnreadableDocument: with the fault that says so.
    """

    def __init__(
        self,
        url: str,
        certificate: Optional[Path],
        file: Optional[RecordReader] = None,
        instead: str = "",
        seconds: float = _SECONDS,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        """Prepare calls; nothing is asked yet.

        Args:
            url: of the daemon, without a path.
            certificate: PEM, to trust beside the system's authorities.
            file: the daemon's history; None: the daemon is asked for the records of decisions.
            instead: what works without a daemon, for the message if none answers.
            seconds: to wait for an answer.
            most_bytes: of one.

        Raises:
            BadUsage: the URL cannot be a daemon's.
            BadInput: the certificate cannot be read.
        """
        self.url, self._address = url, _address(url)
        self._recorded: RecordSource = file or self
        self._instead = instead
        self._seconds, self._most_bytes = seconds, most_bytes
        self.latest_call: Optional[tuple[str, object]] = None
        self._connect: Callable[..., http.client.HTTPConnection] = http.client.HTTPConnection
        if self._address.scheme == "https":
            context = _tls_context(certificate)
            self._connect = functools.partial(http.client.HTTPSConnection, context=context)

    def __call__(self, form: AnswerForm, name: str, *parameters: Any) -> MethodAnswer:
        """Call a method."""
        try:
            body = xmlrpc.client.dumps(parameters, name, allow_none=True)
        except OverflowError:
            raise BadUsage(f"{name}: XML-RPC takes integers of at most 32 bits") from None
        unsent = NOT_IN_XML.search(body)
        if unsent:
            raise BadUsage(f"{name}: cannot be sent with {unsent[0]!r}, which XML does not have")
        path = f"{self._address.path.rstrip('/')}/{form.value}"
        host, port = self._address.hostname, self._address.port
        with (
            _explained(self.url, self._instead),
            contextlib.closing(self._connect(host, port, timeout=self._seconds)) as connection,
        ):
            connection.request("POST", path, body.encode(), {"Content-Type": "text/xml"})
            with connection.getresponse() as response:  # it may hold the socket beyond its end
                if response.status != HTTPStatus.OK:
                    raise ProtocolError(self.url, response.status, _reason(response), {})
                text = response.read(self._most_bytes)  # what is cut off is no XML
                decision = response.getheader("X-Request-Id", "")  # its id (contract 8.4)
            (answer,), _ = xmlrpc.client.loads(text, use_builtin_types=True)
        self.latest_call = (name, answer)
        return MethodAnswer(answer, record=lambda: self._wait_for_record(decision))

    def decision(self, decision: str) -> Optional[Record]:
        """The record of that id; None if there is none."""
        return cast("Record", self(AnswerForm.DESIGN, "decision", decision).answer) or None

    def decisions(self, query: Query) -> list[Record]:
        """The records that fit, the newest first; the daemon is asked for one outcome at most."""
        conditions = {name: value for name, value in vars(query).items() if value not in (None, ())}
        if query.outcomes:
            (conditions["outcome"],) = conditions.pop("outcomes")
        for name in {"since", "until"} & conditions.keys():
            conditions[name] = written(conditions[name])
        records: Any = self(AnswerForm.DESIGN, "decisions", conditions).answer
        if not isinstance(records, list) or {type(each["id"]) for each in records} - {str}:
            raise TypeError("no list of decisions")
        return records

    def _wait_for_record(self, decision: str) -> Optional[Record]:
        """Wait for the record of a decision that was just made.

        Returns:
            None if it cannot be read, or is not there in time; mostly it is within a second.
        """
        until = time.monotonic() + _RECORD_SECONDS
        record = None
        with contextlib.suppress(CallRefused, NoAnswer, HistoryUnreadable):
            while record is None and time.monotonic() < until:
                time.sleep(_PAUSE)
                record = self._recorded.decision(decision)
        return record


RecordSource = Union[RecordReader, Daemon]  # where decisions are looked up


@contextlib.contextmanager
def of_options(options: argparse.Namespace) -> Iterator[Daemon]:
    """Call the daemon of ``--url``, ``--ca`` and the settings.

    Raises:
        NoAnswer: at the end: an answer had another form than a daemon's.
    """
    settings = arguments.settings(options)
    scheme = "https" if settings.ssl else "http"
    host = listening.known_as(url_host(settings.listening_address))
    url = f"{scheme}://{host}:{settings.listening_port}" if options.url is None else options.url
    certificate = certificate_report.server_files(settings, arguments.state()).certificate
    instead = "--local needs none" if hasattr(options, "local") else _AS_ROOT
    history_reader = _file(options) if settings.history else None
    daemon = Daemon(url, options.ca or certificate, history_reader, instead)
    try:
        yield daemon
    except _MISSHAPEN as error:
        if daemon.latest_call is None:
            raise
        name, answer = daemon.latest_call
        raise NoAnswer(
            f"{daemon.url}: answers {name} with {reprlib.repr(answer):.60}, as no ovirt-scheduler "
            "of this version does; mend --url"
        ) from error


def history(options: argparse.Namespace) -> AbstractContextManager[RecordSource]:
    """Read the history: in the state folder if that can be read, unless a daemon is named.

    Raises:
        NoAnswer: as for ``of_options``.
    """
    file = _file(options)
    return of_options(options) if file is None else contextlib.nullcontext(file)


def _file(options: argparse.Namespace) -> Optional[RecordReader]:
    """The history in the state folder, if this user may read it, and no other daemon is named."""
    file = arguments.state() / store.FILE
    return RecordReader(file) if options.url is None and os.access(file, os.R_OK) else None


@contextlib.contextmanager
def local(settings: Settings) -> Iterator[MethodCaller]:
    """Call the plugins of the settings in this process; no state is kept.

    Raises:
        ExecutorUnavailable: no process can be started to run plugins in.
        RequestError: when called: the daemon would answer with a fault.
    """
    with runtime.started(settings) as running:
        running.registry.refresh()
        yield of_services(running.services)


def of_services(services: Services) -> MethodCaller:
    """The methods of services in this process, as ``MethodCaller``."""
    offered = {(form, each.name): each for each in services.methods() for form in each.forms}

    def call(form: AnswerForm, name: str, *parameters: object) -> MethodAnswer:
        answer = offered[form, name].run(Caller("local", form, "here"), parameters)
        if not isinstance(answer, Reply):
            return MethodAnswer(answer)
        if answer.decision is None:
            return MethodAnswer(answer.make_answer())
        decision = answer.decision
        record = functools.partial(conversion.make_record, decision)
        return MethodAnswer(answer.make_answer(), decision.execution.results, record)

    return call


@contextlib.contextmanager
def _explained(url: str, instead: str) -> Iterator[None]:
    """Turn each failure of a call into a message that says what to do."""
    try:
        yield
    except Fault as fault:
        if fault.faultCode == UnreadableDocument.fault_code:
            raise UnreadableDocument(fault.faultString) from None
        raise CallRefused(f"{fault.faultString} (fault {fault.faultCode})") from None
    except ssl.SSLCertVerificationError as error:
        mend = _TRUST_IT
        if error.verify_code in _OTHER_NAME:
            mend = "name one of its names in --url"
        elif error.verify_code == _EXPIRED:
            mend = "ovirt-scheduler cert renew on its machine makes the next one"
        raise NoAnswer(
            f"{url}: its certificate is not trusted: {error.verify_message}; {mend} "
            "(ovirt-scheduler cert show shows its path and its names)"
        ) from None
    except ssl.SSLError as error:
        raise NoAnswer(
            f"{url}: {error.reason or error}; it may speak no TLS (ssl = false): --url http://"
        ) from None
    except ProtocolError as error:
        raise NoAnswer(f"{url}: HTTP {error.errcode} {error.errmsg}") from None
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(
            f"{url}: {error!s:.200}; is the daemon running (systemctl status ovirt-scheduler; "
            "without systemd, ovirt-scheduler serve starts one)? "
            f"--url names another one{', ' if instead else ''}{instead}"
        ) from None
    except (ExpatError, xmlrpc.client.Error, ValueError, TypeError, LookupError):
        raise NoAnswer(f"{url}: what answers there is no ovirt-scheduler; mend --url") from None


def _reason(response: http.client.HTTPResponse) -> str:
    """Why a call was refused: HTTP's words, and what the daemon says in a line of plain text."""
    if response.headers.get_content_type() != "text/plain":
        return response.reason
    body = response.read(_MOST_OF_REASON).decode("utf-8", "replace")
    return one_line(f"{response.reason}: {body}", _MOST_OF_REASON)


def _address(url: str) -> SplitResult:
    """The parts of a daemon's URL.

    Raises:
        BadUsage: it cannot be one.
    """
    if "@" in url:  # it may have a password, which is not shown
        raise BadUsage("--url: leave out user and password; the daemon asks for none")
    try:
        parts = urlsplit(url)
        if parts.scheme in ("https", "http") and (parts.hostname or "").encode("idna"):
            _ = parts.port  # fails if it is no number
            return parts
        problem = "begin it with https:// (or http:// where ssl = false), then the host"
    except ValueError as error:  # UnicodeError is one, too
        problem = str(error)
    raise BadUsage(f"--url {url}: {problem}")


def _tls_context(certificate: Optional[Path]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if certificate is not None:
        try:
            # Comments may be in any alphabet.
            text = read_whole(certificate, certificates.MOST_BYTES).decode("ascii", "ignore")
            context.load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError):
            raise BadInput(f"{certificate}: holds no PEM certificate; name one with --ca") from None
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            hint = "the daemon makes it when it first starts: is it running? " if missing else ""
            raise BadInput(
                f"{certificate}: cannot be read: {error.strerror}; {hint}sudo ovirt-scheduler cert "
                "export prints that of systemd's daemon; --ca names a copy"
            ) from None
    return context
