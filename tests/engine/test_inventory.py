"""What the daemon asks of the engine's REST API, over real HTTP and TLS."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from ovirt_scheduler.clusters import engine_events
from ovirt_scheduler.engine import client
from ovirt_scheduler.engine.inventory import Inventory, InventoryBounds
from ovirt_scheduler.errors import EngineRefusal, EngineUnavailable
from ovirt_scheduler.model.tasks import EngineReplies, Sought
from tests.support import reading
from tests.support.rest_server import PASSWORD, Host, Reply, RestServer, id_of
from tests.support.waiting import LONG, soon

HOSTS = ["lynx", "puma", "tiger"]


def host_names(replies: EngineReplies):
    return [host.name for reply in replies.hosts for host in reading.read_hosts(reply.document)]


def test_all_hosts_are_asked_for_in_one_query(engine, asking):
    """Nothing is cut off, since max is as large as the list."""
    replies = asking.look_up(Sought(tuple(engine.ids())), soon())
    assert sorted(host_names(replies)) == HOSTS
    (query,) = engine.queries
    assert query.path == "hosts"
    assert query.most == len(HOSTS)
    assert set(query.search.split(" or ")) == {f"id={host}" for host in engine.ids()}


def test_a_long_list_is_asked_for_in_pieces(engine, asking):
    """The web server before an engine takes 8 kB of URL."""
    engine.hosts = [Host(f"node{number}") for number in range(250)]
    replies = asking.look_up(Sought(tuple(engine.ids())), soon())
    assert sorted(host_names(replies)) == sorted(host.name for host in engine.hosts)
    assert [query.most for query in engine.queries] == [100, 100, 50]
    assert max(len(query.search) for query in engine.queries) < 6000


def test_the_vm_is_asked_for_by_its_id(engine, asking):
    """Its document comes as it is."""
    replies = asking.look_up(Sought(vm=id_of("web")), soon())
    assert reading.read_vm(replies.vm.document).name == "web"
    assert [query.path for query in engine.queries] == [f"vms/{id_of('web')}"]


def test_what_the_engine_does_not_know_has_no_document(engine, asking):
    """A VM that is gone is no failure, and neither is a host."""
    replies = asking.look_up(Sought((id_of("lynx"), id_of("gone")), id_of("gone")), soon())
    assert host_names(replies) == ["lynx"]
    assert replies.vm is None


@pytest.mark.parametrize("odd", ["host-1", "x or name=*", "../hosts", "", id_of("a") + "\n"])
def test_what_is_no_id_of_the_engines_is_not_asked_for(engine, asking, odd):
    """Nothing but a UUID gets into a search or a path."""
    assert asking.look_up(Sought((odd,), odd), soon()) == EngineReplies()
    assert asking.look_up(Sought(), soon()) == EngineReplies()
    assert (engine.queries, engine.logins) == ([], 0)


def test_answers_are_kept_for_cache_seconds(engine, asking):
    """In whatever order the ids come; a VM that is not there is remembered too."""
    ids = engine.ids()
    for hosts in (ids, ids[::-1]):
        for vm in ("web", "gone"):
            asking.look_up(Sought(tuple(hosts), id_of(vm)), soon())
    assert len(engine.asked("hosts")) == 1
    assert len(engine.asked("vms")) == 2
    asking.look_up(Sought(tuple(ids[:2])), soon())
    assert len(engine.asked("hosts")) == 2


def test_without_cache_seconds_each_request_asks(engine):
    """The login is used again."""
    asking = Inventory(engine.settings(cache_seconds=0))
    for _ in range(3):
        asking.look_up(Sought(tuple(engine.ids())), soon())
    assert (len(engine.queries), engine.logins) == (3, 1)


def test_the_answers_kept_are_bounded(engine, asking):
    """The oldest goes first."""
    asking.bounds = InventoryBounds(answers=5)
    names = [f"vm{number}" for number in range(8)]
    for name in names:
        asking.look_up(Sought(vm=id_of(name)), soon())
    assert len(asking._answers) == 5
    asking.look_up(Sought(vm=id_of(names[-1])), soon())
    assert len(engine.queries) == 8
    asking.look_up(Sought(vm=id_of(names[0])), soon())
    assert len(engine.queries) == 9


def test_the_same_thing_is_asked_for_once_at_a_time(engine):
    """Whoever asks meanwhile gets that answer, even where none is kept."""
    asking = Inventory(engine.settings(cache_seconds=0))
    engine.answering.clear()
    vm = id_of("web")
    with ThreadPoolExecutor(6) as threads:
        results = threads.map(lambda _: asking.look_up(Sought(vm=vm), soon()), range(6))
        assert engine.arrived.acquire(timeout=LONG)
        assert not engine.arrived.acquire(timeout=0.3)
        engine.answering.set()
    assert len(set(results)) == len(engine.queries) == engine.logins == 1


def test_different_things_are_asked_for_side_by_side(engine, asking):
    """Both are under way before either is answered."""
    engine.answering.clear()
    with ThreadPoolExecutor(2) as threads:
        results = threads.map(
            lambda name: asking.look_up(Sought(vm=id_of(name)), soon()), ("web", "mail")
        )
        assert engine.arrived.acquire(timeout=LONG)
        assert engine.arrived.acquire(timeout=LONG)
        engine.answering.set()
    names = {reading.read_vm(replies.vm.document).name for replies in results}
    assert names == {"mail", "web"}
    assert engine.logins == 1


def test_an_expired_token_leads_to_a_new_login(engine, asking):
    """And to one more try, so that nobody notices."""
    asking.look_up(Sought(vm=id_of("web")), soon())
    engine.expire_tokens()
    assert asking.look_up(Sought(vm=id_of("mail")), soon()).vm is not None
    assert engine.logins == 2


def test_a_content_type_in_any_bytes_is_read(engine, asking):
    """Of what is XML, so that the answer counts."""
    engine.broken = Reply(
        404, "application/xml; charset=\xff", "<fault><reason>No</reason></fault>"
    )
    assert asking.look_up(Sought(vm=id_of("web")), soon()).vm is None


@pytest.mark.parametrize(
    ("kind", "body"), [("application/xml", "<fault><reason>Not found</reason></fault>"), ("", "")]
)
def test_a_vm_that_the_engine_does_not_find_is_left_out(engine, asking, kind, body):
    """It may say so without a word."""
    engine.broken = Reply(404, kind, body)
    assert asking.look_up(Sought(vm=id_of("web")), soon()).vm is None


@pytest.mark.parametrize(
    "written", [b"%s", b"%s\n", b"%s\r\n", b"%s\nanother line\n", b"\xef\xbb\xbf%s\n"]
)
def test_the_password_is_the_first_line_of_its_file(engine, written):
    """Without the end of the line, and the mark of UTF-8 that some editors write."""
    engine.password_file.write_bytes(written % PASSWORD.encode())
    assert Inventory(engine.settings()).look_up(Sought(vm=id_of("web")), soon()).vm is not None


def test_the_password_is_read_for_each_login(engine):
    """A changed one needs no restart."""
    asking = Inventory(engine.settings(cache_seconds=0))
    asking.look_up(Sought(vm=id_of("web")), soon())
    engine.password_file.write_text("nonsense\n")
    asking.look_up(Sought(vm=id_of("mail")), soon())
    engine.expire_tokens()
    with pytest.raises(EngineUnavailable, match="access_denied"):
        asking.look_up(Sought(vm=id_of("web")), soon())
    assert engine.refused == 1


def test_plain_http_is_spoken_too(tmp_path):
    """scheduler.conf allows it on the loopback interface."""
    with RestServer(tmp_path, [Host("lynx")], tls=False) as engine:
        asking = Inventory(engine.settings())
        assert host_names(asking.look_up(Sought((id_of("lynx"),)), soon())) == ["lynx"]


def test_a_query_of_a_cluster_that_the_engine_refuses_fails_alone(engine, asking):
    """The engine is there: calls and other clusters are not to wait for this one."""
    with pytest.raises(EngineRefusal, match="HTTP 400 Bad Request: Operation Failed: invalid"):
        asking.read_pages("vms", "nonsense=1", lambda _: {})
    assert asking.look_up(Sought(vm=id_of("web")), soon()).vm is not None
    assert asking.state().problem == ""
    assert asking.state().answers == {"failed": 1, "ok": 1}


def test_what_the_events_tell_is_bounded(engine, asking):
    """The daemon looks through it itself, all calls waiting meanwhile."""
    engine.broken = Reply(200, "application/xml", "<event " * (engine_events.MOST_BYTES // 7 + 1))
    with pytest.raises(EngineUnavailable, match="an answer of more than 8 MiB"):
        engine_events.ask(asking, None, soon())


def test_access_holds_a_good_token_and_never_the_password(engine, asking):
    """One login serves queries and plugins."""
    asking.look_up(Sought(vm=id_of("web")), soon())
    access = asking.access(soon())
    assert access == asking.access(soon())
    assert (access.url, access.ca_file) == (engine.url, str(engine.ca_file))
    assert [access.token] == engine.tokens
    assert PASSWORD not in repr(access)
    assert len(engine.queries) == 1


def test_a_token_that_expired_unnoticed_is_not_handed_out(engine, asking, monkeypatch):
    """What the engine has not taken for a while is tried first."""
    stale = asking.access(soon()).token
    engine.expire_tokens()
    monkeypatch.setattr(client, "_TAKEN_SECONDS", 0.0)
    fresh = asking.access(soon()).token
    assert fresh != stale
    assert [fresh] == engine.tokens


def test_a_token_is_renewed_after_five_minutes(engine, asking, monkeypatch):
    """Calls under way keep the former one; the one before it is logged out."""
    assert client._TOKEN_SECONDS == 300
    first = asking.access(soon()).token
    monkeypatch.setattr(client, "_TOKEN_SECONDS", 0.0)
    second = asking.access(soon()).token
    assert engine.tokens == [first, second]
    third = asking.access(soon()).token
    assert engine.tokens == [second, third]


def test_closing_logs_out(engine):
    """Nothing is left behind at the engine."""
    asking = Inventory(engine.settings())
    asking.access(soon())
    asking.close()
    assert (engine.tokens, engine.logouts) == ([], 1)
