"""A plugin is tried on what a recorded decision was about."""

from __future__ import annotations

from tests.support.command import run
from tests.support.paths import PROJECT
from tests.support.waiting import wait_until

HOSTS = (PROJECT / "demo" / "hosts.xml").read_text("utf-8")
FAILS = """\
def do_filter(hosts, vm, properties):
    raise RuntimeError(f"{len(hosts)} hosts, {vm.name}, {properties}")
"""


def test_what_status_names_to_try_a_failing_unit_with_works_as_typed(start_daemon, tmp_path):
    daemon = start_daemon({"Fails": FAILS}, "ssl = false\nrecord = true", folder=tmp_path)
    vm = '<vm id="8a6e5b90-3f27-4d1c-8e44-91b7c05d2b01"><name>web</name></vm>'
    daemon.design.runFilters(["Fails"], HOSTS, vm, {"most": "5"})
    failure = "4 hosts, web, {'most': '5'}"
    wait_until(lambda: failure in run(tmp_path, "status")[1])
    hint = run(tmp_path, "status")[1].partition("try it on the last one: ovirt-scheduler ")[2]
    words = hint.splitlines()[0].split()
    wait_until(lambda: "not recorded" not in run(tmp_path, *words)[2])
    status, out, _ = run(tmp_path, *words)
    assert (status, f"problem: Fails: RuntimeError: {failure}" in out) == (1, True)
    changed = run(tmp_path, *words, "--property", "most=6")[1]
    assert "4 hosts, web, {'most': '6'}" in changed
    for more, why in (("--vm", "--decision has hosts and VMs"), ("--hosts", "leave out the other")):
        assert why in run(tmp_path, *words, more, str(PROJECT / "demo" / "vm.xml"))[2]


def test_a_decision_without_documents_is_no_input_and_what_is_instead_is_said(tmp_path):
    (tmp_path / "Fails.py").write_text(FAILS)
    status, _, err = run(tmp_path, "try", str(tmp_path / "Fails.py"), "--decision", "12")
    assert status != 0
    assert "history" in err or "snapshot" in err
