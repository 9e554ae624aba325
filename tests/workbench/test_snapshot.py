"""A cluster in a file: taken from an engine, written, read, and refused where it is wrong."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

import pytest

from ovirt_scheduler.errors import (
    BadInput,
    BadUsage,
    EngineUnavailable,
    NotOverwritten,
    SchedulerError,
)
from ovirt_scheduler.workbench import snapshot
from ovirt_scheduler.workbench.snapshot import Snapshot
from tests.support.rest_server import Host, Reply, RestServer, Vm, id_of

OPENING = '<cluster_snapshot version="1" cluster="Default" taken="2026-01-31T08:00:00Z">\n'
HOSTS = '<hosts>\n<host id="a"/>\n</hosts>\n'
VMS = "<vms></vms>\n"


def test_a_cluster_is_taken_page_by_page_with_statistics(tmp_path):
    """Of the cluster alone, all of it, with statistics and tags followed."""
    hosts = [Host("lynx", measured=True), Host("puma"), Host("far", cluster="Other")]
    vms = [Vm(f"vm{number:03}", host="lynx", busy=7) for number in range(230)]
    told = []
    with RestServer(tmp_path, hosts, vms) as engine:
        taken = snapshot.take(engine.settings(), "Default", told.append)
        queries = [(each.search, each.most, each.follow) for each in engine.asked("vms")]
    assert [*taken.hosts] == [id_of("lynx"), id_of("puma")]
    assert [*taken.vms] == [vm.id for vm in vms]
    assert [*taken.clusters] == [id_of("cluster Default")]
    assert b"<datum>7</datum>" in taken.vms[id_of("vm229")]
    assert queries == [
        (f'cluster="Default" sortby name page {page}', 200, "statistics,tags,affinity_labels")
        for page in (1, 2)
    ]
    assert told[-1] == "230 vms"
    assert engine.logouts == 1


@pytest.mark.parametrize("clusters", [{}, {"c": b'<cluster id="c"/>'}])
@pytest.mark.parametrize("name", ["cluster.xml", "cluster.xml.gz"])
def test_what_is_written_is_read(tmp_path, name, clusters):
    """As it was, packed where the name says so, and written over a former one."""
    path = tmp_path / name
    hosts = {"a": '<host id="a"><name>lynx &amp; ö</name></host>'.encode()}
    kept = Snapshot("Default", "2026-01-31T08:00:00Z", hosts, {}, clusters)
    path.write_bytes(b"former")
    kept.write(path)
    assert Snapshot.read(path) == kept
    assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    expected = b'<hosts>\n<host id="a"><name>lynx &amp; \xc3\xb6</name></host>\n</hosts>'
    assert kept.document("hosts").data == expected


def test_what_may_hold_passwords_is_left_out(tmp_path):
    """Of a VM: its initialization and payloads, as the engine writes them."""
    vm = (
        '<vm id="a"><initialization><root_password>x</root_password></initialization><name>web'
        "ö</name><payloads><payload/></payloads><initialization/><cpu><name>payloads</name></cpu>"
        "<template><payloads/></template></vm>"
    )
    (tmp_path / "file").write_text(
        f"{OPENING}{HOSTS}<vms>{vm}<vm id='b'/></vms></cluster_snapshot>", "utf-8"
    )
    kept = '<vm id="a"><name>webö</name><cpu><name>payloads</name></cpu><template /></vm>'
    assert Snapshot.read(tmp_path / "file").vms == {"a": kept.encode(), "b": b"<vm id='b'/>"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ":1: no element found"),
        ("<hosts/>", ":1: <hosts> where <cluster_snapshot> is expected"),
        ('<cluster_snapshot version="2"><hosts/><vms/></cluster_snapshot>', ":1: version 2 of"),
        (f"{OPENING}{HOSTS}</cluster_snapshot>", ": has no <vms>"),
        (f"{OPENING}{HOSTS}{HOSTS}</cluster_snapshot>", ":5: <hosts> where one <hosts> and one"),
        (f"{OPENING}\n<hosts>\n<vm id='a'/>", ":4: <vm> where a <host> with an id is expected"),
        (f"{OPENING}<hosts>\n<host/>", ":3: <host> where a <host> with an id is expected"),
        (f"{OPENING}<vms>\n<vm id='a'/>\n<vm id='a'/>", ":4: a second vm with the id a"),
        (f"{OPENING}{HOSTS}{VMS}", ":6: no element found"),
        (f"{OPENING}<hosts>\n<host id='a'>{'<x>' * 101}", ":3: more than 100 levels of elements"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]>\n<a/>", ":1: a document type is not allowed"),
        (f"{OPENING}<hosts xmlns:a='b'>\n<host id='a' a:b='c'/>", ":2: a namespace is not allowed"),
        (f"{OPENING}<hosts>\n\udcff", ":3: not well-formed (invalid token), or not UTF-8"),
        (f"{OPENING}\0", ":1: is not UTF-8"),
        (f"{OPENING.replace('Default', 'a]]')}{HOSTS}{VMS}</cluster_snapshot>", ":1: 'a]]' is not the"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_snapshot_is_refused_with_its_line(tmp_path, text, problem):
    """Whoever edits one by hand finds the place."""
    path = tmp_path / "cluster.xml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInput) as refused:
        Snapshot.read(path)
    assert str(refused.value).startswith(f"{path}{problem}")


def test_a_document_in_another_encoding_is_refused(tmp_path):
    """With a mark of its bytes' order, or none."""
    path = tmp_path / "hosts.xml"
    for encoding in ("utf-16", "utf-16-le"):
        path.write_bytes("<hosts><host id='a'/></hosts>".encode(encoding))
        with pytest.raises(BadInput, match="1: is not UTF-8"):
            Snapshot.of_documents(path, None)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_snapshot_comes_from_a_pipe_as_from_a_file(tmp_path, suffix):
    """As <(...) in a shell has it, packed or not."""
    whole = Snapshot("Default", "", {"a": b'<host id="a"/>'}, {})
    path = tmp_path / f"cluster.xml{suffix}"
    whole.write(path)
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert Snapshot.read(Path(f"/dev/fd/{program.stdout.fileno()}")) == whole


