"""What the daemon asks of an engine to know a cluster, page by page, over real HTTP."""

from __future__ import annotations

import os
import threading

import pytest

from ovirt_scheduler.clusters.cluster_reader import ClusterReader
from ovirt_scheduler.engine.inventory import Inventory, InventoryBounds
from ovirt_scheduler.errors import EngineUnavailable, SchedulerError, UnreadableDocument
from ovirt_scheduler.processes.documents import sdk_entities
from ovirt_scheduler.processes.documents.resource_use import MOST_STATES
from tests.support.rest_server import Host, Reply, RestServer, Vm, id_of

PAGE = 3
NAMES = [f"vm{number}" for number in range(7)]


class Engine(RestServer):
    """Runs something of a test's just before it answers a page of VMs; may know no ``max``."""

    before = None
    knows_max = True
    knows_pages = True

    def get(self, path, parameters):
        search = parameters.get("search", "")
        if self.before and path == "vms":
            self.before(search.rpartition(" page ")[2])
        if not self.knows_max:
            del parameters["max"]
        if not self.knows_pages:
            parameters["search"] = search.partition(" page ")[0]
        return super().get(path, parameters)


@pytest.fixture
def engine(tmp_path):
    hosts = [Host(name) for name in ("lynx", "puma")]
    with Engine(tmp_path, hosts, [Vm(name, host="lynx") for name in NAMES], tls=False) as server:
        yield server


@pytest.fixture
def asking(engine):
    found = Inventory(engine.settings(cache_seconds=0), bounds=InventoryBounds(page=PAGE))
    yield found
    found.close()


@pytest.fixture
def cluster(asking, executor):
    return ClusterReader("Default", asking, executor, threading.Event())


def look(cluster, calls=False, statistics=False, followed=()):
    return cluster.read(calls, statistics, followed)


def packed(reply):
    """The names of what schedulers get, by id: of two of an id the first."""
    packs, begin = [], 0
    for size in reply.pack.sizes or (reply.pack.size,):
        packs.append(os.pread(reply.pack.descriptor, size, begin))
        begin += size
    return {each.id: each.name for each in sdk_entities.unpack("Vm", packs, reply.pack.ids)}


def names(view):
    return [vm.name for vm in view.state.vms.values()]


def searches(engine):
    found = [query.search for query in engine.asked("vms")]
    engine.queries.clear()
    return found


def test_all_is_read_in_pages_for_survey_and_scheduler(engine, cluster):
    """Statistics come only when they are wanted."""
    view = look(cluster, calls=True, statistics=True)
    assert names(view) == NAMES
    assert {query.follow for query in engine.queries} == {"statistics"}
    assert searches(engine) == [f"cluster=Default sortby name page {page}" for page in (1, 2, 3)]
    (reply,) = view.replies.vms
    assert list(packed(reply).values()) == NAMES
    assert cluster.complete(view, statistics=True) is view
    assert engine.queries == []
    assert cluster.complete(look(cluster), statistics=False).replies is not None
    assert {query.follow for query in engine.queries} == {""}


def test_between_two_calls_only_what_may_have_changed_is_asked_for(engine, cluster):
    """VMs that an event names, that are on the move or were, and all hosts; no VM of a stranger's."""
    engine.vms[0].status = "powering_up"
    look(cluster)
    searches(engine)
    engine.vms[0].status, engine.vms[3].status, engine.hosts[1].status = "up", "down", "error"
    engine.vms[5].status = "paused"
    cluster.note_named(frozenset({id_of("vm3"), id_of("stranger")}))
    assert cluster.has_news
    view = look(cluster)
    statuses = [vm.status for vm in view.state.vms.values()]
    assert statuses == ["up", "up", "up", "down", "up", "paused", "up"]
    assert [host.status for host in view.state.hosts.values()] == ["up", "error"]
    moving, by_id = searches(engine)
    assert moving.startswith("cluster=Default and status!=up and status!=down and")
    assert set(by_id.split(" or ")) == {f"id={id_of(name)}" for name in ("vm0", "vm3")}
    assert not cluster.has_news
    look(cluster)
    assert engine.queries == []


