"""What a look at a large cluster costs: bytes of the engine, processor time, memory.

::

    python -m bench.look [--before CHECKOUT] [--hosts 250] [--vms 3000] [--docs docs]
    python -m bench.look --before CHECKOUT --pairs 5
    python -m bench.look --groups 200 --pairs 5 --every 1

An engine of this process tells of the cluster; the daemons of both checkouts look after it, one
after the other. Figures are medians of three looks, the calls' of five. ``--pairs`` measures the
processor time of balancing looks alone, with a plan in each: the two versions take turns. With
``--groups``, a cluster without affinity groups and the same one with so many take turns instead.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import xmlrpc.client
from pathlib import Path
from typing import Callable, NamedTuple

from bench import report, servers, usage
from bench.fake_engine import LargeEngine

_MOST_SECONDS = 300.0  # for one look
_QUIET = 1.5  # seconds without work in which a look is over
_IDLE = 0.02  # seconds of processor time in a tenth of one that are no work

_MB = 1e6


class Figures(NamedTuple):
    """One kind of look."""

    bytes: float
    processor: float  # seconds, of the daemon and all below it
    memory: float  # growth at the peak, in bytes


class Looked(NamedTuple):
    """What one version takes."""

    status: Figures
    balancing: Figures
    select_host: float  # seconds
    load_balance: float


def _wait_until(condition: Callable[[], bool], seconds: float = _MOST_SECONDS) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError
        time.sleep(0.02)


def _settle(pid: int, engine: LargeEngine) -> float:
    """Wait until nothing is worked on; the processor seconds used until then."""
    give_up = time.monotonic() + _MOST_SECONDS
    used = usage.processor_seconds(pid)
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < _QUIET:
        if time.monotonic() > give_up:
            raise TimeoutError
        time.sleep(0.1)
        now = usage.processor_seconds(pid)
        if now - used > _IDLE or usage.works(pid) or engine.answers:
            quiet_since = time.monotonic()
        used = now
    return used


def _measure(
    pid: int, engine: LargeEngine, times: int, begin: Callable[[], None] = lambda: None
) -> Figures:
    """A look that this begins, again and again; then once more for its memory."""
    sizes, seconds = [], []
    for _ in range(times):
        used, sent, asked = _settle(pid, engine), engine.bytes_sent, len(engine.asked("vms"))
        begin()
        _wait_until(lambda asked=asked: len(engine.asked("vms")) > asked)  # type: ignore[misc]
        seconds.append(_settle(pid, engine) - used)
        sizes.append(engine.bytes_sent - sent)
    before, asked = usage.memory(pid), len(engine.asked("vms"))
    with usage.Peak(pid) as peak:
        begin()
        _wait_until(lambda: len(engine.asked("vms")) > asked)
        _settle(pid, engine)
    return Figures(
        statistics.median(sizes), statistics.median(seconds), max(0, peak.memory - before)
    )


def _daemon(
    folder: Path, engine: LargeEngine, checkout: Path, minutes: float, *more_of_section: str
) -> servers.Server:
    known = "\n".join(
        line
        for line in engine.conf().split("\n")
        if not line.startswith(("look_distance", "events"))
    )
    section = (
        "policy = evenly_distribute",
        f"load_balance_interval = {minutes}",
        "timer_interval = 0",
        *more_of_section,
    )
    more = "\n".join(("drive = dry-run", known, "[clusters]", "[[Default]]", *section))
    return servers.daemon(folder, servers.PROJECT / "plugins", more=more, checkout=checkout)


def look(checkout: Path, hosts: int, vms: int, every: float, times: int) -> Looked:
    """Have the daemon of a checkout look after a cluster of this size.

    Args:
        every: minutes from one balancing to the next.
        times: looks of each kind.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with LargeEngine(folder, hosts, vms) as engine:

            def change() -> None:
                vm = engine.vms[vms // 2]
                vm.status = "paused" if vm.status == "up" else "up"
                engine.happened(vm)

            with _daemon(folder / "status", engine, checkout, 0) as daemon:
                _wait_until(lambda: bool(engine.asked("vms")))
                status = _measure(daemon.pid, engine, times, change)
                calls = _calls(daemon, engine)
            with _daemon(folder / "balancing", engine, checkout, every) as daemon:
                _wait_until(lambda: bool(engine.asked("vms")))
                balancing = _measure(daemon.pid, engine, times)
    return Looked(status, balancing, *calls)


def planning(
    checkout: Path, hosts: int, vms: int, every: float, times: int, groups: int = 0
) -> tuple[float, int]:
    """Have the daemon of a checkout balance a cluster of this size, with a plan in each look.

    Args:
        every, times: as for ``look``.
        groups: affinity groups of the cluster.

    Returns:
        The median processor seconds of a look, and about how many VMs the engine was asked
        beforehand in all.

    Raises:
        RuntimeError: nothing was planned.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with LargeEngine(folder, hosts, vms, groups) as engine:
            with _daemon(
                folder / "state", engine, checkout, every, "hold = 0", "margin = 0"
            ) as daemon:
                _wait_until(lambda: bool(engine.asked("vms")))
                figures = _measure(daemon.pid, engine, times)
            if " would migrate " not in (folder / "state" / "log").read_text("utf-8"):
                raise RuntimeError(f"{checkout}: nothing was planned")
            return figures.processor, sum(bool(query.target_of) for query in engine.queries)


def compare_planning(
    before: Path, pairs: int, size: tuple[int, int, float, int], groups: int = 0
) -> str:
    """The processor times of looks that plan, by two versions in turns, and their medians.

    Args:
        groups: affinity groups, in the second place.
    """
    rows: list[list[str]] = []
    checkouts, seconds = (before, servers.PROJECT), ([], [])  # type: ignore[var-annotated]
    for pair in range(pairs):
        cells = ["", ""]
        for version in (0, 1) if pair % 2 else (1, 0):
            used, questions = planning(checkouts[version], *size, groups * version)
            seconds[version].append(used)
            cells[version] = f"{used:.2f} s, {questions} questions"
        rows.append([str(pair + 1), *cells])
    former, now = map(statistics.median, seconds)
    more = statistics.median(after / first - 1 for first, after in zip(*seconds))
    rows.append(["median", f"{former:.2f} s", f"{now:.2f} s, {more:+.1%} in a pair"])
    head = ("without groups", f"with {groups}") if groups else ("before", "now")
    return report.table(("pair", *head), rows)


def _calls(daemon: servers.Server, engine: LargeEngine) -> tuple[float, float]:
    """Calls with ids, when the daemon has what the engine told of them."""
    host, port = daemon.address
    proxy = xmlrpc.client.ServerProxy(f"http://{host}:{port}/")
    hosts, vms = ([each.id for each in some] for some in (engine.hosts, engine.vms))
    properties = {"policy": "evenly_distribute"}

    def timed(call: Callable[[], object]) -> float:
        call()
        seconds = []
        for _ in range(5):
            begun = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begun)
        return statistics.median(seconds)

    return (
        timed(lambda: proxy.selectHost("default", hosts, vms[0], properties)),
        timed(lambda: proxy.loadBalance("default", hosts, vms, properties)),
    )


def table(before: Looked | None, now: Looked) -> str:
    """Each figure of both versions, and how many times less it is."""
    rows = []
    for name in ("status", "balancing"):
        figures = [getattr(each, name) for each in (before, now) if each is not None]
        rows += [
            [f"{name} look: the engine tells", *(f"{one.bytes / _MB:.1f} MB" for one in figures)],
            [f"{name} look: processor time", *(f"{one.processor:.2f} s" for one in figures)],
            [f"{name} look: memory", *(f"{one.memory / _MB:.0f} MB" for one in figures)],
        ]
    for name, call in (("select_host", "selectHost"), ("load_balance", "loadBalance")):
        seconds = [getattr(each, name) for each in (before, now) if each is not None]
        rows.append([f"{call} on ids", *map(report.milliseconds, seconds)])
    head = ("", "before", "now") if before is not None else ("", "now")
    return report.table(head, rows)


def main() -> None:
    """Measure, print the table, and put it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, help="a checkout of the version before")
    parser.add_argument("--hosts", type=int, default=250)
    parser.add_argument("--vms", type=int, default=3000)
    parser.add_argument("--docs", type=Path, help="folder with the page to bring up to date")
    parser.add_argument("--every", type=float, default=0.5, help="minutes between balancings")
    parser.add_argument("--times", type=int, default=3, help="looks of each kind")
    parser.add_argument("--groups", type=int, default=0, help="affinity groups, for --pairs")
    parser.add_argument("--pairs", type=int, help="looks that plan, by both versions in turns")
    options = parser.parse_args()
    size = (options.hosts, options.vms, options.every, options.times)
    if options.pairs:
        if options.before is None and not options.groups:
            parser.error("--pairs compares with a version before: --before CHECKOUT")
        before = (options.before or servers.PROJECT).resolve()
        print(compare_planning(before, options.pairs, size, options.groups))
        return
    before = options.before and look(options.before.resolve(), *size)
    measured = table(before, look(servers.PROJECT, *size))
    print(measured)
    if options.docs:
        report.put(options.docs / "benchmarks.md", "look", measured, "python -m bench.look")


if __name__ == "__main__":
    main()
