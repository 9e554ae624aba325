"""Answers a GET: which page is asked for, who may read it, and what it says."""

from __future__ import annotations

import functools
import importlib
import json
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Callable
from urllib.parse import parse_qsl, unquote, urlencode

from ovirt_scheduler import __version__
from ovirt_scheduler.errors import BadParameters, HistoryUnreadable, Overloaded
from ovirt_scheduler.history import placement_explanation, query
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record import Record
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.tally import Tally
from ovirt_scheduler.log.format import printable
from ovirt_scheduler.model.requests import Pages
from ovirt_scheduler.server.http.routes import FRONT, Response, Route, first_part
from ovirt_scheduler.server.pages import status, times, views
from ovirt_scheduler.server.pages.access import is_ours, may_read
from ovirt_scheduler.server.pages.daemon_state import DaemonState
from ovirt_scheduler.server.pages.problems import path_of

_REFRESH = 10  # seconds
_ROWS = 50  # of a list of decisions
_LAST, _FAILURES = 10, 100  # decisions on other pages, and those in which a unit failed
_RETRY_AFTER = "2"  # seconds
_METRICS = "ovirt_scheduler.server.pages.metrics"  # needs prometheus_client, which may be missing
_FOLDER = Path(__file__).resolve().parent / "templates"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_ROUTES = ("health", "metrics", "status", "decisions", "units", "clusters", "style")


@dataclass(frozen=True)
class Site:
    """All pages. Safe to use from many threads.

    Attributes:
        pages: who may read what.
        names: host names and addresses by which the daemon is known: those of the listener and of
            its certificate.
        state: how the daemon is now.
        stuck: why it takes no calls now; empty if it does.
        tally: what the decisions since the start came to.
        reader: of the history.
    """

    pages: Pages
    names: Collection[str]
    state: Callable[[], DaemonState]
    stuck: Callable[[], str]
    tally: Tally
    reader: RecordReader

    def routes(self) -> Mapping[str, Route]:
        """The routes of all pages."""
        return dict.fromkeys((*_ROUTES, FRONT), self.answer)

    def answer(
        self, path: str, query: str, headers: Mapping[str, str], peer: str, local: str
    ) -> Response:
        """The answer to a GET, or a HEAD.

        Args:
            path, query: of the request's target.
            headers: of the request, their names in lower case.
            peer: the client's address.
            local: the daemon's, as the client reached it.
        """
        if path != "/health" and not may_read(self.pages, peer, path != "/metrics"):
            is_page = path == FRONT or first_part(path) in _ROUTES
            text = "this page is not served here: see pages in scheduler.conf"
            return _text(403, text) if is_page else _NOT_HERE
        names = {*self.names, local.removeprefix("::ffff:")}  # of IPv4 on a socket of IPv6
        if not is_ours(headers.get("host", ""), names):
            return _text(421, "this daemon is not known by that name; see the Host header")
        try:
            return self._page(path, dict(parse_qsl(query)), headers.get("accept", ""))
        except BadParameters as error:
            return _text(400, str(error))
        except (HistoryUnreadable, Overloaded) as error:
            return _text(503, str(error))
        except ImportError as error:
            return _text(503, f"this page needs {error.name}, which is not installed")

    def _page(self, path: str, parameters: Mapping[str, str], accept: str) -> Response:
        if path in ("/health", "/health.json"):
            return self._health(path != "/health" or "application/json" in accept)
        if path == "/metrics":
            metrics = importlib.import_module(_METRICS)
            kind, body = metrics.write(self.state(), self.tally, accept)
            return Response(200, body, {"Content-Type": kind})
        if path == "/style.css":
            return _answer(200, "text/css", (_FOLDER / "style.css").read_text("utf-8"))
        as_json = path.endswith(".json")
        first, *rest = path.removesuffix(".json").lstrip("/").split("/")
        single = {"decisions": self._decision, "units": self._unit, "clusters": self._cluster}
        lists = {"": lambda *_: _TO_STATUS, "status": self._status, "decisions": self._decisions}
        if rest and first in single:
            return single[first](unquote("/".join(rest)), as_json)
        if not rest and first in lists:
            return lists[first](parameters, as_json)
        return self._missing(as_json)

    def _missing(self, as_json: bool) -> Response:
        """What is answered where there is no such page: for a person, with a way back."""
        return _NOT_HERE if as_json else self._html("missing.html", HTTPStatus.NOT_FOUND)

    def _health(self, as_json: bool) -> Response:
        stuck = self.stuck()
        code = 503 if stuck else 200
        if as_json:
            return _json({"ok": not stuck, **({"problem": stuck} if stuck else {})}, code)
        return _text(code, stuck or "ok")

    def _status(self, parameters: Mapping[str, str], as_json: bool) -> Response:
        report = status.status(self.state(), self.tally)
        if as_json:
            return _json(report)
        refresh = 0 if parameters.get("refresh") == "off" else _REFRESH
        page = self._html(
            "status.html", refresh=refresh, decisions=self._last(),
            status=report, facts=status.facts(report),
        )  # fmt: skip
        return page._replace(headers={**page.headers, "Refresh": str(refresh)}) if refresh else page

    def _last(self, **conditions: Any) -> list[views.PageValues]:
        return views.summaries(self._brief(_LAST, **conditions))

    def _brief(self, limit: int, **conditions: Any) -> list[Record]:
        try:
            with self.reader.turns.next_turn() as turn:
                return self.reader.decisions(Query(limit=limit, brief=True, **conditions), turn)
        except (HistoryUnreadable, Overloaded):
            return []  # its own page says why

    def _decisions(self, parameters: Mapping[str, str], as_json: bool) -> Response:
        filled = {name: _typed(name, value) for name, value in parameters.items() if value}
        if as_json:
            conditions = query.read({"limit": _ROWS, **filled})
            with self.reader.turns.next_turn() as turn:
                records = self.reader.decisions(conditions, turn)
                body = ",\n".join(views.as_json(record, turn.check) for record in records)
            return _answer(200, "application/json", f"[{body}]\n")
        problem, code, older, records = "", 200, "", []
        try:
            conditions = query.read({"limit": _ROWS, **filled, "brief": True})
            with self.reader.turns.next_turn() as turn:
                records = self.reader.decisions(conditions, turn)
        except (BadParameters, HistoryUnreadable, Overloaded) as error:
            problem, code = str(error), 400 if isinstance(error, BadParameters) else 503
        if records and len(records) == filled.get("limit", _ROWS):
            older = f"/decisions?{urlencode({**parameters, 'before': records[-1]['id']})}"
        return self._html(
            "decisions.html", code, parameters=parameters, searched=bool(filled),
            outcomes=query.OUTCOMES, problem=problem, decisions=views.summaries(records),
            older=older,
        )  # fmt: skip

    def _decision(self, name: str, as_json: bool) -> Response:
        with self.reader.turns.next_turn() as turn:
            record = self.reader.decision(name, turn)
            if record is None:
                return self._missing(as_json)
            if as_json:
                return _answer(200, "application/json", f"{views.as_json(record, turn.check)}\n")
            calls = placement_explanation.around(record, partial(self.reader.decisions, turn=turn),
                                     partial(self.reader.decision, turn=turn))  # fmt: skip
            return self._html(
                "decision.html", decision=views.decision(record), calls=views.calls(calls)
            )

    def _unit(self, name: str, as_json: bool) -> Response:
        state = self.state()
        named = tuple(unit for unit in state.units if unit.name == name)
        if not named:
            return self._missing(as_json)
        report = status.status(state._replace(units=named), self.tally)
        units = [
            {**unit, "description": of.description, "properties": dict(of.properties)}
            for unit, of in zip(report["units"], named)
        ]
        failing = self._brief(_FAILURES, unit=name, outcomes=query.FAILURES)
        failures = views.failures(failing, name)
        if as_json:
            return _json({"units": units, "failures": failures})
        properties = dict.fromkeys(pair for of in named for pair in of.properties)
        return self._html(
            "unit.html", units=units, failures=failures, decisions=self._last(unit=name),
            properties=properties,
        )  # fmt: skip

    def _cluster(self, name: str, as_json: bool) -> Response:
        look = next((look for look in self.state().clusters if look.name == name), None)
        if look is None:
            return self._missing(as_json)
        cluster = status.cluster(look)
        if as_json:
            return _json(cluster)
        return self._html(
            "cluster.html", cluster=cluster, course=views.course(look.course),
            decisions=self._last(cluster=name),
        )  # fmt: skip

    @functools.cached_property
    def _templates(self) -> Any:
        templates = views.templates(_FOLDER)
        templates.filters.update(
            path_of=_path_of, clock=times.shown, seconds=times.shown_to_the_second,
            version=_version, pieces=views.pieces, milliseconds=times.milliseconds,
            cluster_state=status.cluster_state,
        )  # fmt: skip
        return templates

    def _html(self, template: str, code: int = 200, **values: object) -> Response:
        text = self._templates.get_template(template).render(
            here=template, now=time.strftime("%Y-%m-%d %H:%M:%S"), version=__version__, **values,
        )  # fmt: skip
        return _answer(code, "text/html; charset=utf-8", text)


