"""Pictures of the pages for the manual: docs/pages-*.png. ``make screenshots`` makes them.

It needs chromium, chromedriver and selenium. The daemon is a real one with the sample plugins
and one that fails; it is asked about a fake cluster of twelve hosts, and looks after it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))
from tests.support.daemon import Daemon  # noqa: E402  not installed
from tests.support.pages import get  # noqa: E402
from tests.support.rest_server import GIB, Host, RestServer, Vm  # noqa: E402

NAMES = (
    "bobcat", "caracal", "cheetah", "cougar", "jaguar", "leopard", "lion", "lynx", "margay",
    "ocelot", "puma", "serval",
)  # fmt: skip
VM = '<vm id="8a6e5b90-3f27-4d1c-8e44-91b7c05d2b01"><name>web</name></vm>'
NIGHT = '''"""Keeps VMs off the hosts that are switched off at night."""


def do_filter(hosts, vm, properties):
    return [host for host in hosts if host.comment != properties["night"]]
'''
SETTINGS = """\
ssl = false
pages = loopback
drive = approve
{engine}
[clusters]
[[Default]]
policy = evenly_distribute
load_balance_interval = 1
hold = 0
"""
WIDTH = 1280  # pixels


def main() -> int:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        shutil.copytree(PROJECT / "plugins", folder / "plugins")
        (folder / "plugins" / "Night.py").write_text(NIGHT, "utf-8")
        with engine_of(folder) as engine:
            settings = SETTINGS.format(engine=engine.conf())
            daemon = Daemon(folder, folder / "plugins", settings, [])
            try:
                ask(daemon)
                take(daemon)
            finally:
                daemon.stop()
    return 0


def engine_of(folder: Path) -> RestServer:
    """The engine of the twelve hosts, two of which have much to do."""
    busy = dict.fromkeys(NAMES, 35) | {"lynx": 93, "puma": 88, "bobcat": 8, "margay": 12}
    return RestServer(
        folder,
        [Host(name, busy=busy[name], measured=True) for name in NAMES],
        [
            Vm(f"{kind}{number}", host=name, busy=busy[name] // 2, memory=4 * GIB)
            for number, name in enumerate(NAMES, 1)
            for kind in ("web", "db", "mail")
        ],
    )


def ask(daemon: Daemon) -> None:
    """Filters and cost functions, as an engine that places the VM."""
    with daemon.proxy("/engine") as engine:
        for _ in range(3):
            filters = ["MaxVms", "Memory", "Night"]
            left = engine.runFilters(filters, document(NAMES), VM, {"maximum_vm_count": "10"})
            names = [name for name in NAMES if host_id(name) in left["result"]]
            engine.runCostFunctions([["EvenVms", 3], ["Memory", 1]], document(names), VM, {})
    while len(get(daemon.url, "/decisions.json").json) < 6:
        time.sleep(0.1)
    while not get(daemon.url, "/clusters/Default.json").json.get("plans"):
        time.sleep(0.1)


def document(names: tuple[str, ...] | list[str]) -> str:
    hosts = (
        f'<host id="{host_id(name)}"><name>{name}</name><memory>{64 << 30}</memory>'
        f"<max_scheduling_memory>{(NAMES.index(name) * 5 + 3) << 30}</max_scheduling_memory>"
        f"<summary><active>{NAMES.index(name) * 7 % 13}</active>"
        f"<total>{NAMES.index(name) * 7 % 13}</total></summary></host>"
        for name in names
    )
    return f"<hosts>{''.join(hosts)}</hosts>"


def host_id(name: str) -> str:
    return f"00000000-0000-4000-8000-{NAMES.index(name):012}"


def take(daemon: Daemon) -> None:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    filters = get(daemon.url, "/decisions.json?method=runFilters").json
    pages = {
        "status": "/status?refresh=off",
        "decision": f"/decisions/{filters[0]['id']}",
        "cluster": "/clusters/Default",
    }
    try:
        for name, path in pages.items():
            height = 900
            for _ in range(2):  # then as high as the page was found to be
                size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
                driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
                driver.get(f"{daemon.url}{path}")
                height = driver.execute_script("return document.documentElement.scrollHeight")
            driver.save_screenshot(str(PROJECT / "docs" / f"pages-{name}.png"))
    finally:
        driver.quit()


if __name__ == "__main__":
    sys.exit(main())
