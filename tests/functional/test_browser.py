"""The pages in a real browser: headless Chromium, as its driver tells what it shows and asks for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.daemon import Daemon
from tests.support.pages import get
from tests.support.paths import PROJECT
from tests.support.waiting import wait_until

webdriver = pytest.importorskip("selenium.webdriver", reason="there is no selenium")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")),
        reason="there is no chromium with chromedriver",
    ),
]

AXE = PROJECT / "build" / "node_modules" / "axe-core" / "axe.min.js"
MARKUP = (
    "<script>document.title='run'</script><img src=http://192.0.2.1/x onerror=document.title='run'>"
)
PLUGINS = {
    "Even": "def do_filter(hosts, vm, properties):\n    return hosts[::2]\n",
    "Night": f'"""{MARKUP}"""\ndef do_filter(hosts, vm, properties):\n    raise RuntimeError({MARKUP!r})\n',
    "Place": "def do_score(hosts, vm, properties):\n    return {h: n for n, h in enumerate(hosts)}\n",
    "Broken": "def do_filter(:\n",
}
SIZES = (0, 12, 250)


@pytest.fixture(scope="module")
def daemon(start_daemon) -> Daemon:
    """It has decided about no host, 12 and 250, with units that fail."""
    running: Daemon = start_daemon(PLUGINS, "ssl = false\npages = loopback")
    with running.proxy() as scheduler:
        for number in SIZES:
            hosts = [f"00000000-0000-4000-8000-{each:012}" for each in range(number)]
            scheduler.runFilters(["Even", "Night"], hosts, "web", {"a": "b"})
            scheduler.runCostFunctions([["Place", 3]], hosts, "web", {})
    wait_until(lambda: len(get(running.url, "/decisions.json").json) == 2 * len(SIZES))
    return running


@pytest.fixture(scope="module")
def pages(daemon) -> list[str]:
    """Each page that there is, and one of each decision."""
    decisions = [f"/decisions/{each['id']}" for each in get(daemon.url, "/decisions.json").json]
    return [
        "/status",
        "/decisions",
        "/decisions?since=noon",
        "/units/Night",
        "/units/Place",
        "/nothing",
        *decisions,
    ]


class Browser:
    def __init__(self, url: str) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        self.driver = webdriver.Chrome(options=options, service=service)
        self._url = url

    def look(self, path: str, width: int = 1280, scheme: str = "light") -> None:
        """Open a page on a screen of that width, in pixels."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.driver.get(f"{self._url}{path}")

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def asked(self) -> Iterator[str]:
        """The addresses of all that was asked for since the last time."""
        for entry in self.driver.get_log("performance"):
            message: dict[str, Any] = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                yield message["params"]["request"]["url"]


@pytest.fixture(scope="module")
def browser(daemon) -> Iterator[Browser]:
    started = Browser(daemon.url)
    yield started
    started.driver.quit()


def test_nothing_overflows_on_a_telephone(browser, pages):
    """At 360 pixels no page is wider than the screen; tables scroll by themselves."""
    for page in pages:
        browser.look(page, 360)
        assert browser.run("return document.documentElement.scrollWidth") <= 360, page


def test_no_request_leaves_the_origin_and_no_markup_does_anything(browser, pages, daemon):
    """Whatever plugins print: it is text, and loads and runs nothing."""
    [*browser.asked()]
    for page in pages:
        browser.look(page)
        assert browser.driver.title != "run"
        assert browser.run("return document.scripts.length + document.images.length") == 0
    hosts = {urlsplit(url).netloc for url in browser.asked() if not url.startswith("data:")}
    assert hosts == {urlsplit(daemon.url).netloc}
    browser.look("/units/Night")
    assert MARKUP in browser.run("return document.body.innerText")


def test_the_style_is_applied_in_light_and_dark(browser):
    """The policy lets our own sheet through; the background is what the reader prefers."""
    colours = set()
    for scheme in ("light", "dark"):
        browser.look("/status", scheme=scheme)
        colours.add(
            browser.run("return getComputedStyle(document.documentElement).backgroundColor")
        )
    assert colours == {"rgb(255, 255, 255)", "rgb(13, 17, 23)"}


@pytest.mark.skipif(
    not AXE.exists(), reason="there is no axe-core: npm install --prefix build axe-core"
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_axe_finds_no_violation(browser, pages, width, scheme):
    """Contrast, names, structure, keyboard: what a screen reader needs."""
    for page in pages:
        browser.look(page, width, scheme)
        browser.run(AXE.read_text("utf-8"))
        found = browser.driver.execute_async_script(
            "const done = arguments[0]; axe.run().then(found => done(found.violations))"
        )
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], page
