"""The fake engine, asked by the SDK and by the daemon's own client."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

import ovirtsdk4
import pytest
from ovirtsdk4 import types

from ovirt_scheduler.workbench.fake_cluster import FakeCluster
from ovirt_scheduler.workbench.fake_engine import FakeEngine

LYNX, PUMA = "8a4745b8-40a2-5229-b807-2d83b53f70d9", "972c2880-7a7c-521b-a86d-9cc628861077"
WEB, MAIL = "8a6e5b90-3f27-4d1c-8e44-91b7c05d2b01", "8a6e5b90-3f27-4d1c-8e44-91b7c05d2b02"
CLUSTER_ID = "0c3f7b1a-8d52-4e0f-a5e6-7d3b2c9e4f10"  # of the demonstration
HOSTS = [
    f"""<host id="{LYNX}"><name>lynx</name><status>up</status><cluster id="c"/>
        <link rel="nics" href="/ovirt-engine/api/hosts/{LYNX}/nics"/>
        <link rel="tags" href="/ovirt-engine/api/hosts/{LYNX}/tags"/>
        <tags><tag id="t1"><name>rack-1</name></tag></tags>
        <affinity_labels><affinity_label id="l"><name>fast</name></affinity_label></affinity_labels>
        <statistics><statistic id="s"><name>memory.free</name><type>decimal</type>
        <values><value><datum>7</datum></value></values></statistic></statistics></host>""",
    f"""<host id="{PUMA}"><name>puma</name><status>maintenance</status><cluster id="c"/></host>""",
]
VMS = [
    f"""<vm id="{WEB}"><name>web</name><status>up</status><cluster id="c"/><host id="{LYNX}"/>
        <affinity_labels><affinity_label id="l"><name>fast</name></affinity_label></affinity_labels>
        </vm>""",
    f"""<vm id="{MAIL}"><name>mail</name><status>down</status><cluster id="c"/></vm>""",
]
CLUSTER = """<cluster id="c"><name>Gold</name><affinity_groups><affinity_group id="g">
    <name>pair</name><vms><vm id="w"/></vms></affinity_group></affinity_groups></cluster>"""


def cluster(puma="maintenance", web=""):
    """With puma in that status, and with more in the element of web."""
    hosts = [host.replace("<status>maintenance<", f"<status>{puma}<") for host in HOSTS]
    vms = [VMS[0].replace("</vm>", f"{web}</vm>"), VMS[1]]
    return FakeCluster(map(fromstring, hosts), map(fromstring, vms), [fromstring(CLUSTER)])


@pytest.fixture
def engine():
    made = FakeEngine()
    made.cluster = cluster()
    yield made
    made.close()


@pytest.fixture
def system(engine):
    connection = ovirtsdk4.Connection(url=engine.url, token=engine.token)
    yield connection.system_service()
    connection.close(logout=False)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("", "web mail"),
        ("host=lynx and status=up", "web"),
        ("name=WE* or name=mail", "web mail"),
        ("cluster=Gold AND name!=web", "mail"),
        (f"id={MAIL}", "mail"),
        ('host = "puma"', ""),
        ("sortby name", "mail web"),
        (f"name=web{' ' * 1000}or{' ' * 1000}name=mail", "web mail"),
        ("name=we[b]", ""),
        (f"name={'*e' * 30}", ""),
        ("name=?eb or name=*a*l", "mail"),
        ("status=* sortby name desc page 1", "web mail"),
        ("page 2", ""),
    ],
)
def test_vms_are_searched(system, search, found):
    """As the samples and the daemon do it, whatever the case."""
    assert [vm.name for vm in system.vms_service().list(search=search)] == found.split()


def test_what_an_engine_gives_as_links_is_a_link(system):
    """Unless it is followed; each can be asked for, and the names of what is referred to."""
    hosts = system.hosts_service()
    lynx, puma = hosts.list()
    assert (lynx.cluster.name, list(lynx.tags), list(puma.statistics)) == (None, [], [])
    follow_link = hosts._connection.follow_link
    assert [tag.name for tag in follow_link(lynx.tags)] == ["rack-1"]
    assert follow_link(puma.tags) == []
    assert follow_link(lynx.cluster).name == "Gold"
    lynx, puma = hosts.list(follow="tags,statistics,affinity_labels,cluster")
    assert ([tag.name for tag in lynx.tags], lynx.cluster.name) == (["rack-1"], "Gold")
    assert lynx.statistics[0].values[0].datum == 7
    statistics = hosts.host_service(LYNX).statistics_service()
    assert statistics.list()[0].name == statistics.statistic_service("s").get().name
    assert [host.name for host in hosts.list(max=1)] == ["lynx"]
    assert hosts.list(search="tag=rack-1")[0].name == "lynx"


def test_tags_labels_and_groups_can_be_listed(system):
    """Who has a label, too."""
    assert [tag.name for tag in system.tags_service().list()] == ["rack-1"]
    (label,) = system.affinity_labels_service().list()
    service = system.affinity_labels_service().label_service(label.id)
    assert [host.id for host in service.hosts_service().list()] == [LYNX]
    assert [vm.id for vm in service.vms_service().list()] == [WEB]
    cluster = system.clusters_service().cluster_service("c")
    (group,) = cluster.affinity_groups_service().list()
    members = cluster.affinity_groups_service().group_service(group.id).vms_service()
    assert (group.name, [vm.id for vm in members.list()]) == ("pair", ["w"])


def test_a_migration_is_done_and_recorded(engine, system):
    """To a host by name or id, or to any."""
    engine.cluster = cluster(puma="up")
    web = system.vms_service().vm_service(WEB)
    web.migrate(host=types.Host(id=PUMA))
    assert web.get().host.id == PUMA
    web.migrate(host=types.Host(name="lynx"))
    web.migrate(query={"correlation_id": "ours"})
    assert engine.cluster.migrations == [("web", "puma"), ("web", "lynx"), ("web", None)]
    with pytest.raises(ovirtsdk4.Error, match="has no host ocelot to migrate web to"):
        web.migrate(host=types.Host(name="ocelot"))


@pytest.mark.parametrize(
    ("puma", "web", "words"),
    [
        ("maintenance", "", "Host puma is in maintenance."),
        ("up", "<placement_policy><affinity>pinned</affinity></placement_policy>", "non migratable"),
        ("up", f'<placement_policy><hosts><host id="{LYNX}"/></hosts></placement_policy>',
         "The host puma did not satisfy internal filter PinToHost."),
    ],
)  # fmt: skip
def test_what_an_engine_would_refuse_is_refused(engine, system, puma, web, words):
    """With a fault, and with an event that has the correlation id."""
    engine.cluster = cluster(puma, web)
    service = system.vms_service().vm_service(WEB)
    with pytest.raises(ovirtsdk4.Error, match=rf"Cannot migrate VM\..*{words}") as refused:
        service.migrate(host=types.Host(id=PUMA), query={"correlation_id": "ours"})
    assert refused.value.code == 409
    (event,) = system.events_service().list(from_=0)
    assert (event.code, event.correlation_id, event.vm.id) == (65, "ours", WEB)
    assert words in event.description
    assert engine.cluster.unknown == []


def test_it_says_beforehand_which_hosts_could_take_a_vm(engine, system):
    def targets():
        hosts = system.hosts_service().list(query={"migration_target_of": WEB})
        return [host.name for host in hosts]

    assert targets() == ["lynx"]
    engine.cluster = cluster(puma="up")
    assert targets() == ["lynx", "puma"]


def test_events_of_a_migration_are_listed_the_newest_first(engine, system):
    """After a number, as many as are asked for."""
    engine.cluster = cluster(puma="up")
    system.vms_service().vm_service(WEB).migrate(host=types.Host(id=PUMA))
    events = system.events_service()
    assert [event.code for event in events.list()] == [63, 62]
    assert [event.code for event in events.list(from_=1, max=1)] == [63]


def test_what_it_does_not_know_is_told_and_recorded(engine, system):
    """With the request."""
    for ask, told in (
        (lambda: system.hosts_service().host_service(LYNX).nics_service().list(),
         rf"has no hosts/{LYNX}/nics; there it has tags, statistics, affinitylabels"),
        (lambda: system.vms_service().list(follow="nics"), "cannot follow nics there; it follows tags"),
        (lambda: system.vms_service().vm_service(LYNX).get(), f"has nothing at vms/{LYNX}"),
        (lambda: system.vms_service().vm_service(WEB).stop(), r"changes nothing.*\(POST .*/stop\)"),
        (lambda: system.vms_service().vm_service(WEB).remove(), r"changes nothing.*\(DELETE"),
        (lambda: system.vms_service().list(search="memory > 1"), "cannot search for 'memory > 1'"),
    ):  # fmt: skip
        with pytest.raises(ovirtsdk4.Error, match=told):
            ask()
    assert len(engine.cluster.unknown) == 6


def test_nobody_else_on_the_machine_may_ask_it(engine):
    """The token is another one each time, and nobody else is told; there is no login."""
    for wrong in ({"username": "any@internal", "password": "any"}, {"token": "a-token"}):
        connection = ovirtsdk4.Connection(url=engine.url, **wrong)
        with pytest.raises(ovirtsdk4.Error):
            connection.system_service().hosts_service().list()
        connection.close(logout=False)
