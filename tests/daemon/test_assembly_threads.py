"""What the daemon's threads look after, such as certificates, and what cannot be started is tried again."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from ovirt_scheduler.clusters import threads
from ovirt_scheduler.daemon import assembly
from ovirt_scheduler.daemon.assembly import Assembly
from ovirt_scheduler.daemon.watchdog import Notifier
from ovirt_scheduler.model.losses import Loss, WorstLoss
from ovirt_scheduler.settings import scheduler_conf
from ovirt_scheduler.settings.table import Settings
from ovirt_scheduler.settings.value_types import Drive
from tests.support.certificates import write_pair
from tests.support.rest_server import Host, Reply, RestServer
from tests.support.waiting import LONG, wait_until


def test_a_thread_that_goes_on_after_a_mistake_is_shown_until_it_is_over(tmp_path, caplog):
    """By the health, by the status and in the metrics."""
    conf = tmp_path / "scheduler.conf"
    conf.write_text("listening_port = 0\nssl = false\n")
    made = Assembly(scheduler_conf.load(conf, {}), tmp_path, Notifier({}))
    try:
        for trouble in (made.runtime.executor.trouble, made.runtime.registry.trouble):
            trouble.note(IndexError("odd"))
            assert made._unwell() == f"{trouble.work}: IndexError: odd"
            status = made.status()
            told = f"the daemon made a mistake: {made._unwell()}"
            assert told in status["line"]
            assert not status["well"]
            trouble.clear()
            assert made._unwell() == ""
            assert told not in made.status()["line"]
        assert [each.failures for each in made.observed().threads] == [1, 1]
    finally:
        made.stop(0)


def test_certificates_are_looked_at_once_a_thread_can_be_started(tmp_path, monkeypatch):
    """Not a day later."""
    conf = tmp_path / "scheduler.conf"
    conf.write_text("listening_port = 0\nssl = false\n")
    made = Assembly(scheduler_conf.load(conf, {}), tmp_path, Notifier({}))
    looked = threading.Event()
    monkeypatch.setattr(made, "_look_at_certificates", looked.set)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", mock.Mock(side_effect=RuntimeError))
            with pytest.raises(RuntimeError):
                made._line()
        made._line()
        assert looked.wait(LONG)
    finally:
        made.stop(0)


def test_certificates_are_looked_at_once_a_day(tmp_path, monkeypatch, caplog):
    """When systemd is told the status, each half minute; a file that hangs does not hold that up."""
    write_pair(tmp_path / "certificate", 12)
    conf = tmp_path / "scheduler.conf"
    conf.write_text("listening_port = 0\n")
    made = Assembly(scheduler_conf.load(conf, {}), tmp_path, Notifier({}))

    def told() -> int:
        """How often, when those who look have looked."""
        for each in [each for each in threading.enumerate() if each.name == "certificates"]:
            each.join(LONG)
        return caplog.text.count("12 days left")

    for _ in range(2):
        made._line()
        assert told() == 1
    monkeypatch.setattr(assembly, "_DAY", 0.0)
    made._look_at_certificates()
    made._line()
    assert told() == 3
    made.stop(0)


def test_a_certificate_that_was_replaced_without_a_reload_is_told(tmp_path, caplog):
    """Callers get the former one, which would expire although the file has many days left."""
    write_pair(tmp_path / "certificate", 12)
    conf = tmp_path / "scheduler.conf"
    conf.write_text("listening_port = 0\n")
    made = Assembly(scheduler_conf.load(conf, {}), tmp_path, Notifier({}))
    write_pair(tmp_path / "certificate", 300)
    made._look_at_certificates()
    assert "certificate.pem: was replaced, and callers still get the former one" in caplog.text
    caplog.clear()
    made.renew(scheduler_conf.load(conf, {}))
    assert "was replaced" not in caplog.text
    made.stop(0)


def test_settings_that_cannot_be_put_to_use_leave_all_as_it_was(tmp_path, monkeypatch):
    """All is made before anything is replaced, and before clusters are let be."""
    made = Assembly(driving(tmp_path, 90), tmp_path / "state", Notifier({}))
    former, drive = made.settings, made._drive
    with monkeypatch.context() as patched:
        patched.setattr(threads, "ClusterThreads", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            made.renew(driving(tmp_path, 80))
    assert made.settings is former
    assert made._drive is drive
    assert not drive._stopping.is_set()
    made.stop(0)


def test_clusters_whose_threads_cannot_be_started_are_looked_after_later(
    tmp_path, monkeypatch, caplog
):
    """Under TasksMax, say: the settings are in force, and the watchdog's thread tries again."""

    def alive() -> list[bool]:
        return [thread.is_alive() for thread in made._drive._threads]

    def start(thread: threading.Thread) -> None:
        if thread.name == "cluster Default":
            raise RuntimeError("can't start new thread")
        start_thread(thread)

    start_thread = threading.Thread.start
    made = Assembly(driving(tmp_path, 90), tmp_path / "state", Notifier({}))
    made._start_drive()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        made.renew(driving(tmp_path, 80))
        assert made.settings.request_timeout == 80.0
        assert not all(alive())
        assert "not every cluster is looked after now: can't start new thread" in caplog.text
    made._line()
    assert all(alive())
    made.stop(0)


