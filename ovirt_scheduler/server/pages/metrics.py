"""Metrics for Prometheus, made when they are asked for, by prometheus_client (contract 9).

Names and units follow Prometheus' conventions, and kube-scheduler's where it has the same. No
label holds a host, a VM or a message: those of units are as many as units are loaded.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Callable, Union

from ovirt_scheduler.history.tally import BUCKETS, Histogram, Tally
from ovirt_scheduler.model.daemon_state import DaemonState

PREFIX = "ovirt_scheduler_"


def _family(
    kind: str, name: str, text: str, values: Union[float, Mapping[Any, Any]], *labels: str
) -> Any:
    """A family of metrics.

    Args:
        values: the one number; or, where there are labels, the number, or histogram, of each value
            of the label, or of each tuple of values.
    """
    core = importlib.import_module("prometheus_client.core")
    family = getattr(core, f"{kind}MetricFamily")(f"{PREFIX}{name}", text, labels=labels)
    for key, value in sorted(values.items() if isinstance(values, Mapping) else [((), values)]):
        labelled = [key] if isinstance(key, str) else key
        if isinstance(value, Histogram):
            family.add_metric(labelled, buckets=_buckets(value), sum_value=value.sum)
        else:
            family.add_metric(labelled, value)
    return family


_counter, _gauge = partial(_family, "Counter"), partial(_family, "Gauge")
_histogram = partial(_family, "Histogram")


def _buckets(histogram: Histogram) -> list[tuple[Any, ...]]:
    """The end of each bucket, the calls up to there, and one of them as an example."""
    exemplar_type = importlib.import_module("prometheus_client.core").Exemplar
    ends = [*(repr(end) for end in BUCKETS), "+Inf"]
    counts = itertools.accumulate(histogram.counts)
    examples = [
        seen and exemplar_type({"decision": seen.decision}, seen.seconds, seen.time)
        for seen in histogram.exemplars
    ]
    return list(zip(ends, counts, examples))


class Metrics:
    """The exporter.

    Args:
        state: how the daemon is now.
        tally: what the decisions came to.
    """

    def __init__(self, state: Callable[[], DaemonState], tally: Tally) -> None:
        self._state, self._tally = state, tally

    def write(self, accept: str) -> tuple[str, bytes]:
        """The content type and the text, in the form that the scraper prefers.

        Args:
            accept: its ``Accept`` header.

        Raises:
            ImportError: prometheus_client is not installed.
        """
        client = importlib.import_module("prometheus_client")
        encode, content_type = client.exposition.choose_encoder(accept)
        return content_type, encode(self)

    def collect(self) -> Iterator[Any]:
        """All families of metrics, from the counts of this moment; an encoder asks for them."""
        state = self._state()
        yield from self._units(state)
        yield from self._requests()
        yield from _processes(state)
        yield from _surroundings(state)

    def _units(self, state: DaemonState) -> Iterator[Any]:
        tallies = self._tally.units()
        yield _counter(
            "unit_calls", "Calls of policy units and drivers.",
            {(tally.name, tally.kind, *ended): count
             for tally in tallies for ended, count in tally.outcomes.items()},
            "unit", "kind", "outcome", "mode",
        )  # fmt: skip
        yield _histogram(
            "unit_call_duration_seconds", "Time of a call of a unit or driver.",
            {(tally.name, tally.kind): tally.times for tally in tallies}, "unit", "kind",
        )  # fmt: skip
        yield _counter(
            "hosts_removed", "Hosts that a filter removed.",
            {(tally.name, mode): count for tally in tallies if tally.kind == "filter"
             for mode, count in tally.hosts_removed.items()},
            "unit", "mode",
        )  # fmt: skip
        yield _counter(
            "decisive",
            "Decisions that would have gone to another host without the unit, or with a shadow.",
            {(tally.name, mode): count for tally in tallies if tally.kind == "cost function"
             for mode, count in tally.decisive.items()},
            "unit", "mode",
        )  # fmt: skip
        yield _gauge(
            "unit_failing", "1: the last call of the unit failed.",
            {(unit.name, unit.kind):
             self._tally.unit(unit.name, unit.kind).failing_since is not None
             for unit in state.units},
            "unit", "kind",
        )  # fmt: skip
        yield _gauge(
            "unit_old_version", "1: an older version answers, as the file does not load.",
            {(unit.name, unit.kind): unit.old_since is not None for unit in state.units},
            "unit", "kind",
        )  # fmt: skip
        yield _gauge("plugin_files_failing", "Files of plugins that give no unit.",
                     len(state.faults))  # fmt: skip

    def _requests(self) -> Iterator[Any]:
        yield _counter("requests", "Requests that were decided.", dict(self._tally.requests),
                       "method", "form", "outcome")  # fmt: skip
        yield _histogram("request_duration_seconds", "Time of a request.",
                         dict(self._tally.request_times), "method")  # fmt: skip
        yield _counter("requests_no_host_left", "Requests in which filters removed each host.",
                       dict(self._tally.no_host_left), "method")  # fmt: skip


def _processes(state: DaemonState) -> Iterator[Any]:
    processes = state.processes
    yield _counter("processes_replaced", "Processes of plugins that were replaced.",
                   processes.replaced, "reason")  # fmt: skip
    yield _counter("processes_started", "Processes started below the zygote.", processes.started)
    yield _counter("zygotes_started", "Zygotes started.", processes.zygotes_started)
    yield _gauge("processes_kept", "Processes of plugins that are kept.", processes.kept)
    yield _gauge("calls_running", "Places for calls that are taken.", processes.running)
    yield _gauge("calls_places", "Places for calls.", processes.places)
    yield _gauge("requests_waiting", "Requests that wait for a place.", processes.waiting)
    yield _counter("requests_refused", "Requests refused at the limit.", processes.refused)


def _surroundings(state: DaemonState) -> Iterator[Any]:
    yield _gauge("start_time_seconds", "When the daemon started, since 1970.", state.started)
    yield _gauge("up", "0: calls of plugins do not work.", not state.stuck)
    if state.certificate_ends is not None:
        yield _gauge("certificate_expiry_timestamp_seconds",
                     "When the certificate ends, since 1970.",
                     state.certificate_ends)  # fmt: skip
    if state.engine is not None:
        yield _counter("engine_answers", "Answers of the engine's REST API.",
                       state.engine.answers, "outcome")  # fmt: skip
        yield _gauge("engine_reachable", "0: it did not answer, or cannot be asked.",
                     not state.engine.problem)  # fmt: skip
    if state.history is not None:
        history = state.history
        yield _gauge("history_decisions", "Decisions that the history holds.", history.decisions)
        yield _gauge("history_size_bytes", "Size of the history.", history.bytes)
        yield _gauge("history_queue", "Records that wait to be written.", history.waiting)
        yield _counter("history_dropped", "Records that were not written.", history.dropped)
    clusters = state.clusters
    yield _gauge(
        "cluster_last_look_timestamp_seconds", "When a cluster was looked at, since 1970.",
        {each.name: each.last_look for each in clusters if each.last_look is not None}, "cluster",
    )  # fmt: skip
    yield _gauge(
        "cluster_imbalance_percent", "How unequally a cluster's hosts are used.",
        {each.name: each.imbalance for each in clusters if each.imbalance is not None}, "cluster",
    )  # fmt: skip
