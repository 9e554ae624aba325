"""Metrics for Prometheus, made when they are asked for, by prometheus_client.

Names and units follow Prometheus' conventions, and kube-scheduler's for equal metrics. No label
holds a host, a VM or a message; there are as many labels of units as loaded units.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Union

from prometheus_client import core, exposition

from ovirt_scheduler.history.tally import BUCKETS, SELECTING, Histogram, Tally
from ovirt_scheduler.model.plans import WAITING, ClusterLook, Obstacle
from ovirt_scheduler.server.pages.daemon_state import DaemonState


def _family(
    kind: Any, name: str, text: str, values: Union[float, Mapping[Any, Any]], *labels: str
) -> Any:
    """A family of metrics.

    Args:
        values: the one number; or, where there are labels, the number, or histogram, of each value
            of the label, or of each tuple of values.
    """
    family = kind(f"ovirt_scheduler_{name}", text, labels=labels)
    for key, value in sorted(values.items() if isinstance(values, Mapping) else [((), values)]):
        labelled = [key] if isinstance(key, str) else key
        if isinstance(value, Histogram):
            family.add_metric(labelled, buckets=_buckets(value), sum_value=value.sum)
        else:
            family.add_metric(labelled, value)
    return family


_counter = partial(_family, core.CounterMetricFamily)
_gauge = partial(_family, core.GaugeMetricFamily)
_histogram = partial(_family, core.HistogramMetricFamily)


def _buckets(histogram: Histogram) -> list[tuple[Any, ...]]:
    """The end of each bucket, the calls up to there, and one of them as an example."""
    ends = [*(repr(end) for end in BUCKETS), "+Inf"]
    counts = itertools.accumulate(histogram.counts)
    examples = [
        call and core.Exemplar({"decision": call.decision}, call.seconds, call.time)
        for call in histogram.exemplars
    ]
    return list(zip(ends, counts, examples))


def write(state: DaemonState, tally: Tally, accept: str) -> tuple[str, bytes]:
    """The content type and the text, in the form that the scraper prefers.

    Args:
        state: of the daemon now.
        tally: of the decisions.
        accept: the scraper's ``Accept`` header.
    """
    encode, content_type = exposition.choose_encoder(accept)
    families = [*_calls(state, tally), *_daemon(state), *_clusters(state.clusters)]
    return content_type, encode(SimpleNamespace(collect=lambda: families))


def _calls(state: DaemonState, tally: Tally) -> Iterator[Any]:
    called = {(each.name, each.kind): each for each in tally.units()}
    loaded = {(each.name, each.kind): each for each in state.units}
    yield _counter(
        "unit_calls", "Calls of policy units and drivers.",
        {(*unit, *ended): count
         for unit, calls in called.items() for ended, count in calls.outcomes.items()},
        "unit", "kind", "outcome", "mode",
    )  # fmt: skip
    yield _histogram("unit_call_duration_seconds", "Time of a call of a unit or driver.",
                     {unit: each.times for unit, each in called.items()},
                     "unit", "kind")  # fmt: skip
    yield _counter(
        "hosts_removed", "Hosts that a filter removed.",
        {(name, mode): count for (name, kind), calls in called.items() if kind == "filter"
         for mode, count in calls.hosts_removed.items()},
        "unit", "mode",
    )  # fmt: skip
    yield _counter(
        "decisive",
        "Decisions that would have gone to another host without the unit, or with a shadow.",
        {(name, mode): count for (name, kind), calls in called.items() if kind == "cost function"
         for mode, count in calls.decisive.items()},
        "unit", "mode",
    )  # fmt: skip
    yield _gauge("unit_failing", "1: the last call of the unit failed.",
                 {unit: unit in called and called[unit].fails(version.checksum)
                  for unit, version in loaded.items()}, "unit", "kind")  # fmt: skip
    yield _gauge("unit_corrected", "1: the last answer of the unit had to be put right.",
                 {unit: unit in called and called[unit].is_corrected(version.checksum)
                  for unit, version in loaded.items()}, "unit", "kind")  # fmt: skip
    yield _gauge("unit_old_version", "1: an older version answers, as the file does not load.",
                 {unit: version.old_since is not None for unit, version in loaded.items()},
                 "unit", "kind")  # fmt: skip
    yield _gauge("plugin_files_failing", "Files of plugins that give no unit.",
                 len(state.unloaded))  # fmt: skip
    yield _gauge("units_missing",
                 "Units, schedulers and topics that callers named in vain within the last hour.",
                 len(state.missing))  # fmt: skip
    yield _counter("requests", "Requests that were decided.", dict(tally.requests),
                   "method", "form", "outcome")  # fmt: skip
    yield _histogram("request_duration_seconds", "Time of a request.",
                     dict(tally.request_times), "method")  # fmt: skip
    yield _counter("requests_no_host_left", "Requests in which filters removed each host.",
                   # Without a series before the first event that would be no increase: no alert.
                   {**dict.fromkeys(SELECTING, 0), **tally.no_host_left}, "method")  # fmt: skip
    yield _gauge("vms_without_host", "VMs that no host was left for within the last hour.",
                 len(tally.homeless(time.time())))  # fmt: skip


def _daemon(state: DaemonState) -> Iterator[Any]:
    processes = state.processes
    yield _counter("processes_replaced", "Processes of plugins, and readers, that were replaced.",
                   processes.replaced, "reason")  # fmt: skip
    yield _counter("processes_started", "Processes started below the zygote.", processes.started)
    yield _counter("zygotes_started", "Zygotes started.", processes.zygotes_started)
    yield _gauge("processes_kept", "Processes of plugins that are kept.", processes.of_plugins)
    yield _gauge("calls_running", "Places for calls that are taken.", processes.running)
    yield _gauge("calls_places", "Places for calls.", processes.slots)
    yield _gauge("requests_waiting", "Requests that wait for a place.", processes.waiting)
    yield _counter("requests_refused", "Requests refused at the limit.", processes.refused)
    yield _gauge("start_time_seconds", "When the daemon started, since 1970.", state.started)
    yield _gauge("reload_failed", "1: the last reload failed.", state.reload_failure is not None)
    yield _counter("thread_failures", "Failures of a thread of the daemon, which goes on.",
                   {each.work: each.failures for each in state.threads}, "work")  # fmt: skip
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
    if state.followed is not None:
        yield _counter("engine_followed",
                       "VMs that started or moved after a decision: to its best host or not.",
                       state.followed, "followed")  # fmt: skip
    if state.history is not None:
        history = state.history
        yield _gauge("history_decisions", "Decisions that the history holds.", history.decisions)
        yield _gauge("history_size_bytes", "Size of the history.", history.bytes)
        yield _gauge("history_queue", "Records that wait to be written.", history.waiting)
        yield _counter("history_dropped", "Records that were not written.", history.dropped)


def _clusters(clusters: Sequence[ClusterLook]) -> Iterator[Any]:
    yield _gauge(
        "cluster_last_look_timestamp_seconds", "When a cluster was looked at, since 1970.",
        {each.name: each.last_look for each in clusters if each.last_look is not None}, "cluster",
    )  # fmt: skip
    yield _gauge(
        "cluster_imbalance_percent", "How unequally a cluster's hosts are used.",
        {each.name: each.imbalance for each in clusters if each.imbalance is not None}, "cluster",
    )  # fmt: skip
    yield _gauge(
        "cluster_refused_vms", "VMs of a cluster that are not migrated for a while, and why.",
        {(look.name, obstacle.value): len({refusal.vm for refusal in look.refusals
                                           if refusal.obstacle is obstacle})
         for look in clusters for obstacle in Obstacle},
        "cluster", "reason",
    )  # fmt: skip
    yield _gauge(
        "cluster_broken_rules", "Affinity rules of a cluster that are broken.",
        {(cluster.name, kind): sum(hard is is_hard for _, hard in cluster.broken)
         for cluster in clusters for kind, is_hard in (("hard", True), ("soft", False))},
        "cluster", "kind",
    )  # fmt: skip
    yield _gauge(
        "cluster_plans_waiting", "Plans of a cluster that wait for approval.",
        {look.name: sum(plan.state == WAITING for plan in look.plans) for look in clusters},
        "cluster",
    )  # fmt: skip
    yield _gauge(
        "cluster_vms_without_place",
        "VMs of a cluster that would have no place if the worst of its hosts failed.",
        {look.name: len(look.worst_loss.loss.homeless) for look in clusters if look.worst_loss},
        "cluster",
    )  # fmt: skip
    yield _gauge(
        "cluster_may_migrate", "0: the engine's user may not migrate VMs of the cluster.",
        {each.name: not each.denial for each in clusters}, "cluster",
    )  # fmt: skip
