"""The shipped driver that has the engine migrate VMs: what it makes of the engine's answers."""

from __future__ import annotations

import pytest

from ovirt_scheduler import plugin
from ovirt_scheduler.model.plugins import EngineAccess, NoEngine
from ovirt_scheduler.schedulers.migration import Migration
from tests.support.rest_server import Host, Reply, RestServer, Vm, id_of

WEB, MAIL, PUMA = map(id_of, ("web", "mail", "puma"))
MARK = "ovirt-scheduler-s0199ab12cd3-here-0001-00aa"


@pytest.fixture
def engine(tmp_path, monkeypatch):
    vms = [Vm("web", host="lynx"), Vm("mail", host="lynx", status="down")]
    with RestServer(tmp_path, [Host("lynx"), Host("puma")], vms) as made:
        made.tokens.append("token")
        monkeypatch.setattr(
            plugin, "_provided", [EngineAccess(made.url, str(made.ca_file), made.tokens[0])]
        )
        yield made


def test_what_the_engine_refuses_is_told_from_what_it_took(engine):
    """With its reason; the event of what it took has the mark."""
    told = Migration().migrate({MAIL: PUMA, WEB: PUMA}, MARK)
    assert "Cannot migrate VM." in told["refused"].pop(MAIL)
    assert told == {"refused": {}, "unanswered": {}}
    assert engine.migrations == [("web", "puma")]
    assert [each.correlation_id for each in engine.events.values()][1:] == [MARK]


@pytest.mark.parametrize(
    "answer",
    [
        Reply(502, "text/html", "<html>"),
        Reply(200, "text/html", "<html>"),
        Reply(500, "application/xml", "<action><fau"),
        Reply(200, "application/xml", ""),
        Reply(200, "application/xml", "<hosts/>"),
    ],
)
def test_an_answer_that_tells_nothing_is_none(engine, answer):
    """The engine took the VM and may not take the next, which would only wait as long."""
    engine.broken_action = answer
    told = Migration().migrate({WEB: PUMA, MAIL: PUMA}, MARK)
    assert list(told["unanswered"]) == [WEB]
    assert told["unanswered"][WEB]
    assert "not asked" in told["refused"][MAIL]
    assert engine.migrations == [("web", "puma")]


def test_an_engine_that_is_away_is_told_in_words(engine, monkeypatch):
    """Of the SDK's list of libcurl's errors, which names an object in memory."""
    monkeypatch.setattr(
        plugin, "_provided", [EngineAccess("http://localhost:1/api", None, "token")]
    )
    told = Migration().migrate({WEB: PUMA}, MARK)["unanswered"][WEB]
    assert "onnect" in told
    assert "object" not in told


@pytest.mark.parametrize("lost", ["login", "access"])
def test_without_a_login_nothing_is_asked(engine, monkeypatch, lost):
    """The token is no longer good, or the daemon has none."""
    engine.tokens.clear()
    if lost == "access":
        monkeypatch.setattr(plugin, "_provided", [NoEngine("no answer")])
    told = Migration().migrate({WEB: PUMA, MAIL: PUMA}, MARK)
    assert list(told["refused"]) == [WEB, MAIL]
    assert told["unanswered"] == {}
    assert engine.migrations == []