def _path_of(name: object, kind: str) -> str:
    return path_of(kind, str(name))


def _typed(name: str, text: str) -> object:
    """A member of a query: a number or a boolean; any other text as it is."""
    if name == "brief" and text in ("true", "false"):
        return text == "true"
    return int(text) if name == "limit" and re.fullmatch("[0-9]{1,9}", text) else text


def _text(code: int, text: str) -> Response:
    return _answer(code, "text/plain; charset=utf-8", f"{printable(text)}\n")


def _json(value: object, code: int = 200) -> Response:
    return _answer(code, "application/json", f"{json.dumps(value)}\n")


def _answer(code: int, content_type: str, text: str) -> Response:
    headers = {"Content-Type": content_type, **_HEADERS}
    if code == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = _RETRY_AFTER
    return Response(code, text.encode("utf-8", "replace"), headers)


_TO_STATUS = Response(HTTPStatus.FOUND, b"", {**_HEADERS, "Location": "/status"})
_NOT_HERE = _text(404, "there is no such page; begin at /status")
_CLOSED = _text(404, "no page is served here: see pages in scheduler.conf")
CLOSED: Mapping[str, Route] = dict.fromkeys(_ROUTES, lambda *_: _CLOSED)  # with pages = off


def _version(checksum: str) -> str:
    """The part of a checksum that distinguishes versions."""
    return checksum.rpartition(":")[2][:12]
