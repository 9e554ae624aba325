"""The commands snapshot and simulate."""

from __future__ import annotations

from ovirt_scheduler.workbench.snapshot import Snapshot
from tests.support.command import run
from tests.support.rest_server import Host, RestServer, Vm, id_of


def test_snapshot_saves_a_cluster_of_the_engine(tmp_path):
    """Of the engine of the settings; who names none is told."""
    conf, file = tmp_path / "scheduler.conf", tmp_path / "cluster.xml.gz"
    call = ("snapshot", "default", "-f", str(file), "--config", str(conf))
    conf.write_text("")
    status, out, err = run(tmp_path, *call)
    assert (status, out) == (2, "")
    assert "there is no section [engine] in the settings" in err
    with RestServer(tmp_path, [Host("lynx")], [Vm("web", host="lynx")]) as engine:
        conf.write_text(engine.conf())
        status, out, err = run(tmp_path, *call)
    taken = Snapshot.read(file)
    assert (status, out, err) == (
        0, f"{file}: 1 hosts and 1 VMs of default, {taken.taken}\n", "",
    )  # fmt: skip
    assert ([*taken.hosts], [*taken.vms]) == ([id_of("lynx")], [id_of("web")])
