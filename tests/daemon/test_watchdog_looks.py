"""What the watchdog's looks find, one after another."""

from __future__ import annotations

import pytest

from ovirt_scheduler.daemon.watchdog import Notifier, Watchdog
from ovirt_scheduler.errors import ExecutorUnavailable
from ovirt_scheduler.processes.executor import Executor
from tests.support.waiting import wait_until


def test_calls_that_do_not_work_are_a_problem_until_they_do_again(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looking = Watchdog(Notifier({}), executor, lambda: "", look_every=0.01, slow=1.0)

    def fail(_: object) -> None:
        raise ExecutorUnavailable("no process")

    looking.start()
    try:
        for _ in range(2):
            with monkeypatch.context() as patched:
                patched.setattr(executor, "analyse", fail)
                wait_until(lambda: looking.problem, suits="no process".__eq__)
            wait_until(lambda: looking.problem, suits="".__eq__)
    finally:
        looking.stop()
    assert "the watchdog is not fed: no process" in caplog.text


def test_a_look_that_takes_long_is_a_problem_until_it_is_over(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = Watchdog(Notifier({}), executor, lambda: "", slow=0.0)
    seen: list[str] = []
    analyse = executor.analyse

    def look_meanwhile(candidate: object) -> object:
        analysis = analyse(candidate)
        seen.append(wait_until(lambda: looking.problem))
        return analysis

    monkeypatch.setattr(executor, "analyse", look_meanwhile)
    looking.start()
    try:
        wait_until(lambda: seen and not looking.problem)
    finally:
        looking.stop()
    assert "a plugin of two lines is waited for" in seen[0]
