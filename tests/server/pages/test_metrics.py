"""What Prometheus scrapes."""

from __future__ import annotations

import shutil

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from ovirt_scheduler.decisions.missing_names import MissingUnit
from ovirt_scheduler.server.pages.daemon_state import ReloadFailure
from tests.support.command import executed
from tests.support.site import DECISION, MadeSite, call, record, unit_state

OPENMETRICS = "application/openmetrics-text; version=1.0.0,text/plain;q=0.5"


@pytest.fixture
def site(full_site):
    """Of which each metric that there is has a value."""
    return full_site


def samples(site):
    """Each sample by its name and what follows of its labels."""
    text = site.text("/metrics")
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_metrics_say_what_happened(site):
    """Calls, failures, what they did to hosts, and how the daemon is."""
    told = samples(site)
    of = "ovirt_scheduler_"
    night, even = ("unit", "Night"), ("unit", "EvenVms")
    failed = (("kind", "filter"), ("mode", "live"), ("outcome", "raised"), night)
    assert told[(f"{of}unit_calls_total", *failed)] == 1
    assert told[(f"{of}unit_failing", ("kind", "filter"), night)] == 1
    assert told[(f"{of}unit_failing", ("kind", "cost function"), even)] == 0
    assert told[(f"{of}unit_old_version", ("kind", "cost function"), even)] == 1
    assert told[(f"{of}hosts_removed_total", ("mode", "live"), night)] == 1
    assert told[(f"{of}decisive_total", ("mode", "live"), even)] == 1
    assert told[(f"{of}plugin_files_failing",)] == 1
    assert told[(f"{of}processes_replaced_total", ("reason", "older"))] == 2
    assert told[(f"{of}zygotes_started_total",)] == 3
    assert told[(f"{of}thread_failures_total", ("work", "keeping processes ready"))] == 4
    assert told[(f"{of}requests_waiting",)] == 2
    assert told[(f"{of}requests_refused_total",)] == 5
    assert told[(f"{of}engine_answers_total", ("outcome", "failed"))] == 1
    assert told[(f"{of}engine_followed_total", ("followed", "yes"))] == 3
    assert told[(f"{of}history_dropped_total",)] == 2
    assert told[(f"{of}certificate_expiry_timestamp_seconds",)] == 1_900_000_000
    assert told[(f"{of}requests_no_host_left_total", ("method", "runFilters"))] == 1
    requests = (("form", "engine"), ("method", "runFilters"), ("outcome", "unit failed"))
    assert told[(f"{of}requests_total", *requests)] == 1


def test_a_counter_that_an_alert_is_about_is_there_before_the_first_event(tmp_path):
    """Else it has no increase at that event, and the first VM that finds no host makes no alert."""
    told = samples(MadeSite(tmp_path))
    for method in ("runFilters", "selectHost", "hasAnyHosts"):
        assert told["ovirt_scheduler_requests_no_host_left_total", ("method", method)] == 0
    assert told["ovirt_scheduler_requests_refused_total",] == 0
    assert told["ovirt_scheduler_history_dropped_total",] == 0


def test_what_status_says_is_wrong_has_a_metric_without_names(tmp_path):
    missing = tuple(MissingUnit("filter", f"Unit{number}", 1.0, 1) for number in range(3))
    site = MadeSite(tmp_path, missing=missing, reload_failure=ReloadFailure(1.0, "no"))
    told = samples(site)
    assert told["ovirt_scheduler_units_missing",] == 3
    assert told["ovirt_scheduler_reload_failed",] == 1
    assert "Unit1" not in site.text("/metrics")


def test_the_buckets_add_up(site):
    """From 100 µs to 100 s; the last one has all calls."""
    times = {
        labels["le"]: value
        for (name, *pairs), value in samples(site).items()
        for labels in [dict(pairs)]
        if name == "ovirt_scheduler_unit_call_duration_seconds_bucket" and labels["unit"] == "Night"
    }
    assert (next(iter(times)), [*times][-2:]) == ("0.0001", ["100.0", "+Inf"])
    assert (times["0.001"], times["0.0025"], times["+Inf"]) == (0, 1, 1)


def test_a_bucket_has_a_decision_as_its_example(site):
    """In OpenMetrics: from a slow call on a chart to the page that says why."""
    page = site.get("/metrics", headers={"accept": OPENMETRICS})
    assert page.headers["Content-Type"].startswith("application/openmetrics-text")
    families = openmetrics.text_string_to_metric_families(page.body.decode())
    examples = {
        sample.exemplar.labels["decision"]
        for family in families
        for sample in family.samples
        if sample.exemplar
    }
    assert examples == {DECISION}


def test_no_label_holds_what_a_caller_may_multiply(site):
    """No host, no VM, no message, no id."""
    names = {label for _, *pairs in samples(site) for label, _ in pairs}
    assert names == {
        "unit", "kind", "outcome", "mode", "le", "method", "form", "reason", "cluster", "work",
        "followed",
    }  # fmt: skip


@pytest.mark.skipif(not shutil.which("promtool"), reason="there is no promtool")
def test_promtool_has_nothing_to_say(site):
    """Names, types, units and texts are as Prometheus wants them."""
    text = site.text("/metrics")
    checked = executed("promtool", "check", "metrics", input=text)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_unit_whose_file_was_loaded_anew_does_not_fail_until_it_is_called(tmp_path):
    made = record([call("Night", outcome="raised", message="no")])
    for checksum, failing in (("sha256:0123456789abcdef", 1), ("sha256:another", 0)):
        unit = unit_state("Night")._replace(checksum=checksum)
        told = samples(MadeSite(tmp_path / checksum, [made], units=(unit,)))
        gauge = "ovirt_scheduler_unit_failing"
        assert told[gauge, ("kind", "filter"), ("unit", "Night")] == failing
