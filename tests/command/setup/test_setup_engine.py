"""``ovirt-scheduler setup --engine`` and ``--adopt``, against an engine's machine in a folder."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from ovirt_scheduler.command.setup import run as installation
from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.security import certificates
from tests.support.command import executed, spawned
from tests.support.paths import OLD_PLUGINS

CONF = "etc/ovirt/scheduler/scheduler.conf"
STATE = "var/lib/ovirt-scheduler"
OLD = "usr/share/ovirt-scheduler-proxy/plugins"
ADOPTED = "etc/ovirt/scheduler/old-plugins"

# As engine-config does: one value for each key, told with its version.
ENGINE_CONFIG = """#!/bin/sh
values=$(dirname "$0")/../../values
case $1 in
  -g) sed -n "s/^$2=\\(.*\\)/$2: \\1 version: general/p" "$values" ;;
  -s) key=${2%%=*}; grep -q "^$key=" "$values" || { echo "no $key" >&2; exit 1; }
      sed -i "s|^$key=.*|$2|" "$values" ;;
esac
"""
VALUES = "ExternalSchedulerEnabled=false\nExternalSchedulerServiceURL=http://localhost:18781/old\n"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def root(tmp_path):
    """The engine's machine."""
    root = tmp_path / "root"
    program(root / "usr/bin/engine-config", ENGINE_CONFIG)
    program(root / "usr/bin/ovirt-scheduler", "")
    (root / "values").write_text(VALUES)
    (root / "etc").mkdir()
    user = f"ovirt-scheduler:x:{os.geteuid()}:{os.getegid()}::/{STATE}:/usr/sbin/nologin\n"
    (root / "etc/passwd").write_text(user)
    return root


def keys(root):
    """What scheduler.conf sets."""
    return re.findall(r"(?m)^(\w+ = .*)", (root / CONF).read_text("utf-8"))


def test_the_engine_is_connected_and_disconnected(root, setup):
    """Its answer form, its two values; without TLS where its Java trusts nobody (contract 3.0)."""
    status, told = setup("--engine")
    assert status == 0, told
    assert keys(root) == ["ssl = false", "root_api = engine"]
    assert (root / "values").read_text() == (
        "ExternalSchedulerEnabled=true\nExternalSchedulerServiceURL=http://localhost:18781/\n"
    )
    assert "run engine-config -s ExternalSchedulerEnabled=true\n" in told
    assert told.endswith("systemctl restart ovirt-engine\n")
    assert setup("--remove")[0] == 0
    assert (root / "values").read_text() == VALUES


def test_a_removal_that_broke_off_is_ended_by_the_next(root, setup):
    """What the first has undone is undone, and the rest goes."""
    setup("--engine")
    conf = root / "etc/ovirt/scheduler/plugins/Memory.conf"
    conf.unlink()
    conf.mkdir()
    status, told = setup("--remove")
    assert status == 1
    assert "Memory.conf: is not a plain file" in told
    assert (root / "values").read_text() == VALUES
    conf.rmdir()
    status, told = setup("--remove")
    assert status == 0, told
    assert (root / "values").read_text() == VALUES
    assert not (root / "etc/ovirt").exists()
    assert setup("--remove")[1].startswith("nothing to undo: there is no ")


def test_what_changes_in_the_configuration_is_shown_before_with_the_reason(root, setup):
    """Above all that TLS is turned off."""
    setup()
    status, told = setup("--engine", "--dry-run")
    assert status == 0
    assert f"would replace /{CONF}\n    -#ssl = true\n    +ssl = false\n" in told
    assert "\n    -#root_api = design\n    +root_api = engine\n" in told
    assert "\n    ssl: no Java of the engine's is found here that could be made to trust" in told
    assert keys(root) == []
    changes = [line for line in told.splitlines() if line.startswith("    ")]
    assert changes == [
        line for line in setup("--engine")[1].splitlines() if line.startswith("    ")
    ]
    assert "    " not in setup("--engine")[1]


def test_a_dry_run_sets_nothing_of_the_engines(root, setup):
    """It tells the lines."""
    status, told = setup("--engine", "--dry-run")
    assert status == 0
    assert (
        "would run engine-config -s ExternalSchedulerServiceURL=http://localhost:18781/\n" in told
    )
    assert (root / "values").read_text() == VALUES


