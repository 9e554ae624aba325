"""What the engine answers of ids that cannot be used: it counts as not told, and is said."""

from __future__ import annotations

import pytest

from tests.support.rest_server import Host, Reply, RestServer, Vm, id_of

LYNX, PUMA, WEB = id_of("lynx"), id_of("puma"), id_of("web")
OTHER = id_of("another")

PLUGINS = {
    "Named": "def do_filter(hosts, vm, properties):\n"
    "    return [host for host in hosts if host.name and vm.name]\n",
    "Mover": "from ovirt_scheduler.plugin import LoadBalancer\n"
    "class Mover(LoadBalancer):\n"
    "    topic = None\n"
    "    def load_balance(self, hosts, vms, properties):\n"
    "        return {vm: hosts for vm in vms if vm.name}\n",
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    hosts, vms = [Host("lynx"), Host("puma")], [Vm("web", host="lynx")]
    with RestServer(tmp_path_factory.mktemp("engine"), hosts, vms) as server:
        yield server


@pytest.fixture(scope="module")
def daemon(start_daemon, engine):
    return start_daemon(PLUGINS, f"ssl = false\n{engine.conf(cache_seconds=0)}")


@pytest.fixture
def says(engine):
    """Has the engine answer every query with that document, for a test."""

    def say(document):
        engine.broken = Reply(200, "application/xml", document)

    yield say
    engine.broken = None


UNREADABLE = [
    ("<hosts><host id='x'", "the engine's reply cannot be read: {subject}, line 1, column "),
    (
        "<fault><reason>no</reason></fault>",
        "cannot be read: {subject}, line 1, column 1: expected ",
    ),
]


@pytest.mark.parametrize(("document", "words"), UNREADABLE)
def test_a_document_that_cannot_be_read_is_in_the_answer_and_in_the_log(
    daemon, engine, says, document, words
):
    """Of hosts and of a VM; a line of the log for each, with the id of the request."""
    says(document)
    with daemon.proxy("/engine") as proxy:
        answers = [
            proxy.runFilters(["Named"], [LYNX], engine.vm_document("web"), {}),
            proxy.runFilters(["Named"], engine.hosts_document(), WEB, {}),
            proxy.loadBalance("Mover", engine.hosts_document(), [WEB], {}),
        ]
    for subject, answer in zip(("hosts", "VMs", "VMs"), answers):
        (error,) = answer["errors"]
        assert words.format(subject=subject) in error
        assert f": {error}\n" in daemon.log


OF_ANOTHER = "the engine told of {what} that it was not asked for (1 dropped: {stranger})"


def test_a_host_that_was_not_asked_for_counts_as_not_told(daemon, engine, says):
    """The one that was is read."""
    says(engine.hosts_document())
    answer = daemon.engine.runFilters(["Named"], [LYNX, OTHER], engine.vm_document("web"), {})
    assert answer["result"] == [LYNX]
    assert answer["errors"] == [OF_ANOTHER.format(what="hosts", stranger=PUMA)]
    assert f": {answer['errors'][0]}\n" in daemon.log


def test_a_vm_that_was_not_asked_for_counts_as_not_told(daemon, engine, says):
    """Whichever way it was asked for; the id stays the caller's."""
    says(engine.vm_document("web"))
    error = OF_ANOTHER.format(what="VMs", stranger=WEB)
    with daemon.proxy("/engine") as proxy:
        filtered = proxy.runFilters(["Named"], engine.hosts_document(), OTHER, {})
        moved = proxy.loadBalance("Mover", engine.hosts_document(), [OTHER], {})
    assert (filtered["result"], filtered["errors"]) == ([], [error])
    assert (moved["result"], moved["errors"]) == ({}, [error])


def test_an_id_in_capitals_is_the_same_id(daemon):
    """An engine finds it, and writes it in small letters; the answer has the caller's."""
    answer = daemon.engine.runFilters(["Named"], [LYNX.upper()], WEB.upper(), {})
    assert (answer["result"], answer.get("errors")) == ([LYNX.upper()], None)
