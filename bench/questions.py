"""How long the questions before a host is taken down take, on a large saved cluster.

``python -m bench.questions`` asks them of 25, 50 and 100 hosts with 15 VMs each, under three
filters, and prints how long each takes. ``python -m bench.questions 100`` asks them of 100 hosts.

They take as long for the last host that is lost or emptied as for the first. But each question to
the policy is about all hosts, so twice the hosts are more than twice the time (seconds of
processors, November 2026, on a busy machine):

===== =========== ================= ========
hosts maintenance maintenance --all capacity
===== =========== ================= ========
   25         1.9               9.5      6.9
   50         2.8              21.0     16.9
  100         5.0              57.9     44.4
===== =========== ================= ========
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.simulate import made
from ovirt_scheduler.command import cli

_FILTER = """\
def do_filter(hosts, vm, properties):
    return [host for host in hosts if host.summary.total < {}]
"""
_SECTION = "[clusters]\n[[Default]]\nfilters = Few;Fewer;Fewest\n"
_HOSTS, _VMS_A_HOST = ("25", "50", "100"), 15
_QUESTIONS = {
    "maintenance": ("maintenance", "host003"),
    "maintenance --all": ("maintenance", "--all", "Default"),
    "capacity": ("capacity", "Default", "--vm", "8GiB,2"),
}


def _processor_seconds() -> float:
    """Of this process, and of those that have ended below it."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> int:
    """Ask them, and print the figures."""
    for hosts in map(int, sys.argv[1:] or _HOSTS):
        _ask(hosts)
    return 0


def _ask(hosts: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file, conf = Path(folder) / "cluster.xml", Path(folder) / "scheduler.conf"
        made(hosts, _VMS_A_HOST * hosts).write(file)
        conf.write_text(_SECTION)
        for name, most in (("Few", 60), ("Fewer", 55), ("Fewest", 50)):
            (Path(folder) / f"{name}.py").write_text(_FILTER.format(most))
        os.environ["STATE_DIRECTORY"] = folder
        more = ("--cluster", str(file), "--config", str(conf), "--plugins", folder)
        for name, words in _QUESTIONS.items():
            begun, busy, shown = time.monotonic(), _processor_seconds(), io.StringIO()
            with contextlib.redirect_stdout(shown):
                status = cli.main([*words, *more])
            *_, last = shown.getvalue().splitlines()
            took, busy = time.monotonic() - begun, _processor_seconds() - busy
            print(
                f"{hosts} hosts, {name}: {took:.1f} s, processor time {busy:.1f} s, status "
                f"{status}: {last}"
            )


if __name__ == "__main__":
    sys.exit(main())
