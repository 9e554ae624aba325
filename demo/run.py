"""Starts the daemon with the sample plugins, makes one call of each kind, and keeps serving.

``make run`` runs it. The certificate and the settings lie in ``.run/``. The engine that plugins
ask for VMs is the made one of the tests, with the hosts of ``hosts.xml``.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import TextIO
from xml.etree import ElementTree
from xmlrpc.client import Fault, ServerProxy

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))
from tests.support.rest_server import GIB, Host, RestServer, Vm  # noqa: E402  not installed

STATE = PROJECT / ".run"
CERTIFICATE = STATE / "certificate" / "certificate.pem"
HOSTS = (PROJECT / "demo" / "hosts.xml").read_text("utf-8")
VM = (PROJECT / "demo" / "vm.xml").read_text("utf-8")


def main() -> int:
    STATE.mkdir(exist_ok=True)
    vms = [Vm("ledger", "serval", 24 * GIB), Vm("mail", "serval", 6 * GIB), Vm("proxy", "lynx")]
    with RestServer(STATE, hosts_of_the_engine(), vms) as engine:
        return show(engine, {vm.id: vm.name for vm in vms})


def hosts_of_the_engine() -> list[Host]:
    return [
        Host(
            host.findtext("name"),
            int(host.findtext("memory")),
            int(host.findtext("max_scheduling_memory")),
        )
        for host in ElementTree.fromstring(HOSTS)
    ]


def show(engine: RestServer, vms: dict[str, str]) -> int:
    settings = STATE / "scheduler.conf"
    settings.write_text(
        f"""\
listening_port = 0
plugins_conf_path = {PROJECT / "etc" / "plugins"}
log_level = warning

[engine]
url = {engine.settings().url}
username = {engine.settings().username}
password_file = {engine.settings().password_file}
ca_file = {engine.settings().ca_file}
""",
        "utf-8",
    )
    # Said outright: a shell starts what runs in the background with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # A signal that comes just before a read does not end that read: a byte in a pipe does.
    heard, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
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
        log = threading.Thread(target=show_log, args=(daemon.stderr, wake), daemon=True)
        try:
            url = url_of(daemon.stderr)
            if url is None:
                return daemon.wait()
            show_calls(url, vms)
            log.start()  # before anybody is told of Ctrl-C, which may not come amid this
            show_how_to_go_on(url)
            os.read(heard, 1)
        except KeyboardInterrupt:
            print()
        finally:
            daemon.send_signal(signal.SIGTERM)
        status = daemon.wait()
        if log.is_alive():
            log.join()
        return status


def show_log(log: TextIO, ended: int) -> None:
    """Copy the daemon's log until the daemon ends, and tell so by a byte to `ended`."""
    for line in log:
        print(f"log      {line}", end="", flush=True)
    os.write(ended, b"\0")


def url_of(log: TextIO) -> str | None:
    """The address that the daemon says it listens on; None where it ended before."""
    for line in log:
        if line.startswith("listening on "):
            return line.split()[-1]
        print(line, end="", file=sys.stderr)
    return None


def show_calls(url: str, vms: dict[str, str]) -> None:
    names = {host.get("id"): host.findtext("name") for host in ElementTree.fromstring(HOSTS)}
    trust = ssl.create_default_context(cafile=str(CERTIFICATE))
    with ServerProxy(f"{url}/design", context=trust) as scheduler:
        print("\ndiscover()")
        for group in ElementTree.fromstring(scheduler.discover()):
            for unit in group:
                name = unit.get("name") or unit.findtext("name")
                print(f"  {unit.tag:13} {name:18} {unit.get('description')}")

        properties = {"maximum_vm_count": "10", "threshold": "75"}
        print(f"\nrunFilters(['MaxVms', 'Memory'], demo/hosts.xml, demo/vm.xml, {properties})")
        kept = scheduler.runFilters(["MaxVms", "Memory"], HOSTS, VM, properties)
        for host, name in names.items():
            print(f"  {'accepted' if host in kept else 'rejected':9} {name}")

        functions = [["EvenVms", 10], ["Memory", 1]]
        print(f"\nrunCostFunctions({functions}, demo/hosts.xml, demo/vm.xml, {{}})")
        costs = scheduler.runCostFunctions(functions, HOSTS, VM, {})
        for place, host in enumerate(sorted(costs, key=costs.get)):
            print(f"  {costs[host]:5}  {names[host]}{'' if place else '  (the best)'}")

        print("\nrunLoadBalancing('Memory', demo/hosts.xml, {'threshold': '80'})")
        moves = scheduler.runLoadBalancing("Memory", HOSTS, {"threshold": "80"})
        for vm, targets in moves.items():
            print(f"  migrate VM {vms[vm]} to one of {', '.join(names[host] for host in targets)}")

        print("\nrunFilters(['NoSuchFilter'], ...)")
        try:
            scheduler.runFilters(["NoSuchFilter"], HOSTS, VM, {})
        except Fault as fault:
            print(f"  fault {fault.faultCode}: {fault.faultString}")


def show_how_to_go_on(url: str) -> None:
    print(
        f"""
Serving on {url} until Ctrl-C, with the plugins in plugins/ (edits count at once).
Call it from another terminal, here in {PROJECT}:

  . .venv/bin/activate
  ovirt-scheduler discover --url {url} --ca {CERTIFICATE.relative_to(PROJECT)}

or without the program:

  curl --cacert {CERTIFICATE.relative_to(PROJECT)} -H 'Content-Type: text/xml' \\
    -d '<methodCall><methodName>discover</methodName></methodCall>' {url}/design
""",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
