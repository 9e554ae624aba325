"""How large a recording is, and how long its replay takes.

``python -m bench.replay [--decisions 10000]`` has decisions made on 50 hosts of 3.6 kB each, with a
filter and a cost function that read them, by the code that serves and with ``record = true``. From
one placement to the next a tenth of the hosts change. Then all of them are replayed, unchanged and
with another factor, as ``ovirt-scheduler replay --set UNIT=2`` does. Nothing is kept.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import documents, plugins
from ovirt_scheduler.daemon.runtime import Runtime, started
from ovirt_scheduler.history.query import Query
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.store import FILE
from ovirt_scheduler.model.jobs import Request
from ovirt_scheduler.model.requests import (
    AnswerForm,
    Caller,
    Document,
    Entities,
    RequestedUnit,
    new_id,
)
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.security.state_folder import StateFolder
from ovirt_scheduler.settings import scheduler_conf
from ovirt_scheduler.settings.table import Settings
from ovirt_scheduler.workbench import replay
from ovirt_scheduler.workbench.comparison import Comparison
from ovirt_scheduler.workbench.replay import Changes, Policy

_HOSTS = 50
_UNIT = plugins.BY_ENTITIES[0]
_MOST_WAITING = 100  # records of the history, so that none is dropped
_HOST = re.compile(r"<host .*?</host>", re.DOTALL)
_FREE = re.compile(r"(<max_scheduling_memory>)\d+")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--decisions", type=int, default=10_000)
    count = parser.parse_args().decisions
    with tempfile.TemporaryDirectory(prefix="bench-replay-") as name:
        folder = Path(name)
        (folder / "plugins").mkdir()
        plugins.write(folder / "plugins", [_UNIT])
        conf = folder / "scheduler.conf"
        conf.write_text(f"plugins_path = {folder / 'plugins'}\nrecord = true\n", "utf-8")
        settings = scheduler_conf.load(conf, {})
        for records in (False, True):
            taken = _record(settings, folder / f"state-{records}", count, records)
            print(f"record = {str(records).lower()}: {count / taken:,.0f} decisions/s")
        file = folder / "state-True" / FILE
        size = sum(part.stat().st_size for part in file.parent.glob("history.*"))
        print(f"{count:,} decisions of {_HOSTS} hosts: {size / (1 << 20):,.1f} MiB, "
              f"{size / count:,.0f} bytes for each")  # fmt: skip
        reader = RecordReader(file)
        numbers = reader.recorded(Query())
        for changes in (None, Changes({_UNIT: 2})):
            comparison = Comparison(changes is not None)
            with started(settings) as running:
                policies = [Policy(running.executor, settings, Changes())]
                if changes is not None:
                    policies.append(Policy(running.executor, settings, changes))
                began, before = time.monotonic(), _processor_time()
                parallel = settings.max_parallel_calls
                for then, made in replay.run(reader, numbers, policies, parallel):
                    comparison.add(then, made)
                taken = time.monotonic() - began
            used = _processor_time() - before  # of all processes: they have ended
            words = "unchanged alone" if changes is None else "unchanged and changed"
            print(f"replayed {words}: {comparison.count:,} decisions in {taken:,.0f} s, "
                  f"{comparison.count / taken:,.0f} decisions/s, "
                  f"{1000 * used / comparison.count:.1f} ms of processor time for each, "
                  f"{100 * comparison.same / comparison.count:.1f} % the same")  # fmt: skip


def _processor_time() -> float:
    """Seconds, of this process and those below it that have ended."""
    return sum(os.times()[:4])


def _record(settings: Settings, state: Path, count: int, records: bool) -> float:
    """Have so many decisions made; the seconds that it took."""
    runtime = Runtime(settings, StateFolder(state))
    history = runtime.history
    assert history is not None
    history.bound(30, 4 << 30, records=records)
    runtime.start()
    try:
        runtime.registry.refresh()

        def decide(request: Request) -> None:
            while history.waiting > _MOST_WAITING:
                time.sleep(0.001)
            runtime.services.decisions.decide(request)

        requests = _requests(count)
        began = time.monotonic()
        with ThreadPoolExecutor(settings.max_parallel_calls) as threads:
            for _ in threads.map(decide, requests):
                pass
        taken = time.monotonic() - began
        history.drain(60)
    finally:
        runtime.close()
    return taken


def _requests(count: int) -> Iterator[Request]:
    chance = random.Random(1)  # noqa: S311  the same figures each time
    hosts: list[str] = _HOST.findall(documents.hosts(_HOSTS))
    vm = Document(documents.VM.encode(), "utf-8")
    for number in range(count):
        kind = (Kind.FILTER, Kind.COST_FUNCTION)[number % 2]
        if kind is Kind.FILTER:
            for place in chance.sample(range(_HOSTS), _HOSTS // 10):
                free = chance.randrange(1 << 30, 64 << 30)
                hosts[place] = _FREE.sub(rf"\g<1>{free}", hosts[place])
            document = Document(f"<hosts>{''.join(hosts)}</hosts>".encode(), "utf-8")
        caller = Caller(new_id(), AnswerForm.ENGINE, "bench")
        yield Request(caller, Entities(document, vm=vm), {}, {kind: (RequestedUnit(_UNIT),)})


if __name__ == "__main__":
    main()
