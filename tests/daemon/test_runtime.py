"""What answers calls, for the daemon and for commands."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from ovirt_scheduler.daemon import runtime
from ovirt_scheduler.settings import scheduler_conf
from ovirt_scheduler.settings.table import EngineSettings
from tests.support.processes import zygote_of
from tests.support.rest_server import RestServer

ENGINE = EngineSettings("https://localhost:1/api", "a@internal", Path("password"), None, 1.0)


def test_the_same_engine_keeps_its_login_when_settings_are_read_again():
    """Another one gets its own; nothing is in force before it is put there."""
    settings = dataclasses.replace(scheduler_conf.load(None, {}), engine=ENGINE)
    with runtime.started(settings) as running:
        first = running.services
        same = running.prepare(dataclasses.replace(settings, request_timeout=1.0))
        assert same.inventory is first.inventory
        moved = dataclasses.replace(ENGINE, url="https://localhost:2/api")
        other = running.prepare(dataclasses.replace(settings, engine=moved))
        assert other.inventory not in (None, first.inventory)
        assert running.prepare(dataclasses.replace(settings, engine=None)).inventory is None
        assert running.services is first
        running.use(other)
        assert running.services is other


def test_one_engine_of_former_settings_is_kept(tmp_path):
    """However often the settings change: the login, the connections and the answers of others go."""
    with RestServer(tmp_path) as engine, runtime.started(scheduler_conf.load(None, {})) as running:
        tokens = []
        for seconds in range(8):
            asked = engine.settings(cache_seconds=float(seconds))
            running.use(
                running.prepare(dataclasses.replace(running.services.settings, engine=asked))
            )
            tokens.append(running.services.inventory.access(time.monotonic() + 20).token)
        assert engine.tokens == tokens[6:]
    assert engine.tokens == []


def test_nothing_runs_when_a_command_has_ended():
    """Neither the zygote nor what it forked."""
    with runtime.started(scheduler_conf.load(None, {})) as running:
        zygote = zygote_of(running.executor)
        assert Path(f"/proc/{zygote}").exists()
    assert not Path(f"/proc/{zygote}").exists()
