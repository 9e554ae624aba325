"""A real Prometheus: it scrapes the daemon over TLS, and takes the rules and queries we ship."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from xmlrpc.client import ServerProxy

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ovirt_scheduler.engine.inventory import EngineState
from ovirt_scheduler.model.plans import ClusterLook, Plan, Step
from tests.support.certificates import made
from tests.support.command import executed
from tests.support.daemon import Daemon, reserved_port
from tests.support.paths import PROJECT
from tests.support.served import SETTINGS
from tests.support.site import WORST_LOSS, MadeSite, call, record, refusal
from tests.support.waiting import LONG, wait_until

RULES = PROJECT / "packaging" / "prometheus" / "ovirt-scheduler.rules.yml"
DASHBOARD = PROJECT / "packaging" / "grafana" / "ovirt-scheduler.json"

STRICT = "def do_filter(hosts, vm, properties):\n    return []\n"
NIGHT = "def do_filter(hosts, vm, properties):\n    raise RuntimeError('it is dark')\n"
PLAN = Plan("East", "load_balance", (Step("w", "l", "p", "web", "lynx", "puma"),), 1.8e9)
SCORES = "def do_score(hosts, vm, properties):\n    return {'nobody': 1}\n"

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="there is no prometheus with promtool",
)


def queries() -> Iterator[str]:
    """Of the alert rules, and of the dashboard."""
    yield from re.findall(r"expr: (.*)", RULES.read_text("utf-8"))
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_each_query_is_of_metrics_that_there_are(full_site: MadeSite):
    """In the alert rules and on the dashboard."""
    text = full_site.text("/metrics")
    there: set[str] = set(re.findall(r"^(ovirt_scheduler_\w+)", text, re.MULTILINE))
    asked = {name for query in queries() for name in re.findall(r"ovirt_scheduler_\w+", query)}
    assert len(asked) > 15
    assert asked <= there


def test_the_manual_names_each_metric_and_no_other(full_site: MadeSite):
    """In its table, without their common beginning."""
    text = (PROJECT / "docs" / "operations.md").read_text("utf-8")
    table = text.partition("| metric | labels | what |\n")[2].partition("\n\n")[0]
    told = {
        name for row in table.splitlines() for name in re.findall("`(\\w+)`", row.split("|")[1])
    }
    families = text_string_to_metric_families(full_site.text("/metrics"))
    there = {
        f"{family.name.removeprefix('ovirt_scheduler_')}{'_total' * (family.type == 'counter')}"
        for family in families
    }
    assert told == there


@needs_prometheus
def test_promtool_takes_the_rules():
    """And finds nothing to mend."""
    checked = executed("promtool", "check", "rules", "--lint-fatal", RULES)
    assert (checked.returncode, checked.stderr) == (0, "")


class Prometheus(NamedTuple):
    url: str
    pid: int

    def ask(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=LONG) as answer:
            return json.load(answer)["data"]

    def value(self, query: str) -> Any:
        """Of the one series that there is; None before there is one."""
        try:
            found = self.ask("query", query=query)["result"]
        except OSError:  # it has not begun yet
            return None
        return found[0]["value"][1] if found else None

    def firing(self) -> dict[str, str]:
        """The summary of each alert that fires, by its name."""
        try:
            alerts = self.ask("alerts")["alerts"]
        except OSError:  # it has not begun yet
            return {}
        return {
            alert["labels"]["alertname"]: alert["annotations"]["summary"]
            for alert in alerts
            if alert["state"] == "firing"
        }


@pytest.fixture
def daemon(start_daemon, tmp_path) -> Daemon:
    """One that takes no call and shows no page without a client certificate."""
    caller = made(["prometheus"])
    caller.write(tmp_path, "caller")
    settings = f"pages = callers\nssl_client_ca = {tmp_path}/caller.pem"
    running: Daemon = start_daemon({"Night": NIGHT}, settings)
    trust = running.trust
    assert trust is not None
    trust.load_cert_chain(tmp_path / "caller.pem")
    with ServerProxy(f"{running.url}/design", context=trust) as scheduler:
        assert scheduler.runFilters(["Night"], ["h1"], "vm", {}) == ["h1"]
    return running


def write_config(folder: Path, config: str) -> Path:
    """The configuration's file, with what each has."""
    file = folder / "prometheus.yml"
    file.write_text(f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n{config}", "utf-8")
    return file


@contextlib.contextmanager
def running_prometheus(folder: Path, config: str) -> Iterator[Prometheus]:
    """One that scrapes and evaluates the rules each second."""
    file = write_config(folder, config)
    with reserved_port() as port, (folder / "prometheus.log").open("w") as log:
        address = f"127.0.0.1:{port}"
        process = subprocess.Popen(
            ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={address}"],
            stderr=log,
        )  # fmt: skip
        try:
            yield Prometheus(f"http://{address}", process.pid)
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def prometheus(daemon, tmp_path) -> Iterator[Prometheus]:
    """One that scrapes that daemon."""
    where = urllib.parse.urlsplit(daemon.url)
    config = f"""
rule_files: ["{RULES}"]
scrape_configs:
  - job_name: ovirt-scheduler
    scheme: https
    tls_config:
      ca_file: {daemon.certificate}
      cert_file: {tmp_path}/caller.pem
      key_file: {tmp_path}/caller.pem
    static_configs: [{{targets: ["{where.hostname}:{where.port}"]}}]
"""
    with running_prometheus(tmp_path, config) as running:
        yield running


@pytest.mark.long
@needs_prometheus
def test_prometheus_scrapes_over_tls_with_its_certificate(prometheus, daemon):
    """What it reads there is what happened; each rule and each query of ours is evaluated."""
    calls = 'ovirt_scheduler_unit_calls_total{unit="Night",outcome="raised"}'
    assert wait_until(lambda: prometheus.value(calls), lambda: daemon.log) == "1"
    assert prometheus.value("up") == "1"
    pending = 'ALERTS{alertname="OvirtSchedulerUnitFailing",unit="Night"}'
    assert wait_until(lambda: prometheus.value(pending)) == "1"
    for query in queries():
        shown = query.replace("$instance", ".*").replace("$__rate_interval", "1m")
        prometheus.ask("query", query=shown)
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []


def with_hasty_rules(folder: Path, job: str, address: str) -> str:
    """A configuration with the rules that we ship, but for the time that each takes to fire."""
    rules, text = folder / "rules.yml", RULES.read_text("utf-8")
    rules.write_text(re.sub(r"for: \w+", "for: 0s", text).replace("[5m]", "[3s]"), "utf-8")
    return f"""
rule_files: ["{rules}"]
scrape_configs: [{{job_name: {job}, static_configs: [{{targets: ["{address}"]}}]}}]
"""


OF_THE_DAEMON = {
    "OvirtSchedulerDown", "OvirtSchedulerUnitFailing", "OvirtSchedulerUnitsMissing",
    "OvirtSchedulerReloadFailed", "OvirtSchedulerNoHostLeft", "OvirtSchedulerOldVersion",
    "OvirtSchedulerPluginNotLoaded", "OvirtSchedulerAnswersCorrected",
}  # fmt: skip
OF_ITS_STATE = {
    "OvirtSchedulerStuck", "OvirtSchedulerCertificateEnds", "OvirtSchedulerCertificateEndsSoon",
    "OvirtSchedulerRequestsWait", "OvirtSchedulerRequestsRefused", "OvirtSchedulerZygoteRestarts",
    "OvirtSchedulerEngineUnreachable", "OvirtSchedulerHistoryLoses",
    "OvirtSchedulerMigrationsRefused", "OvirtSchedulerMayNotMigrate", "OvirtSchedulerPlanWaits",
    "OvirtSchedulerCannotLoseHost",
}  # fmt: skip


def test_each_alert_is_fired_by_a_test():
    """One of the next two."""
    assert {*re.findall(r"alert: (\w+)", RULES.read_text("utf-8"))} == OF_THE_DAEMON | OF_ITS_STATE


@pytest.mark.long
@needs_prometheus
def test_alerts_fire_for_what_goes_wrong_in_a_daemon(start_daemon, tmp_path):
    """First for a job that is not there; none while all is well; at last for a killed daemon."""
    plugins = {"Strict": STRICT, "Night": NIGHT, "Edited": STRICT, "Scores": SCORES}
    daemon = start_daemon(plugins, "ssl = false")
    address = daemon.url.removeprefix("http://").rstrip("/")
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with running_prometheus(folder, with_hasty_rules(folder, "another", address)) as prometheus:

        def wait_for(alert):
            return wait_until(prometheus.firing, suits=lambda firing: alert in firing)[alert]

        assert wait_for("OvirtSchedulerDown") == "The daemon does not answer"
        write_config(folder, with_hasty_rules(folder, "ovirt-scheduler", address))
        os.kill(prometheus.pid, signal.SIGHUP)
        wait_until(lambda: prometheus.value("ovirt_scheduler_up"))
        wait_until(lambda: prometheus.firing() == {})
        assert daemon.engine.runFilters(["Strict"], ["h1"], "vm", {})["result"] == []
        wait_for("OvirtSchedulerNoHostLeft")
        assert daemon.engine.runFilters(["Nowhere"], ["h1"], "vm", {})["result"] == ["h1"]
        assert wait_for("OvirtSchedulerUnitsMissing").startswith("Callers name 1 policy units")
        daemon.engine.runFilters(["Night"], ["h1"], "vm", {})
        wait_for("OvirtSchedulerUnitFailing")
        daemon.engine.runCostFunctions([("Scores", 1)], ["h1"], "vm", {})
        wait_for("OvirtSchedulerAnswersCorrected")
        (daemon.plugins / "Edited.py").write_text("def do_filter(:\n")
        wait_for("OvirtSchedulerOldVersion")
        (daemon.plugins / "Bad.py").write_text("def do_filter(:\n")
        wait_for("OvirtSchedulerPluginNotLoaded")
        daemon.state.with_name("scheduler.conf").write_text("log_levle = debug\n")
        daemon.process.send_signal(signal.SIGHUP)
        wait_for("OvirtSchedulerReloadFailed")
        daemon.process.kill()
        assert wait_for("OvirtSchedulerDown") == f"The daemon at {address} does not answer"


@pytest.mark.long
@needs_prometheus
def test_alerts_fire_for_states_that_a_daemon_seldom_has(start, tmp_path):
    """The daemon's own metrics of a state that is made up; counters rise between two scrapes."""
    site = MadeSite(tmp_path, [record([call("Night")])])
    running = start(replace(SETTINGS, routes=site.site.routes()))
    folder = tmp_path / "prometheus"
    folder.mkdir()
    config = with_hasty_rules(folder, "ovirt-scheduler", f"127.0.0.1:{running.port}")
    with running_prometheus(folder, config) as prometheus:
        wait_until(lambda: prometheus.value("ovirt_scheduler_history_dropped_total") == "0")
        wait_until(lambda: prometheus.firing() == {})
        processes = site.state.processes
        site.state = site.state._replace(
            stuck="the zygote does not start",
            certificate_ends=time.time() + 86400,
            engine=EngineState("https://engine/api", "refused"),
            history=site.state.history._replace(dropped=3),
            clusters=(
                ClusterLook(
                    "East",
                    "on",
                    refusals=(refusal(),),
                    denial="not authorized",
                    plans=(PLAN,),
                    worst_loss=WORST_LOSS,
                ),
            ),
            processes=processes._replace(
                refused=7, waiting=2, zygotes_started=processes.zygotes_started + 5
            ),
        )
        firing = wait_until(prometheus.firing, suits=lambda firing: firing.keys() >= OF_ITS_STATE)
        assert firing.keys() >= OF_ITS_STATE
