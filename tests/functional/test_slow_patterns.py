"""Patterns of plugins that try too many ways: whoever runs them, it is not the daemon."""

from __future__ import annotations

import signal
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.daemon import Daemon
from tests.support.waiting import LONG, wait_until

pytestmark = pytest.mark.long

PATTERN, VALUE = r"(\w+,?)*", f"{'a' * 33}!"  # minutes
FILTER = "def do_filter(hosts, vm, properties):\n    return hosts\n"
SCHEDULER = f"""
from ovirt_scheduler.plugin import Scheduler

class Slow(Scheduler):
    name = "slow"
    properties_validation = {"p=" + PATTERN!r}
    default_values = {VALUE!r}
    def load_balance(self, hosts, vms, properties): return {{}}
"""
CONF = f"name = Slow\ncustomProperties = 'p={PATTERN}'\ndefaultValues = '{VALUE}'\n"
TOLD = "property p: its regex was not done with its default after 5 s; write one that does not try"


def health(daemon: Daemon) -> int:
    with urllib.request.urlopen(f"{daemon.url}/health", timeout=LONG) as answer:
        return answer.status


def test_a_daemon_starts_with_defaults_on_which_patterns_backtrack(start_daemon):
    """Each is told with file and line; calls, health and signals go on as ever."""
    plugins = {"Slow": FILTER, "by_class": SCHEDULER, "Good": FILTER}
    daemon: Daemon = start_daemon(plugins, "ssl = false", confs={"Slow": CONF})
    folder = daemon.plugins.parent
    assert f"{folder / 'confs' / 'Slow.conf'}:2: {TOLD}" in daemon.log
    assert f"{folder / 'plugins' / 'by_class.py'}:6: {TOLD}" in daemon.log
    assert health(daemon) == 200
    assert daemon.design.runFilters(["Good"], ["a"], "vm", {}) == ["a"]
    assert daemon.stop() == 0


def test_a_daemon_answers_and_hears_while_a_default_is_matched(start_daemon):
    daemon: Daemon = start_daemon({"Good": FILTER}, "ssl = false", confs={"Slow": CONF})
    (daemon.plugins / "Slow.py").write_text(FILTER)
    with ThreadPoolExecutor(1) as threads:
        looks = threads.submit(daemon.design.discover)
        answered = 0
        while not looks.done():
            assert daemon.design.runFilters(["Good"], ["a"], "vm", {}) == ["a"]
            assert health(daemon) == 200
            answered += 1
        assert answered > 3
        assert "Slow" not in looks.result()
    assert TOLD in daemon.log
    (daemon.plugins / "by_class.py").write_text(SCHEDULER)
    wait_until(lambda: daemon.zygote)
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(LONG) == 0


def test_a_clusters_value_on_which_a_pattern_backtracks_is_told_once(driven):
    """Of the scheduler's own process it takes the scheduler's time; the daemon answers and ends."""
    text = SCHEDULER.replace(f"default_values = {VALUE!r}", "default_values = ''")
    (driven.plugins / "by_class.py").write_text(text)
    section = f'[[Default]]\nscheduler = slow\nproperties = "p={VALUE}"\n'
    daemon: Daemon = driven.start("dry-run\nplugin_timeout = 1", section)
    driven.wait_for_log("properties: scheduler slow: property p: its regex was not done with the")
    assert ".conf:" in daemon.log
    assert health(daemon) == 200
    assert daemon.stop() == 0
    assert daemon.log.count("its regex was not done") == 1
