"""Metrics for Prometheus, made when they are asked for, by prometheus_client (contract 9).

Names and units follow Prometheus' conventions, and kube-scheduler's where it has the same. No
label holds a host, a VM or a message: those of units are as many as units are loaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Callable

from ovirt_scheduler.history.tally import BUCKETS, Histogram, Tally
from ovirt_scheduler.model.daemon_state import DaemonState

PREFIX = "ovirt_scheduler_"


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
        core = importlib.import_module("prometheus_client.core")
        exposition = importlib.import_module("prometheus_client.exposition")
        registry = client.CollectorRegistry()
        registry.register(_Collector(core, self._state(), self._tally))
        encode, content_type = exposition.choose_encoder(accept)
        return content_type, encode(registry)


class _Collector:
    """What prometheus_client collects from: families of metrics, from the counts of this moment."""

    def __init__(self, core: Any, state: DaemonState, tally: Tally) -> None:
        self._core, self._daemon, self._tally = core, state, tally

    def collect(self) -> Iterator[Any]:
        """All families."""
        yield from self._units()
        yield from self._requests()
        yield from self._processes()
        yield from self._surroundings()

    def _units(self) -> Iterator[Any]:
        calls = self._counter("unit_calls", "Calls of policy units and drivers.",
                              "unit", "kind", "outcome", "mode")  # fmt: skip
        times = self._histogram("unit_call_duration_seconds", "Time of a call of a unit or driver.",
                                "unit", "kind")  # fmt: skip
        removed = self._counter("hosts_removed", "Hosts that a filter removed.", "unit",
                                "mode")  # fmt: skip
        decisive = self._counter(
            "decisive",
            "Decisions that would have gone to another host without the unit, or with a shadow.",
            "unit", "mode",
        )  # fmt: skip
        for tally in self._tally.units():
            for (outcome, mode), count in sorted(tally.outcomes.items()):
                calls.add_metric([tally.name, tally.kind, outcome, mode], count)
            _add(times, [tally.name, tally.kind], tally.times)
            if tally.kind == "filter":
                for mode, count in sorted(tally.hosts_removed.items()):
                    removed.add_metric([tally.name, mode], count)
            if tally.kind == "cost function":
                for mode, count in sorted(tally.decisive.items()):
                    decisive.add_metric([tally.name, mode], count)
        failing = self._gauge(
            "unit_failing", "1: the last call of the unit failed.", "unit", "kind"
        )
        old = self._gauge(
            "unit_old_version", "1: an older version answers, as the file does not load.",
            "unit", "kind",
        )  # fmt: skip
        for unit in self._daemon.units:
            since = self._tally.unit(unit.name, unit.kind).failing_since
            failing.add_metric([unit.name, unit.kind], int(since is not None))
            old.add_metric([unit.name, unit.kind], int(unit.old_since is not None))
        yield from (calls, times, removed, decisive, failing, old)
        yield self._single("plugin_files_failing", "Files of plugins that give no unit.",
                           len(self._daemon.faults))  # fmt: skip

    def _requests(self) -> Iterator[Any]:
        requests = self._counter("requests", "Requests that were decided.",
                                 "method", "form", "outcome")  # fmt: skip
        for labels, count in sorted(self._tally.requests().items()):
            requests.add_metric(list(labels), count)
        times = self._histogram("request_duration_seconds", "Time of a request.", "method")
        for method, histogram in sorted(self._tally.request_times().items()):
            _add(times, [method], histogram)
        none_left = self._counter(
            "requests_no_host_left", "Requests in which filters removed each host.", "method"
        )
        for method, count in sorted(self._tally.no_host_left().items()):
            none_left.add_metric([method], count)
        yield from (requests, times, none_left)

    def _processes(self) -> Iterator[Any]:
        processes = self._daemon.processes
        replaced = self._counter("processes_replaced", "Processes of plugins that were replaced.",
                                 "reason")  # fmt: skip
        for reason, count in sorted(processes.replaced.items()):
            replaced.add_metric([reason], count)
        yield replaced
        yield self._total("processes_started", "Processes started below the zygote.",
                          processes.started)  # fmt: skip
        yield self._total("zygotes_started", "Zygotes started.", processes.zygotes_started)
        yield self._single("processes_kept", "Processes of plugins that are kept.", processes.kept)
        yield self._single("calls_running", "Places for calls that are taken.", processes.running)
        yield self._single("calls_places", "Places for calls.", processes.places)
        yield self._single("requests_waiting", "Requests that wait for a place.", processes.waiting)
        yield self._total("requests_refused", "Requests refused at the limit.", processes.refused)

    def _surroundings(self) -> Iterator[Any]:
        state = self._daemon
        yield self._single("start_time_seconds", "When the daemon started, since 1970.",
                           state.started)  # fmt: skip
        yield self._single("up", "0: calls of plugins do not work.", int(not state.stuck))
        if state.certificate_ends is not None:
            yield self._single("certificate_expiry_timestamp_seconds",
                               "When the certificate ends, since 1970.",
                               state.certificate_ends)  # fmt: skip
        if state.engine is not None:
            answers = self._counter(
                "engine_answers", "Answers of the engine's REST API.", "outcome"
            )
            for outcome, count in sorted(state.engine.answers.items()):
                answers.add_metric([outcome], count)
            yield answers
            yield self._single("engine_reachable", "0: it did not answer, or cannot be asked.",
                               int(not state.engine.problem))  # fmt: skip
        if state.history is not None:
            history = state.history
            yield self._single("history_decisions", "Decisions that the history holds.",
                               history.decisions)  # fmt: skip
            yield self._single("history_size_bytes", "Size of the history.", history.bytes)
            yield self._single("history_queue", "Records that wait to be written.", history.waiting)
            yield self._total("history_dropped", "Records that were not written.", history.dropped)
        looks = self._gauge("cluster_last_look_timestamp_seconds",
                            "When a cluster was looked at, since 1970.", "cluster")  # fmt: skip
        imbalance = self._gauge("cluster_imbalance_percent",
                                "How unequally a cluster's hosts are used.",
                                "cluster")  # fmt: skip
        for cluster in state.clusters:
            if cluster.last_look is not None:
                looks.add_metric([cluster.name], cluster.last_look)
            if cluster.imbalance is not None:
                imbalance.add_metric([cluster.name], cluster.imbalance)
        yield looks
        yield imbalance

    def _counter(self, name: str, text: str, *labels: str) -> Any:
        return self._core.CounterMetricFamily(f"{PREFIX}{name}", text, labels=labels)

    def _gauge(self, name: str, text: str, *labels: str) -> Any:
        return self._core.GaugeMetricFamily(f"{PREFIX}{name}", text, labels=labels)

    def _histogram(self, name: str, text: str, *labels: str) -> Any:
        return self._core.HistogramMetricFamily(f"{PREFIX}{name}", text, labels=labels)

    def _single(self, name: str, text: str, value: float) -> Any:
        return self._core.GaugeMetricFamily(f"{PREFIX}{name}", text, value=value)

    def _total(self, name: str, text: str, value: float) -> Any:
        return self._core.CounterMetricFamily(f"{PREFIX}{name}", text, value=value)


def _add(family: Any, labels: list[str], histogram: Histogram) -> None:
    exemplar_type = importlib.import_module("prometheus_client.samples").Exemplar
    buckets: list[tuple[Any, ...]] = []
    count = 0
    ends = [*(repr(end) for end in BUCKETS), "+Inf"]
    for end, number, seen in zip(ends, histogram.counts, histogram.exemplars):
        count += number
        exemplar = None
        if seen is not None:
            label: Mapping[str, str] = {"decision": seen.decision}
            exemplar = exemplar_type(label, seen.seconds, seen.time)
        buckets.append((end, count, exemplar))
    family.add_metric(labels, buckets=buckets, sum_value=histogram.sum)
