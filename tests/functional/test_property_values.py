"""Values of custom properties, as a caller of the real daemon gives them (contract 1.5, 5.8)."""

from __future__ import annotations

import re
import threading

import pytest

from tests.support.daemon import refusal

IDS = ["host-1", "host-2", "host-3"]


@pytest.fixture(scope="module")
def with_properties(start_daemon):
    """A daemon whose one plugin has properties: percent in a range, slow with a bad pattern."""
    body = "hosts[:int(properties['percent']) // 10]"
    text = f"def do_filter(hosts, vm, properties):\n    return {body}\n"
    conf = 'customProperties = "percent={0-99};slow=(a+)+b"\ndefaultValues = "20"\n'
    settings = "request_timeout = 1\nplugin_timeout = 1"
    return start_daemon({"picky": text}, settings, confs={"picky": conf})


def test_properties_have_defaults_and_are_checked(with_properties):
    """A value that its pattern refuses is fault 103 (contract 1.5, 5.8)."""
    with with_properties.proxy() as proxy:
        assert proxy.runFilters(["picky"], IDS, "vm-1", {}) == IDS[:2]
        assert proxy.runFilters(["picky"], IDS, "vm-1", {"percent": "10", "other": "x"}) == IDS[:1]
        told = refusal(103, proxy.runFilters, ["picky"], IDS, "vm-1", {"percent": "100"})
    assert re.match("filter picky: .*percent.*'100'", told)


def test_a_refused_property_leaves_the_unit_out_in_the_engine_form(with_properties):
    """There it is an error of that unit, as the engine has no way to mend its call."""
    answer = with_properties.engine.runFilters(["picky"], IDS, "vm-1", {"percent": "100"})
    assert answer["result"] == IDS
    (message,) = answer["plugin_errors"]["picky"]
    assert "percent" in message


def test_a_pattern_that_runs_away_holds_up_its_own_request_only(with_properties):
    """Values are matched where they can be killed, not in the daemon's process."""
    ended = []

    def call_the_slow():
        ended.append(with_properties.engine.runFilters(["picky"], IDS, "vm-1", {"slow": "a" * 60}))

    thread = threading.Thread(target=call_the_slow)
    thread.start()
    calls = 0
    with with_properties.proxy() as proxy:
        while thread.is_alive():
            assert proxy.runFilters(["picky"], IDS, "vm-1", {}) == IDS[:2]
            calls += 1
    thread.join()
    assert calls > 3
    assert ended[0]["result"] == IDS
    message = "filter picky: property slow: its regex was not done with the value after "
    assert ended[0]["plugin_errors"]["picky"][0].startswith(message)
