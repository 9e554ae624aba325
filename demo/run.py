"""Starts the daemon with the sample plugins, makes one call of each kind, and keeps serving.

``make run`` runs it. The certificate and the settings lie in ``.run/``.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree
from xmlrpc.client import Fault, ServerProxy

PROJECT = Path(__file__).resolve().parents[1]
STATE = PROJECT / ".run"
CERTIFICATE = STATE / "certificate" / "certificate.pem"
SETTINGS = f"""\
listening_port = 0
plugins_conf_path = {PROJECT / "etc" / "plugins"}
log_level = warning
"""


def main() -> int:
    STATE.mkdir(exist_ok=True)
    settings = STATE / "scheduler.conf"
    settings.write_text(SETTINGS, "utf-8")
    command = [sys.executable, "-m", "ovirt_scheduler", "serve"]
    command += ["--config", str(settings), "--plugins", str(PROJECT / "plugins")]
    with subprocess.Popen(
        command,
        cwd=PROJECT,
        env={**os.environ, "STATE_DIRECTORY": str(STATE)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is ours: we pass it on as SIGTERM
    ) as daemon:
        assert daemon.stderr is not None
        try:
            url = url_of(daemon.stderr)
            if url is None:
                return daemon.wait()
            show_calls(url)
            show_how_to_go_on(url)
            for line in daemon.stderr:
                print(f"log      {line}", end="", flush=True)
        except KeyboardInterrupt:
            print()
        finally:
            daemon.send_signal(signal.SIGTERM)
        return daemon.wait()


def url_of(log) -> str | None:
    """The address that the daemon says it listens on; None where it ended before."""
    for line in log:
        if line.startswith("listening on "):
            return line.split()[-1]
        print(line, end="", file=sys.stderr)
    return None


def show_calls(url: str) -> None:
    hosts = (PROJECT / "demo" / "hosts.xml").read_text("utf-8")
    vm = (PROJECT / "demo" / "vm.xml").read_text("utf-8")
    names = {host.get("id"): host.findtext("name") for host in ElementTree.fromstring(hosts)}
    trust = ssl.create_default_context(cafile=str(CERTIFICATE))
    with ServerProxy(f"{url}/design", context=trust) as scheduler:
        print("\ndiscover()")
        for group in ElementTree.fromstring(scheduler.discover()):
            for unit in group:
                name = unit.get("name") or unit.findtext("name")
                print(f"  {unit.tag:13} {name:10} {unit.get('description')}")

        properties = {"max_vms": "10", "threshold": "75"}
        print(f"\nrunFilters(['MaxVms', 'Memory'], demo/hosts.xml, demo/vm.xml, {properties})")
        kept = scheduler.runFilters(["MaxVms", "Memory"], hosts, vm, properties)
        for host, name in names.items():
            print(f"  {'accepted' if host in kept else 'rejected':9} {name}")

        functions = [["EvenVms", 10], ["Memory", 1]]
        print(f"\nrunCostFunctions({functions}, demo/hosts.xml, demo/vm.xml, {{}})")
        costs = scheduler.runCostFunctions(functions, hosts, vm, {})
        for place, host in enumerate(sorted(costs, key=costs.get)):
            print(f"  {costs[host]:5}  {names[host]}{'' if place else '  (the best)'}")

        print("\nrunLoadBalancing('Memory', demo/hosts.xml, {'threshold': '80'})")
        moves = scheduler.runLoadBalancing("Memory", hosts, {"threshold": "80"})
        for machine, targets in moves.items():
            print(f"  migrate VM {machine} to one of {', '.join(names[host] for host in targets)}")
        if not moves:
            print("  nothing to migrate")

        print("\nrunFilters(['NoSuchFilter'], ...)")
        try:
            scheduler.runFilters(["NoSuchFilter"], hosts, vm, {})
        except Fault as fault:
            print(f"  fault {fault.faultCode}: {fault.faultString}")


def show_how_to_go_on(url: str) -> None:
    print(
        f"""
Serving on {url} until Ctrl-C, with the plugins in plugins/ (edits count at once).
Call it from another terminal:

  curl --cacert {CERTIFICATE.relative_to(PROJECT)} -H 'Content-Type: text/xml' \\
    -d '<methodCall><methodName>discover</methodName></methodCall>' {url}/design
""",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
