"""The Ansible role of ``packaging/ansible`` on a machine of its own with a real systemd."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.command import executed
from tests.support.machine import CONF, Machine, missing, processes, show
from tests.support.paths import PROJECT

ROLE = PROJECT / "packaging" / "ansible"
PLUGIN = "def do_filter(hosts, vm, properties):\n    return hosts\n"
SETTINGS = (
    "plugins_path = $PYTHONPATH/ovirt_scheduler/plugins:/etc/ovirt/scheduler/my-plugins\n"
    "log_level = {level}\n"
)
VARIABLES = {"ovirt_scheduler_package": "", "ovirt_scheduler_plugins": ["/srv/Mine.py"]}


@pytest.mark.skipif(not shutil.which("ansible-lint"), reason="there is no ansible-lint here")
@pytest.mark.long
def test_the_role_follows_ansibles_rules():
    """Those of its profile for production."""
    ended = executed("ansible-lint", "--offline", "--nocolor", ".", cwd=ROLE)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture
def machine(tmp_path):
    """With the project installed, as on Enterprise Linux 8, the role, and a plugin to copy."""
    if why := missing():
        pytest.skip(why)
    if not Path("/usr/bin/ansible-playbook").exists():  # of /usr alone the machine has its files
        pytest.skip("there is no ansible-playbook in /usr/bin")
    booted = Machine(tmp_path / "machine")
    try:
        srv = booted.root / "srv"
        shutil.copytree(ROLE, srv / "ansible")
        (srv / "inventory.ini").write_text(
            "[ovirt_scheduler]\nlocalhost ansible_connection=local\n"
        )
        (srv / "Mine.py").write_text(PLUGIN)
        yield booted
    finally:
        booted.end()


def play(machine: Machine, level: str, *options: str, check: bool = True) -> str:
    """Run the playbook with a log_level; what it says."""
    variables = json.dumps({**VARIABLES, "ovirt_scheduler_conf": SETTINGS.format(level=level)})
    return machine.run(
        "env", "HOME=/srv", "ansible-playbook", "-i", "/srv/inventory.ini", "-e", variables,
        *options, "/srv/ansible/site.yml", check=check,
    )  # fmt: skip


@pytest.mark.long
def test_the_role_sets_up_a_machine_and_keeps_it_so(machine):
    """Only announced at first; then done; the second time nothing is left to do."""
    assert "failed=0" in play(machine, "info", "--check")
    assert not (machine.root / CONF).exists()
    assert "failed=0" in play(machine, "info")
    assert [show(machine, name) for name in ("ActiveState", "UnitFileState")] == [
        "active", "enabled",
    ]  # fmt: skip
    assert "Mine " in machine.run("ovirt-scheduler", "discover")
    assert "changed=0" in play(machine, "info")
    daemon = processes(machine)[0]
    assert "Reload the daemon" in play(machine, "debug")
    assert processes(machine)[0] == daemon  # it was not restarted
    told = play(machine, "loud", check=False)
    assert "failed=1" in told
    assert "log_level" in told
    assert "log_level = debug" in (machine.root / CONF).read_text()
