"""What ps and systemctl status show of the daemon's processes."""

from __future__ import annotations

import contextlib
import sys
import threading

from tests.support.command import script
from tests.support.processes import offspring, title
from tests.support.waiting import LONG, wait_until

SLEEPS = "import time\n\n\ndef do_filter(hosts, vm, properties):\n    time.sleep(60)\n"


def test_each_process_of_a_daemon_has_its_title(start_daemon):
    """And the daemon itself the command that started it."""
    daemon = start_daemon({"Sleeps": SLEEPS})
    assert title(daemon.zygote) == "ovirt-scheduler: zygote"
    asked = ["Sleeps"], ["a"], "v", {}
    proxy = daemon.proxy("/engine")

    def call() -> None:
        with contextlib.suppress(OSError):  # the daemon is killed meanwhile
            proxy.runFilters(*asked)

    calling = threading.Thread(target=call)
    calling.start()
    wanted = {f"ovirt-scheduler: {words}" for words in ("zygote", "waiting", "plugin Sleeps")}
    wait_until(lambda: wanted <= {title(pid) for pid in offspring(daemon.pid)})
    assert title(daemon.pid).split("\0")[1:4] == ["-m", "ovirt_scheduler", "serve"]
    daemon.process.kill()
    calling.join(LONG)


def test_a_long_title_is_cut_and_harms_nothing():
    """There is as much room as the command line has, and the environment stands behind it."""
    code = (
        "import os; from ovirt_scheduler.processes.kernel import titles; titles.set_title('x' * 100000); "
        "print(open('/proc/self/cmdline').read(), open('/proc/self/environ').read(), sep='|')"
    )
    ended = script(code, env={"PATH": "/bin", "LAST": "1"})
    shown, environ = ended.stdout.strip().split("|")
    assert shown.startswith("ovirt-scheduler: xxx")
    assert len(shown) == len(f"{sys.executable} -c {code} ")
    assert environ == "PATH=/bin\0LAST=1\0"
