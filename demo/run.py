"""Starts the daemon with the sample plugins, makes each call of an engine, and keeps serving.

``make run`` runs it. The certificate and the settings lie in a folder of the run's own. The engine
that plugins ask for VMs is the made one of the tests, with the hosts of ``hosts.xml``.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TextIO
from xml.etree import ElementTree
from xmlrpc.client import Fault, ServerProxy

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))
from tests.support.rest_server import GIB, Host, RestServer, Vm  # noqa: E402  not installed

HOSTS = (PROJECT / "demo" / "hosts.xml").read_text("utf-8")
VM = (PROJECT / "demo" / "vm.xml").read_text("utf-8")


def main() -> int:
    vms = [Vm("ledger", "serval", 24 * GIB), Vm("mail", "serval", 6 * GIB), Vm("proxy", "lynx")]
    with tempfile.TemporaryDirectory(prefix="ovirt-scheduler-") as name:
        folder = Path(name)
        with RestServer(folder, hosts_of_the_engine(), vms) as engine:
            return show(folder, engine, {vm.id: vm.name for vm in vms})


def hosts_of_the_engine() -> list[Host]:
    return [
        Host(
            host.findtext("name"),
            int(host.findtext("memory")),
            int(host.findtext("max_scheduling_memory")),
        )
        for host in ElementTree.fromstring(HOSTS)
    ]


def show(folder: Path, engine: RestServer, vms: dict[str, str]) -> int:
    settings, certificate = folder / "scheduler.conf", folder / "certificate" / "certificate.pem"
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
    # A signal is a byte in this pipe. An exception could come amid anything: the daemon, just
    # started, would be left behind.
    heard, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # or the terminal is closed
        signal.signal(number, lambda *_: None)
    command = [sys.executable, "-m", "ovirt_scheduler", "serve"]
    command += ["--config", str(settings), "--plugins", str(PROJECT / "plugins")]
    with subprocess.Popen(
        command,
        cwd=PROJECT,
        env={**os.environ, "STATE_DIRECTORY": str(folder)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is ours: we pass it on as SIGTERM
    ) as daemon:
        assert daemon.stderr is not None
        url = url_of(daemon.stderr)
        if url is None:
            return daemon.wait()
        try:
            show_calls(url, certificate, vms)
            show_how_to_go_on(url, certificate)
            log = threading.Thread(target=show_log, args=(daemon.stderr, wake))
            log.start()
            os.read(heard, 1)
            print()
        finally:
            daemon.send_signal(signal.SIGTERM)
        log.join()
        return daemon.wait()


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


def show_calls(url: str, certificate: Path, vms: dict[str, str]) -> None:
    names = {host.get("id"): host.findtext("name") for host in ElementTree.fromstring(HOSTS)}
    trust = ssl.create_default_context(cafile=str(certificate))
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


def show_how_to_go_on(url: str, certificate: Path) -> None:
    print(
        f"""
Serving on {url} until Ctrl-C, with the plugins in plugins/ (edits count at once).
Call it from another terminal, here in {PROJECT}:

  . .venv/bin/activate
  ovirt-scheduler discover --url {url} --ca {certificate}

or without the program:

  curl --cacert {certificate} -H 'Content-Type: text/xml' \\
    -d '<methodCall><methodName>discover</methodName></methodCall>' {url}/design
""",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