def test_while_migrations_are_followed_these_vms_alone_are_asked_for(engine, cluster):
    """Not the hosts, either."""
    look(cluster)
    engine.queries.clear()
    engine.vms[1].host = "puma"
    view = look(cluster, followed=[id_of("vm1")])
    assert view.state.vms[id_of("vm1")].host == id_of("puma")
    assert [(query.path, query.search) for query in engine.queries] == [
        ("vms", f"id={id_of('vm1')}")
    ]


def test_what_was_pushed_onto_the_next_page_counts_once(engine, cluster):
    """A VM that came first has moved all others on."""
    engine.before = lambda page: page == "2" and engine.vms.append(Vm("a", host="lynx"))
    assert names(look(cluster, calls=True)) == NAMES
    engine.before = None
    assert names(look(cluster, calls=True)) == ["a", *NAMES]


def test_what_was_pulled_over_the_border_of_a_page_is_asked_for_by_its_id(engine, cluster):
    """A VM that went has moved all others up; one that went to another cluster is gone as well."""
    look(cluster, calls=True)

    def change(page):
        if page == "2":
            engine.vms[:] = [vm for vm in engine.vms if vm.name != "vm0"]
            engine.vms[-1].cluster = "Other"

    engine.before = change
    view = look(cluster, calls=True)
    assert sorted(names(view)) == NAMES[:-1]  # the first one had been read
    (reply,) = view.replies.vms
    assert packed(reply)[id_of("vm3")] == "vm3"
    engine.before = None
    assert names(look(cluster, calls=True)) == NAMES[1:-1]


def test_an_engine_that_does_not_know_max_tells_all_at_once(engine, cluster):
    """That is taken as it is."""
    engine.knows_max = False
    assert names(look(cluster, calls=True)) == NAMES
    assert len(engine.asked("vms")) == 1


def test_an_engine_that_repeats_a_page_is_told(engine, cluster):
    """Else a cluster would seem to be as large as a page."""
    engine.knows_pages = False
    with pytest.raises(
        EngineUnavailable, match="page 2 of the engine's vms repeats those before it"
    ):
        look(cluster, calls=True)


def test_a_last_page_of_what_was_pushed_onto_it_is_no_repetition(engine, cluster):
    """All VMs filled their pages, and one more came before them."""
    engine.vms[:] = engine.vms[: 2 * PAGE]

    def push(page):
        if page == "3":
            engine.vms.append(Vm("a", host="lynx"))

    engine.before = push
    assert names(look(cluster, calls=True)) == NAMES[: 2 * PAGE]


def test_an_engine_without_an_end_is_told(engine, asking, cluster):
    """It is asked for so many pages, and no more."""
    asking.bounds = InventoryBounds(page=PAGE, entities=4 * PAGE)
    engine.before = lambda _: engine.vms.extend(
        Vm(f"vm{len(engine.vms) + each:03}", host="lynx") for each in range(PAGE)
    )
    engine.vms.clear()
    with pytest.raises(EngineUnavailable, match="the engine tells of more than 12 vms"):
        look(cluster, calls=True)
    assert len(engine.asked("vms")) == 4


def test_a_page_that_fails_in_the_middle_changes_nothing(engine, cluster):
    """What was known stays known, and so does what events have named."""
    before = look(cluster, calls=True)
    cluster.note_named(frozenset({id_of("vm1")}))
    for broken, error in (
        (Reply(500, "text/html", ""), EngineUnavailable),
        (Reply(200, "application/xml", "<vms><vm id='a'>"), UnreadableDocument),
    ):
        engine.broken = None

        def fail(page, broken=broken):
            engine.broken = broken if page == "2" else None

        engine.before = fail
        with pytest.raises(error):
            look(cluster, calls=True)
        cluster._inventory._retry_at = 0.0
    engine.before = engine.broken = None
    assert cluster.has_news
    assert look(cluster, calls=True).state == before.state