def test_a_cluster_that_is_let_be_begins_anew_when_it_is_looked_after_again(tmp_path):
    """What it could lose then is old; that of another one stays."""
    made = Assembly(driving(tmp_path, 90), tmp_path / "state", Notifier({}))
    losses = made._drive_memory.worst_losses
    for name in ("Default", "Former"):
        losses[name] = WorstLoss(Loss("lynx"), 1.0)
    made.renew(driving(tmp_path, 80))
    assert [*losses] == ["Default"]
    made.renew(replace(made.settings, drive=Drive.OFF))
    assert losses == {}
    made.stop(0)


def test_without_a_thread_to_look_at_plugins_it_is_tried_again(tmp_path, monkeypatch, caplog):
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made = Assembly(driving(tmp_path, 90), tmp_path / "state", Notifier({}))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        made._watch_plugins()
    assert "the plugins' folders cannot be looked at now: can't start new thread" in caplog.text
    made._line()
    assert made.runtime.registry._watching.is_alive()
    made.stop(0)
    made.runtime.registry._watching.join(LONG)


def test_the_history_is_closed_before_an_engine_is_asked_to_log_out(tmp_path):
    """It may be silent, and systemd kills a daemon that takes too long to end."""
    with RestServer(tmp_path, [Host("lynx")], tls=False) as engine:
        (tmp_path / "scheduler.conf").write_text(
            f"ssl = false\nlistening_port = 0\n{engine.conf()}\n"
        )
        state = tmp_path / "state"
        made = Assembly(scheduler_conf.load(tmp_path / "scheduler.conf", {}), state, Notifier({}))
        history, open_then, logout = made.runtime.history, [], engine.logout

        def logged_out(form: Mapping[str, str]) -> Reply:
            open_then.append((state / "history.sqlite-wal").exists())
            return logout(form)

        engine.logout = logged_out
        history.start()
        made.runtime.services.inventory.access(time.monotonic() + LONG)
        made.runtime.keep_event({"event": "started"})
        wait_until(lambda: not history.waiting)
        assert (state / "history.sqlite-wal").exists()
        made.stop(0)
        assert open_then == [False]


def driving(folder: Path, request_timeout: int) -> Settings:
    """Settings of a daemon that looks after a cluster of an engine which is away."""
    password = folder / "password"
    password.write_text("secret\n")
    password.chmod(0o600)
    conf = folder / "scheduler.conf"
    conf.write_text(
        f"ssl = false\nlistening_port = 0\nrequest_timeout = {request_timeout}\n"
        "drive = dry-run\n[engine]\nurl = https://localhost:1/ovirt-engine/api\n"
        f"username = a@internal\npassword_file = {password}\n[clusters]\n[[Default]]\n"
    )
    return scheduler_conf.load(conf, {})