def test_a_second_run_sets_nothing_again_and_a_plain_one_keeps_it(root, setup):
    """What was asked for once holds until it is undone."""
    setup("--engine")
    assert "run engine-config" not in setup("--engine")[1]
    assert "already so: /etc/ovirt/scheduler/scheduler.conf\n" in setup()[1]
    assert "root_api = engine" in keys(root)


@pytest.mark.long
def test_a_run_that_is_killed_at_its_work_can_be_undone(root):
    """What is about to be set is recorded before: the next run finds it set already."""
    tool = root / "usr/bin/engine-config"
    program(tool, ENGINE_CONFIG + '[ "$1" = -g ] || kill -9 $PPID\n')

    def setup(*arguments):
        return spawned(root, "setup", "--root", root, *arguments)[0]

    assert setup("--engine") == -signal.SIGKILL
    assert (root / "values").read_text() != VALUES
    program(tool, ENGINE_CONFIG)
    assert setup("--engine") == 0
    assert setup("--remove") == 0
    assert (root / "values").read_text() == VALUES


def test_what_was_there_before_two_different_runs_comes_back(root, setup):
    """The second has another port to tell the engine; what the first told is none to go back to."""
    setup("--engine")
    (root / CONF).write_text("listening_port = 18000\nroot_api = engine\nssl = false\n")
    assert "ServiceURL=http://localhost:18000/\n" in setup("--engine")[1]
    assert setup("--remove")[0] == 0
    assert (root / "values").read_text() == VALUES


def test_a_value_that_was_right_before_stays_on_removal(root, setup):
    """It was none of setup's doing."""
    (root / "values").write_text(VALUES.replace("=false", "=true"))
    setup("--engine")
    setup("--remove")
    assert "ExternalSchedulerEnabled=true\n" in (root / "values").read_text()


def test_without_engine_config_the_lines_are_told(root, setup):
    """Exit status 1, as something is left to do."""
    (root / "usr/bin/engine-config").unlink()
    status, told = setup("--engine")
    assert status == 1
    assert (
        "left to you, on the engine's machine: engine-config -s ExternalSchedulerEnabled=true\n"
        in told
    )
    assert told.endswith("\nleft to you: 2 of the steps, see above\n")


def test_an_edited_configuration_gets_its_lines_from_the_administrator(root, setup):
    """They are told until they are there; its port is the one that the engine is given."""
    setup()
    (root / CONF).write_text("listening_port = 18000\n")
    status, told = setup("--engine")
    assert status == 1
    assert "add 'root_api = engine' and 'ssl = false' to it yourself\n" in told
    (root / CONF).write_text("listening_port = 18000\nroot_api = engine\nssl = off\n")
    status, told = setup("--engine")
    assert status == 0, told
    assert "ServiceURL=http://localhost:18000/\n" in (root / "values").read_text()


def test_a_configuration_with_clusters_is_read_as_the_daemon_reads_it(root, setup):
    """Sections in a section are no mistake."""
    setup()
    (root / CONF).write_text("root_api = engine\nssl = off\n[clusters]\n[[Default]]\n")
    status, told = setup("--engine")
    assert status == 0, told


