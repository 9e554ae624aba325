"""plugin_user where the program starts: which commands respect it, and what they refuse."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.settings import scheduler_conf
from tests.support.command import spawned
from tests.support.paths import PROJECT
from tests.support.processes import NOBODY, STRANGER, for_all_users

pytestmark = pytest.mark.long


def command(
    folder: Path, *words: str, before: Sequence[str] = (), **how: Any
) -> tuple[int, str, str]:
    """``ovirt-scheduler`` as root, with plugin_user, on plugins in a folder."""
    conf = folder / "scheduler.conf"
    conf.write_text(f"plugin_user = {NOBODY.pw_name}\n")
    return spawned(folder, *words, "--config", conf, before=for_all_users(*before), **how)


@pytest.fixture
def folder(as_root: None, room: Path) -> Iterator[Path]:
    """An empty folder that every user can enter."""
    made = Path(tempfile.mkdtemp(dir=room))
    made.chmod(0o755)
    yield made


TELLS = (
    "import os\ndef do_filter(hosts, vm, properties):\n    print(os.getuid())\n    return hosts\n"
)


def test_commands_that_run_plugins_respect_it(folder):
    """try and --local, where they are root's."""
    (folder / "tells.py").write_text(TELLS)
    (folder / "hosts").write_text("host-1")
    hosts = ("--hosts", str(folder / "hosts"))
    _, tried, said = command(folder, "try", str(folder / "tells.py"), *hosts)
    assert f"stdout:\n{NOBODY.pw_uid}\n" in tried, said
    status, _, said = command(
        folder, "filter", "tells", "--local", "--plugins", str(folder), *hosts
    )
    assert status == 0, said


def test_check_tells_of_a_folder_that_is_closed_to_that_user(folder):
    """With the command that opens it; the daemon would not load the plugin either."""
    closed = folder / "closed"
    plugins = closed / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "tells.py").write_text(TELLS)
    closed.chmod(0o700)
    status, told, _ = command(folder, "check", "--plugins", str(plugins))
    assert status == 1
    assert (
        f"{plugins}/tells.py: cannot be run in its folder: {closed} is closed to "
        f"{NOBODY.pw_name}, whom plugins run as; mend it: chmod o+x {closed}\n"
    ) in told
    closed.chmod(0o711)
    assert command(folder, "check", "--plugins", str(plugins))[1].startswith("certificate")


def test_that_user_may_own_no_plugin(folder):
    """Else a plugin could rewrite another, and what is run would not be the administrator's."""
    (folder / "tells.py").write_text(TELLS)
    os.chown(folder / "tells.py", NOBODY.pw_uid, NOBODY.pw_gid)
    status, told, _ = command(folder, "check", "--plugins", str(folder))
    assert status == 1
    assert f"belongs to {NOBODY.pw_name}, not root; mend it: chown root" in told


def test_root_without_the_right_to_change_users_is_told_so(folder):
    """As under a unit that takes all capabilities away."""
    before = ("setpriv", "--bounding-set", "-setuid", "--")
    status, _, said = command(folder, "check", before=before)
    assert status == os.EX_SOFTWARE
    assert "plugin_user: root may not change users here: it lacks CAP_SETUID" in said
    assert "did not start (exit status 1)" in said


def test_capabilities_that_outlive_the_change_stop_the_start(folder):
    """SECBIT_NO_SETUID_FIXUP has the kernel leave them."""
    before = ("setpriv", "--securebits", "+no_setuid_fixup", "--")
    status, _, said = command(folder, "check", before=before)
    assert status == os.EX_SOFTWARE
    assert "plugin_user: the change left capabilities (CapPrm: " in said


def test_an_interpreter_that_is_closed_to_that_user_is_told(folder):
    """Plugins could import nothing."""
    (folder / "closed").mkdir(mode=0o700)
    shutil.copytree(PROJECT / "ovirt_scheduler", folder / "closed" / "ovirt_scheduler")
    status, _, said = command(folder, "check", cwd=folder / "closed")
    assert status == os.EX_SOFTWARE
    assert f"cannot read {folder}/closed/ovirt_scheduler/processes/worker/zygote.py" in said


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no-such-user", "there is no user no-such-user; make it, or name another"),
        ("root", "root has the rights of root, or of root's group; name a user without"),
    ],
)
def test_a_user_that_will_not_do_is_a_mistake_in_the_settings(tmp_path, name, problem):
    """Told with the line."""
    file = tmp_path / "scheduler.conf"
    file.write_text(f"\nplugin_user = {name}\n")
    with pytest.raises(ConfigError) as caught:
        scheduler_conf.load(file, {})
    assert str(caught.value) == f"{file}:2: plugin_user: {problem}"


def test_a_log_that_others_could_lead_elsewhere_stops_the_start(folder):
    """What root writes there would go where a link says."""
    logs = folder / "logs"
    logs.mkdir()
    os.chown(logs, NOBODY.pw_uid, NOBODY.pw_gid)
    conf = folder / "scheduler.conf"
    conf.write_text(f"log_file = {logs}/log\nplugin_user = {NOBODY.pw_name}\n")
    with pytest.raises(ConfigError) as caught:
        scheduler_conf.load(conf, {})
    assert str(caught.value) == (
        f"{conf}:1: log_file: {logs}: belongs to {NOBODY.pw_name}, not root; "
        f"mend it: chown root {logs}"
    )


def test_a_log_that_belongs_to_that_user_stops_the_start(folder):
    """The daemon ran as that user before, and plugins could read and rewrite it."""
    log = folder / "log"
    log.touch()
    os.chown(log, NOBODY.pw_uid, NOBODY.pw_gid)
    conf = folder / "scheduler.conf"
    conf.write_text(f"log_file = {log}\nplugin_user = {NOBODY.pw_name}\n")
    with pytest.raises(ConfigError, match=f"log_file: {log}: belongs to {NOBODY.pw_name}"):
        scheduler_conf.load(conf, {})


def test_without_root_it_is_a_mistake_for_the_daemon_alone(folder):
    """serve ends with status 78; who tries a plugin runs it as themselves."""
    (folder / "tells.py").write_text(TELLS)
    (folder / "hosts").write_text("host-1")
    os.chown(folder, STRANGER, STRANGER)
    number = str(STRANGER)
    before = ("setpriv", "--reuid", number, "--regid", number, "--clear-groups", "--")
    status, _, said = command(folder, "serve", before=before)
    assert status == os.EX_CONFIG
    assert (
        f"scheduler.conf:1: plugin_user: only root can run plugins as {NOBODY.pw_name}; start it "
        "as root, or remove the line"
    ) in said
    words = ("try", str(folder / "tells.py"), "--hosts", str(folder / "hosts"))
    _, tried, said = command(folder, *words, before=before)
    assert f"stdout:\n{STRANGER}\n" in tried, said
