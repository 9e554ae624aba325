"""Migrations that the engine is asked for: what its answers say of them."""

from __future__ import annotations

import pytest

from ovirt_scheduler.clusters import engine_events
from ovirt_scheduler.errors import AnswerLost, EngineDenial, EngineRefusal, EngineUnavailable
from tests.support.rest_server import Host, Reply, RestServer, Vm, id_of

WEB, MAIL, PUMA = map(id_of, ("web", "mail", "puma"))
MARK = "ovirt-scheduler-s0199ab12cd3-here-0001-00aa"
_REASON = "<reason>Operation Failed</reason><detail>[no]</detail>"


@pytest.fixture
def engine(tmp_path):
    vms = [Vm("web", host="lynx"), Vm("mail", host="lynx", status="down")]
    with RestServer(tmp_path, [Host("lynx"), Host("puma")], vms) as made:
        yield made


def test_what_the_engine_takes_has_the_mark_in_its_event(engine, asking):
    asking.migrate(WEB, PUMA, MARK)
    assert engine.migrations == [("web", "puma")]
    assert [each.correlation_id for each in engine.events.values()][1:] == [MARK]


def test_no_host_is_any_host(engine, asking):
    asking.migrate(WEB, "", MARK)
    assert engine.migrations == [("web", "puma")]


def test_a_refusal_has_the_engines_own_words(engine, asking):
    with pytest.raises(EngineRefusal) as refused:
        asking.migrate(MAIL, PUMA, MARK)
    assert refused.value.words == "Operation Failed: Cannot migrate VM."
    assert "HTTP 409" in str(refused.value)
    assert not isinstance(refused.value, EngineDenial)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (Reply(409, "application/xml", f"<fault>{_REASON}</fault>"), EngineRefusal, "[no]"),
        (Reply(409, "application/xml", f"<action><fault>{_REASON}</fault></action>"),
         EngineRefusal, "[no]"),
        (Reply(200, "application/xml", f"<action><fault>{_REASON}</fault></action>"),
         EngineRefusal, "[no]"),
        (Reply(404, "application/xml", f"<fault>{_REASON}</fault>"), EngineRefusal, "[no]"),
        (Reply(409, "application/xml", "<fault/>"), EngineRefusal, "HTTP 409"),
        (Reply(403, "application/xml", f"<fault>{_REASON}</fault>"), EngineDenial, "[no]"),
        (Reply(403, "text/html", "<html>"), EngineDenial, "HTTP 403"),
    ],
)  # fmt: skip
def test_a_no_is_told_from_a_lack_of_rights(engine, asking, answer, kind, words):
    engine.broken_action = answer
    with pytest.raises(EngineRefusal) as refused:
        asking.migrate(WEB, PUMA, MARK)
    assert type(refused.value) is kind
    assert words in refused.value.words


@pytest.mark.parametrize(
    "answer",
    [
        Reply(502, "text/html", "<html>"),
        Reply(503, "application/xml", f"<fault>{_REASON}</fault>"),
        Reply(409, "text/html", "<html>"),
        Reply(200, "text/html", "<html>"),
        Reply(500, "application/xml", "<action><fau"),
        Reply(200, "application/xml", "<action><status>compl"),
        Reply(200, "application/xml", ""),
        Reply(200, "application/xml", "<hosts/>"),
    ],
)
def test_an_answer_that_says_nothing_is_lost(engine, asking, answer):
    engine.broken_action = answer
    with pytest.raises(AnswerLost):
        asking.migrate(WEB, PUMA, MARK)
    assert engine.migrations == [("web", "puma")]


def test_a_token_that_has_expired_is_renewed(engine, asking):
    asking.migrate(WEB, PUMA, MARK)
    engine.finish_migrations()
    engine.expire_tokens()
    asking.migrate(WEB, "", MARK)
    assert (engine.logins, engine.migrations) == (2, [("web", "puma"), ("web", "lynx")])


def test_without_a_login_nothing_is_sent(engine, asking):
    engine.broken_login = Reply(503, "text/html", "<html>")
    with pytest.raises(EngineUnavailable) as problem:
        asking.migrate(WEB, PUMA, MARK)
    assert type(problem.value) is EngineUnavailable
    assert engine.migrations == []


def test_an_engine_that_ends_the_connection_is_not_asked_twice(engine, asking):
    """On an open connection libcurl would: the second answer would be that the VM migrates."""
    engine_events.ask(asking, None, 1e9)
    engine.hangs_up = True
    with pytest.raises(AnswerLost):
        asking.migrate(WEB, PUMA, MARK)
    assert engine.actions == 1
