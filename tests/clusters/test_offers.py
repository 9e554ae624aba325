"""What the engine says beforehand, and what it does not say."""

from __future__ import annotations

import pytest

from ovirt_scheduler.clusters import offers
from ovirt_scheduler.clusters.inquiries import Inquiries
from ovirt_scheduler.clusters.offers import Offers
from ovirt_scheduler.engine.inventory import Inventory
from tests.support.rest_server import Host, Reply, RestServer, Vm, id_of

WEB, MAIL = id_of("web"), id_of("mail")


@pytest.fixture
def engine(tmp_path):
    hosts = [Host("lynx"), Host("puma"), Host("lion", status="maintenance")]
    with RestServer(tmp_path, hosts, [Vm("web", "lynx"), Vm("mail", "puma")], tls=False) as made:
        yield made


@pytest.fixture
def asking(engine):
    inventory = Inventory(engine.settings(cache_seconds=0))
    yield Offers("Default", inventory, 600.0, Inquiries())
    inventory.close()


def asked(engine):
    return [query.target_of for query in engine.queries if query.target_of]


def test_the_hosts_that_would_take_a_vm_are_known_for_a_look(engine, asking):
    """The VM's own host may be among them."""
    assert asking.hosts(WEB) == {id_of("lynx"), id_of("puma")}
    assert asking.hosts(WEB) == asking.hosts(WEB)
    assert asked(engine) == [WEB]
    asking.begin_look()
    asking.hosts(WEB)
    assert asked(engine) == [WEB, WEB]


def test_an_engine_that_does_not_answer_is_not_asked_again_in_the_look(engine, asking):
    engine.broken = Reply(503, "text/html", "<html>")
    assert asking.hosts(WEB) is None
    assert asking.hosts(MAIL) is None
    engine.broken = None
    asking.begin_look()
    assert asking.hosts(MAIL) is not None
    assert asked(engine) == [WEB, MAIL]


def test_that_it_does_not_answer_stops_no_other_query(engine, asking):
    """It may only take long because it calls our own filters."""
    engine.broken = Reply(503, "text/html", "<html>")
    asking.hosts(WEB)
    engine.broken = None
    assert asking._inventory.state().problem == ""


def test_a_vm_that_it_refuses_to_tell_of_is_one_alone(engine, asking):
    engine.vms.pop(0)
    assert asking.hosts(WEB) is None
    assert asking.hosts(MAIL) is not None


def test_what_is_denied_is_tried_again_after_the_pause(engine, asking, monkeypatch):
    engine.denying = {"migration_target_of"}
    assert asking.hosts(WEB) is None
    asking.begin_look()
    assert asking.hosts(WEB) is None
    assert asked(engine) == [WEB]
    later = offers.time.monotonic() + 600
    monkeypatch.setattr(offers.time, "monotonic", lambda: later)
    engine.denying = set()
    assert asking.hosts(WEB) is not None