def test_after_a_look_that_failed_the_next_one_asks_again(engine, cluster):
    """Else an engine that is away would seem to be back."""
    look(cluster)
    engine.broken = Reply(503, "text/html", "<html>")
    with pytest.raises(EngineUnavailable):
        look(cluster, calls=True)
    engine.broken = None
    cluster._inventory._retry_at = 0.0
    before = len(engine.queries)
    look(cluster)
    assert [query.path for query in engine.queries[before:]] == ["hosts", "vms"]


def test_a_stop_ends_the_asking(engine, asking, executor):
    """A cluster of hundreds of pages keeps no daemon from its end."""
    stopping = threading.Event()
    engine.before = lambda _: stopping.set()
    with pytest.raises(EngineUnavailable, match="the daemon stops"):
        ClusterReader("Default", asking, executor, stopping).read(True, False, ())
    assert len(engine.asked("vms")) == 1


def test_a_stop_ends_the_asking_for_ids_too(engine, asking, executor):
    """Those of a cluster that is not to be found any more may be many thousands."""
    stopping = threading.Event()
    cluster = ClusterReader("Default", asking, executor, stopping)
    look(cluster)
    engine.queries.clear()
    engine.before = lambda _: stopping.set()
    with pytest.raises(EngineUnavailable, match="the daemon stops"):
        look(cluster, followed=[vm.id for vm in engine.vms])
    assert len(engine.asked("vms")) == 1


def test_a_cluster_that_has_another_name_now_is_told(engine, cluster):
    """Though its hosts are there: the section is of a name, and a restart would not find it."""
    look(cluster)
    for each in (*engine.hosts, *engine.vms):
        each.cluster = "Renamed"
    with pytest.raises(SchedulerError, match="the engine knows no host in it"):
        look(cluster, calls=True)


def test_a_cluster_that_gets_the_name_of_another_is_the_one_that_is_read(engine, cluster):
    """However many hosts the former one has."""
    look(cluster)
    for each in (*engine.hosts, *engine.vms):
        each.cluster = "Renamed"
    engine.hosts.append(Host("lion"))
    engine.vms.append(Vm("new", host="lion"))
    view = look(cluster, calls=True)
    assert [host.name for host in view.state.hosts.values()] == ["lion"]
    assert names(view) == ["new"]


def test_a_page_of_very_many_is_refused(engine, cluster):
    """The memory that it would take is not the daemon's to give."""

    def member(number):
        return f"<vm id='00000000-0000-0000-0000-{number:012x}'/>"

    members = "".join(map(member, range(MOST_STATES + 1)))
    engine.before = lambda _: setattr(
        engine, "broken", Reply(200, "application/xml", f"<vms>{members}</vms>")
    )
    with pytest.raises(UnreadableDocument, match="it tells of more than 20,000"):
        look(cluster)


def test_with_documents_that_are_to_be_recorded_each_page_is_kept(engine, executor):
    """A replay reads them again."""
    asking = Inventory(
        engine.settings(cache_seconds=0), keeps_documents=True, bounds=InventoryBounds(page=PAGE)
    )
    cluster = ClusterReader("Default", asking, executor, threading.Event())
    view = look(cluster, calls=True)
    assert [len(reply.ids) for reply in view.replies.vms] == [3, 3, 1]
    assert all(reply.document is not None for reply in view.replies.vms)


def test_the_engines_own_vm_is_told_from_the_others(engine, cluster):
    engine.vms[2].origin = "managed_hosted_engine"
    vms = look(cluster).state.vms.values()
    assert [vm.name for vm in vms if vm.is_hosted_engine] == ["vm2"]