def test_a_failing_engine_config_stops_the_run_with_its_words(root, setup):
    """And the next run goes on from there."""
    (root / "values").write_text("")
    status, told = setup("--engine")
    assert status == 1
    assert "engine-config -g ExternalSchedulerServiceURL gives no value" in told.splitlines()[-1]
    (root / "values").write_text(VALUES)
    assert setup("--engine")[0] == 0


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("keytool"), reason="there is no JVM here")
def test_the_engines_java_trusts_the_certificate(root, monkeypatch):
    """A new certificate takes the place of the old one; removal leaves the others."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    home = root / "usr/lib/jvm/jre"
    store = home / "lib/security/cacerts"
    program(root / "usr/share/ovirt-engine/bin/java-home", "#!/bin/sh\necho /usr/lib/jvm/jre\n")
    (home / "bin").mkdir(parents=True)
    (home / "bin/keytool").symlink_to(Path(shutil.which("keytool")).resolve())
    store.parent.mkdir(parents=True)
    other = certificates.ensure(root / "other").certificate

    def keytool(*arguments):
        command = ["keytool", *arguments, "-storepass", "changeit", "-keystore", str(store)]
        return executed(*command, check=True).stdout

    keytool("-importcert", "-noprompt", "-alias", "other", "-file", str(other))
    machine = Machine(root, live=True)

    def run(*, remove=False):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            if remove:
                installation.remove(machine)
            else:
                assert installation.install(machine, engine=True) == 0
        return out.getvalue()

    run()
    assert keys(root) == ["root_api = engine"]
    assert "ServiceURL=https://localhost:18781/\n" in (root / "values").read_text()
    made = certificates.files_in(root / STATE / "certificate").certificate
    assert f"already so: {store} trusts the certificate\n" in run()
    shutil.rmtree(made.parent)
    run()
    assert certificates.describe(made).fingerprint in keytool("-list")
    run(remove=True)
    listed = keytool("-list")
    assert certificates.describe(other).fingerprint in listed
    assert "ovirt-scheduler" not in listed


@pytest.fixture
def old_proxy(root):
    """The folder of the old proxy, in which one plugin alone is still Python 2."""
    shutil.copytree(OLD_PLUGINS, root / OLD, ignore=shutil.ignore_patterns("__*", "balances.py"))
    (root / OLD / "helpers").mkdir()
    (root / OLD / "helpers/__init__.py").touch()
    (root / OLD / "helpers/limits.py").write_text("MOST = 10\n")
    (root / OLD / "two.pyc").touch()
    (root / OLD / "two.py").write_text(
        "class two:\n    def do_filter(self, a, b, c):\n        print a\n"
    )
    return root / OLD


def test_the_old_proxys_plugins_are_found_and_offered(old_proxy, root, setup):
    """Nothing is copied unasked."""
    status, told = setup()
    assert status == 0
    assert "ovirt-scheduler setup --adopt copies them to /etc/ovirt/scheduler/old-plugins\n" in told
    assert not (root / ADOPTED).exists()


def test_the_old_proxys_plugins_are_adopted(old_proxy, root, setup):
    """Beside the samples; what has been ported since is never overwritten."""
    status, told = setup("--adopt")
    assert status == 0
    assert told.endswith(
        f"ovirt-scheduler check --plugins /{ADOPTED} tells which plugins are to be ported\n"
    )
    assert keys(root) == [
        "plugins_path = $PYTHONPATH/ovirt_scheduler/plugins:/etc/ovirt/scheduler/old-plugins"
    ]
    for file in filter(Path.is_file, old_proxy.rglob("*")):
        copy = root / ADOPTED / file.relative_to(old_proxy)
        assert copy.exists() == (file.suffix == ".py")
        assert not copy.exists() or copy.read_bytes() == file.read_bytes()
    ported = (root / ADOPTED / "two.py").read_text().replace("print a", "print(a)")
    (root / ADOPTED / "two.py").write_text(ported)
    status, told = setup("--adopt")
    assert status == 0, told
    assert (root / ADOPTED / "two.py").read_text() == ported
    assert "found the old proxy's plugins" not in setup()[1]
    assert setup("--remove")[0] == 0
    assert (root / ADOPTED / "two.py").read_text() == ported


def test_plugins_that_were_copied_before_the_old_package_went_are_called(old_proxy, root, setup):
    """The RPM takes the old one's place, and its folder goes with it."""
    (root / ADOPTED).parent.mkdir(parents=True)
    old_proxy.rename(root / ADOPTED)
    (root / ADOPTED).chmod(0o755)
    assert f"ovirt-scheduler check --plugins /{ADOPTED} tells" in setup("--adopt")[1]
    assert keys(root) == [
        "plugins_path = $PYTHONPATH/ovirt_scheduler/plugins:/etc/ovirt/scheduler/old-plugins"
    ]


def test_plugins_that_others_could_have_changed_are_not_adopted(old_proxy, root, setup):
    """A copy would be trusted; the message has the command that mends it."""
    (old_proxy / "two.py").chmod(0o666)
    status, told = setup("--adopt")
    assert status == 1
    assert re.search(rf"chmod g?o-w {old_proxy}/two.py", told)
    assert not (root / ADOPTED).exists()


def test_nothing_to_adopt_is_told(root, setup):
    """And is no mistake."""
    status, told = setup("--adopt")
    assert status == 0
    assert "skipped: there are no plugins in /usr/share/ovirt-scheduler-proxy/plugins\n" in told
