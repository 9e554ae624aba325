"""Times that a caller and an administrator count on, and what is said of a failure, from outside."""

from __future__ import annotations

import os
import re
import signal
import threading
import time

import pytest

from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

IDS = ["host-1", "host-2"]
TIMEOUT = 2  # seconds of a whole request
FAR = 40  # seconds: far above what it takes, and below what any other limit would make of it

PLUGINS = {
    "Broken": "def do_filter(hosts, vm, properties):\n"
    '    raise ValueError("first words\\nlast words")\n',
    "Slow": "import time\n"
    "def do_filter(hosts, vm, properties):\n"
    "    time.sleep(float(properties['seconds']))\n"
    "    return hosts[:1]\n",
    "Hangs": "import os, time\n"
    "def do_filter(hosts, vm, properties):\n"
    "    with open(properties['file'] + '.new', 'w') as told:\n"
    "        told.write(str(os.getppid()))\n"
    "    os.rename(told.name, properties['file'])\n"
    "    time.sleep(3600)\n",
}


@pytest.fixture(scope="module")
def daemon(start_daemon, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugins")
    for name, text in PLUGINS.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
        (folder / f"{name}.conf").write_text("timeout = 100\n", "utf-8")
    settings = (
        f"ssl = false\nplugins_conf_path = {folder}\nplugin_timeout = {TIMEOUT}\n"
        f"request_timeout = {TIMEOUT}\nmax_parallel_calls = 1"
    )
    return start_daemon(plugins=folder, settings=settings)


def filtered(daemon, name: str, **properties: str):
    with daemon.proxy("/engine") as proxy:
        return proxy.runFilters([name], IDS, "vm-1", properties)


def test_a_traceback_in_the_log_is_whole(daemon):
    """Its last line says what was wrong, and may say more than the line above it."""
    filtered(daemon, "Broken")
    assert re.search(
        r"\n +File .*Broken\.py\W+, line 2, in do_filter\n.*\n +ValueError: first words\n +last words\n",
        daemon.log,
    )


def test_a_request_is_logged_with_its_milliseconds(daemon):
    """As many as the plugin took, and no more than the caller waited."""
    begun = time.monotonic()
    assert filtered(daemon, "Slow", seconds="0.3")["result"] == IDS[:1]
    waited = (time.monotonic() - begun) * 1000
    told = re.findall(r"runFilters, engine form, .*; ([0-9.]+) ms", daemon.log)
    assert 300 <= float(told[-1]) <= waited


def test_the_time_of_a_request_is_that_of_its_plugins_too(daemon):
    """However long each may take by itself."""
    begun = time.monotonic()
    answer = filtered(daemon, "Slow", seconds="3600")
    assert time.monotonic() - begun < FAR
    (message,) = answer["plugin_errors"]["Slow"]
    assert message.endswith("its timeout is 100 s, the request's time was over before")


def test_a_process_that_hangs_gives_its_places_back(daemon, tmp_path):
    """Stopped above a plugin's call, it can neither answer nor end by itself."""
    told = tmp_path / "pid"
    answers: list[object] = []
    thread = threading.Thread(
        target=lambda: answers.append(filtered(daemon, "Hangs", file=str(told)))
    )
    thread.start()
    wait_until(told.exists)
    os.kill(int(told.read_text()), signal.SIGSTOP)
    thread.join(FAR)
    assert not thread.is_alive()
    assert "Hangs" in answers[0]["plugin_errors"]
    begun = time.monotonic()
    assert filtered(daemon, "Slow", seconds="0")["result"] == IDS[:1]
    assert time.monotonic() - begun < FAR