def test_a_pipe_with_a_name_and_a_device_are_refused(tmp_path):
    """Where nobody writes, whoever opens them waits for good."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/tty")):
        with pytest.raises(BadInput, match="cannot be read: it is not a plain file"):
            Snapshot.read(path)


def test_a_file_that_cannot_be_read_or_written_is_told(tmp_path):
    """One that is not there, too long, cut off or broken; a folder that is not there."""
    path = tmp_path / "cluster.xml.gz"
    whole = gzip.compress(os.urandom(5000))
    for data, problem in (
        (None, "cannot be read: No such file or directory"),
        (whole[:2000], "cannot be unpacked: "),
        (whole[:20] + b"\xff" * 20, "cannot be "),
    ):
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(BadInput, match=problem):
            Snapshot.read(path)
    with pytest.raises(NotOverwritten, match="cannot be written: No such file"):
        Snapshot("Default", "", {}, {}).write(tmp_path / "nowhere" / "cluster.xml")


def test_an_engine_that_does_not_tell_of_the_cluster_is_told(tmp_path):
    """It knows no such cluster, or answers with something else."""
    with RestServer(tmp_path, [Host("lynx")]) as engine:
        with pytest.raises(SchedulerError, match="knows no host in the cluster Nowhere"):
            snapshot.take(engine.settings(), "Nowhere")
        engine.broken = Reply(200, "application/xml", "<hosts>\n<cluster/></hosts>")
        with pytest.raises(
            EngineUnavailable, match=r"the answer of .*/clusters:2: <cluster> where a"
        ):
            snapshot.take(engine.settings(), "Default")
        with pytest.raises(BadUsage, match=r"^'De\*' is not the name of a cluster"):
            snapshot.take(engine.settings(), "De*")


class WithoutPages(RestServer):
    """Gives the first page, whichever was asked for."""

    def get(self, path, parameters):
        search = parameters["search"].partition(" page ")[0]
        return super().get(path, {**parameters, "search": search})


def test_an_engine_that_repeats_a_page_is_told(tmp_path):
    """Else the file would lack VMs, and nobody would know."""
    vms = [Vm(f"vm{number:03}") for number in range(201)]
    with (
        WithoutPages(tmp_path, [Host("lynx")], vms) as engine,
        pytest.raises(
            EngineUnavailable, match="page 2 of the engine's vms repeats those before it"
        ),
    ):
        snapshot.take(engine.settings(), "Default")
