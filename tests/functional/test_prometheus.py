"""A real Prometheus: it scrapes the daemon over TLS, and takes the rules and queries we ship."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple
from xmlrpc.client import ServerProxy

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.certificates import made
from tests.support.command import executed
from tests.support.daemon import Daemon, reserved_port
from tests.support.paths import PROJECT
from tests.support.site import MadeSite
from tests.support.waiting import LONG, wait_until

RULES = PROJECT / "packaging" / "prometheus" / "ovirt-scheduler.rules.yml"
DASHBOARD = PROJECT / "packaging" / "grafana" / "ovirt-scheduler.json"

NIGHT = "def do_filter(hosts, vm, properties):\n    raise RuntimeError('it is dark')\n"

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


@pytest.fixture
def prometheus(daemon, tmp_path) -> Iterator[Prometheus]:
    """One that scrapes that daemon each second."""
    where = urllib.parse.urlsplit(daemon.url)
    (tmp_path / "prometheus.yml").write_text(f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{RULES}"]
scrape_configs:
  - job_name: ovirt-scheduler
    scheme: https
    tls_config:
      ca_file: {daemon.certificate}
      cert_file: {tmp_path}/caller.pem
      key_file: {tmp_path}/caller.pem
    static_configs: [{{targets: ["{where.hostname}:{where.port}"]}}]
""")
    with reserved_port() as port, (tmp_path / "prometheus.log").open("w") as log:
        address = f"127.0.0.1:{port}"
        process = subprocess.Popen(
            ["prometheus", f"--config.file={tmp_path}/prometheus.yml",
             f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={address}"],
            stderr=log,
        )  # fmt: skip
        try:
            yield Prometheus(f"http://{address}")
        finally:
            process.kill()
            process.wait()


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
