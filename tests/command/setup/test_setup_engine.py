"""``ovirt-scheduler setup --engine`` and ``--adopt``, against an engine's machine in a folder."""

from __future__ import annotations

import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from ovirt_scheduler.command.setup import installation, step
from ovirt_scheduler.command.setup.machine import Machine
from ovirt_scheduler.errors import ConfigError, StepFailed
from ovirt_scheduler.security import certificates
from ovirt_scheduler.server.http.tls import tls_context
from tests.support.certificates import made
from tests.support.command import executed, script
from tests.support.daemon import reserved_port
from tests.support.paths import OLD_PLUGINS
from tests.support.served import SETTINGS

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
LEFT_TO_YOU = "left to you, on the engine's machine: engine-config -s "
VALUES = "ExternalSchedulerEnabled=false\nExternalSchedulerServiceURL=http://localhost:18781/old\n"


INSTALL = """
import pathlib, sys
from ovirt_scheduler.command.setup import installation
from ovirt_scheduler.command.setup.machine import Machine
installation.install(Machine(pathlib.Path(sys.argv[1]), live=True), engine=True)
"""


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


@pytest.fixture
def live_setup(root, capsys):
    """Gives the exit status and the lines of a run on a live machine, which has no systemd."""

    def run(*options):
        machine, dry, failure = Machine(root, live=True), "--dry-run" in options, ""
        try:
            if "--remove" in options:
                status = int(installation.remove(machine, dry) > 0)
            else:
                engine, adopt = "--engine" in options, "--adopt" in options
                status = int(installation.install(machine, engine, adopt, dry) > 0)
        except (StepFailed, ConfigError) as error:
            status, failure = 1, f"{error}\n"
        return status, capsys.readouterr().out + failure

    return run


def keys(root):
    """What scheduler.conf sets."""
    return re.findall(r"(?m)^(\w+ = .*)", (root / CONF).read_text("utf-8"))


def test_the_engine_is_connected_and_disconnected(root, live_setup):
    """Its answer form, its two values; without TLS where its Java trusts nobody (contract 3.0)."""
    status, told = live_setup("--engine")
    assert status == 0, told
    assert keys(root) == ["ssl = false", "root_api = engine"]
    assert (root / "values").read_text() == (
        "ExternalSchedulerEnabled=true\nExternalSchedulerServiceURL=http://localhost:18781/\n"
    )
    assert "run engine-config -s ExternalSchedulerEnabled=true\n" in told
    assert told.endswith("systemctl restart ovirt-engine\n")
    assert live_setup("--remove")[0] == 0
    assert (root / "values").read_text() == VALUES


def test_a_removal_that_broke_off_is_ended_by_the_next(root, live_setup):
    """What the first has undone is undone, and the rest goes."""
    live_setup("--engine")
    conf = root / "etc/ovirt/scheduler/plugins/Memory.conf"
    conf.unlink()
    conf.mkdir()
    status, told = live_setup("--remove")
    assert status == 1
    assert "Memory.conf: is not a plain file" in told
    assert (root / "values").read_text() == VALUES
    conf.rmdir()
    status, told = live_setup("--remove")
    assert status == 0, told
    assert (root / "values").read_text() == VALUES
    assert not (root / "etc/ovirt").exists()
    assert live_setup("--remove")[1].startswith("nothing to undo: there is no ")


def test_what_changes_in_the_configuration_is_shown_before_with_the_reason(root, live_setup):
    """Above all that TLS is turned off."""
    live_setup()
    status, told = live_setup("--engine", "--dry-run")
    assert status == 0
    assert f"would replace /{CONF}\n    -#ssl = true\n    +ssl = false\n" in told
    assert "\n    -#root_api = design\n    +root_api = engine\n" in told
    assert "\n    ssl: no Java of the engine's is found here that could be made to trust" in told
    assert keys(root) == []
    changes = [line for line in told.splitlines() if line.startswith("    ")]
    assert changes == [
        line for line in live_setup("--engine")[1].splitlines() if line.startswith("    ")
    ]
    assert "    " not in live_setup("--engine")[1]


def test_a_dry_run_sets_nothing_of_the_engines(root, live_setup):
    """It tells the lines."""
    status, told = live_setup("--engine", "--dry-run")
    assert status == 0
    assert (
        "would run engine-config -s ExternalSchedulerServiceURL=http://localhost:18781/\n" in told
    )
    assert (root / "values").read_text() == VALUES


def test_a_second_run_sets_nothing_again_and_a_plain_one_keeps_it(root, live_setup):
    """What was asked for once holds until it is undone."""
    live_setup("--engine")
    assert "run engine-config" not in live_setup("--engine")[1]
    assert "already so: /etc/ovirt/scheduler/scheduler.conf\n" in live_setup()[1]
    assert "root_api = engine" in keys(root)


@pytest.mark.long
def test_a_run_that_is_killed_at_its_work_can_be_undone(root, live_setup):
    """What is about to be set is recorded before: the next run finds it set already."""
    tool = root / "usr/bin/engine-config"
    program(tool, ENGINE_CONFIG + '[ "$1" = -g ] || kill -9 $PPID\n')
    assert script(INSTALL, root).returncode == -signal.SIGKILL
    assert (root / "values").read_text() != VALUES
    program(tool, ENGINE_CONFIG)
    assert live_setup("--engine")[0] == 0
    assert live_setup("--remove")[0] == 0
    assert (root / "values").read_text() == VALUES


def test_what_was_there_before_two_different_runs_comes_back(root, live_setup):
    """The second has another port to tell the engine; what the first told is none to go back to."""
    live_setup("--engine")
    (root / CONF).write_text("listening_port = 18000\nroot_api = engine\nssl = false\n")
    assert "ServiceURL=http://localhost:18000/\n" in live_setup("--engine")[1]
    assert live_setup("--remove")[0] == 0
    assert (root / "values").read_text() == VALUES


def test_a_value_that_was_right_before_stays_on_removal(root, live_setup):
    """It was none of setup's doing."""
    (root / "values").write_text(VALUES.replace("=false", "=true"))
    live_setup("--engine")
    live_setup("--remove")
    assert "ExternalSchedulerEnabled=true\n" in (root / "values").read_text()


def test_an_edited_configuration_gets_its_lines_from_the_administrator(root, live_setup):
    """They are told until they are there; its port is the one that the engine is given."""
    live_setup()
    (root / CONF).write_text("listening_port = 18000\n")
    status, told = live_setup("--engine")
    assert status == 1
    assert "add 'root_api = engine' and 'ssl = false' to it yourself\n" in told
    assert "\nnot needed: without TLS the engine has no certificate to trust\n" in told
    assert "\nrun engine-config -s ExternalSchedulerServiceURL=http://localhost:18000/\n" in told
    assert "https://" not in told
    assert "\nnext:\n  do what is left to you above: 1 of the steps\n" in told
    (root / CONF).write_text("listening_port = 18000\nroot_api = engine\nssl = off\n")
    status, told = live_setup("--engine")
    assert status == 0, told
    assert "ServiceURL=http://localhost:18000/\n" in (root / "values").read_text()


def test_a_configuration_with_clusters_is_read_as_the_daemon_reads_it(root, live_setup):
    """Sections in a section are no mistake."""
    live_setup()
    (root / CONF).write_text("root_api = engine\nssl = off\n[clusters]\n[[Default]]\n")
    status, told = live_setup("--engine")
    assert status == 0, told


def test_a_failing_engine_config_stops_the_run_with_its_words(root, live_setup):
    """And the next run goes on from there."""
    (root / "values").write_text("")
    status, told = live_setup("--engine")
    assert status == 1
    assert "engine-config -g ExternalSchedulerServiceURL gives no value" in told.splitlines()[-1]
    (root / "values").write_text(VALUES)
    assert live_setup("--engine")[0] == 0


def test_without_engine_config_the_lines_are_told(root, setup):
    """Exit status 1, as something is left to do."""
    (root / "usr/bin/engine-config").unlink()
    status, told = setup("--engine")
    assert status == 1
    assert f"{LEFT_TO_YOU}ExternalSchedulerEnabled=true\n" in told
    assert "\nnext:\n  do what is left to you above: 2 of the steps\n" in told
    assert told.endswith("systemctl restart ovirt-engine\n")
    status, told = setup("--remove")
    assert (
        status,
        "kept: the engine's ExternalSchedulerEnabled, which setup did not set" in told,
    ) == (0, True)


def test_a_machine_without_an_engine_is_refused_before_anything_is_done(root, live_setup):
    """Else its daemon would give up TLS, for an engine elsewhere that could not reach it."""
    (root / "usr/bin/engine-config").unlink()
    status, told = live_setup("--engine")
    assert (status, (root / CONF).exists()) == (1, False)
    assert f"no engine is installed here, as there is no {root}/usr/bin/engine-config; run" in told


def test_a_removal_names_what_it_cannot_undo(root, live_setup):
    """The engine's setting, and the certificate in the store of a Java that is no longer there."""
    live_setup("--engine")
    record = step.load(Machine(root, live=True))
    record.trust_stores = ["/usr/lib/jvm/jre-1/lib/security/cacerts"]
    step.save(Machine(root, live=True), record)
    (root / "usr/bin/engine-config").unlink()
    status, told = live_setup("--remove")
    assert status == 1
    assert f"{LEFT_TO_YOU}ExternalSchedulerEnabled=false\n" in told
    assert (
        "kept: the certificate ovirt-scheduler in /usr/lib/jvm/jre-1/lib/security/cacerts, which"
        in told
    )
    assert told.endswith("  have the engine stop calling: systemctl restart ovirt-engine\n")


def test_nothing_of_an_image_is_run(root, setup, tmp_path):
    """Not even at a dry run: an image's engine-config would be root's on this machine."""
    for tool in ("usr/bin/engine-config", "usr/share/ovirt-engine/bin/java-home"):
        program(root / tool, f"#!/bin/sh\ntouch {tmp_path}/has_run\n")
    for options in (["--dry-run"], [], ["--dry-run", "--remove"], ["--remove"]):
        engine = [] if "--remove" in options else ["--engine"]
        told = setup(*engine, *options)[1]
        assert not (tmp_path / "has_run").exists(), told
        assert LEFT_TO_YOU in told or not engine


@pytest.fixture
def java(root, monkeypatch):
    """Runs keytool on the trust store of the engine's Java."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    home = root / "usr/lib/jvm/jre"
    store = home / "lib/security/cacerts"
    program(root / "usr/share/ovirt-engine/bin/java-home", "#!/bin/sh\necho /usr/lib/jvm/jre\n")
    (home / "bin").mkdir(parents=True)
    (home / "bin/keytool").symlink_to(Path(shutil.which("keytool")).resolve())
    store.parent.mkdir(parents=True)

    def keytool(*arguments):
        command = ["keytool", *arguments, "-storepass", "changeit", "-keystore", str(store)]
        return executed(*command, check=True).stdout

    other = certificates.ensure(root / "other").certificate
    keytool("-importcert", "-noprompt", "-alias", "other", "-file", str(other))
    return keytool


@pytest.fixture
def port(root, live_setup):
    """The port of scheduler.conf; nothing listens there yet."""
    with reserved_port() as number:
        live_setup()
        (root / CONF).write_text(f"listening_port = {number}\nroot_api = engine\n")
        yield number


needs_java = pytest.mark.skipif(not shutil.which("keytool"), reason="there is no JVM here")


@pytest.mark.long
@needs_java
def test_the_engines_java_trusts_the_certificate_that_the_daemon_serves(
    root, java, port, live_setup, start
):
    """A new certificate takes the place of the old one; removal leaves the others."""
    shutil.rmtree(root / STATE / "certificate")
    status, told = live_setup("--engine")
    assert status == 1
    assert "start the daemon, then run setup --engine again" in told
    assert (root / "values").read_text() == VALUES
    files = certificates.files_in(root / STATE / "certificate")
    serving = replace(SETTINGS, port=port, tls=tls_context(*files))
    running = start(serving)
    status, told = live_setup("--engine")
    assert status == 0, told
    assert ", with the certificate that the daemon serves\n" in told
    assert f"ServiceURL=https://localhost:{port}/\n" in (root / "values").read_text()
    assert certificates.describe(files.certificate).fingerprint in java("-list")
    assert "cacerts trusts the certificate\n" in live_setup("--engine")[1]
    shutil.rmtree(files.certificate.parent)
    status, told = live_setup("--engine")
    assert status == 1
    assert "does not serve the certificate in" in told
    running.server.renew(replace(serving, tls=tls_context(*files)), [])
    assert live_setup("--engine")[0] == 0
    assert certificates.describe(files.certificate).fingerprint in java("-list")
    live_setup("--remove")
    listed = java("-list")
    assert certificates.describe(root / "other/certificate.pem").fingerprint in listed
    assert "ovirt-scheduler" not in listed


@pytest.mark.long
@needs_java
def test_no_authority_comes_into_the_engines_java(root, java, port, live_setup, start):
    """Whoever has its key could sign for any server that the engine talks to."""
    files = certificates.files_in(root / STATE / "certificate")
    before = java("-list")
    for authority in (made(["scheduler"], authority=True), made(["scheduler"], constraints=False)):
        authority.write(files.certificate.parent, "certificate")
        running = start(
            replace(SETTINGS, port=port, tls=tls_context(files.certificate, files.certificate))
        )
        status, told = live_setup("--engine")
        assert status == 1
        assert "does not say CA:FALSE" in told
        running.server.stop(0)
    assert java("-list") == before
    assert (root / "values").read_text() == VALUES


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
    line = f"ovirt-scheduler check --plugins /{ADOPTED} tells which plugins are to be ported\n"
    assert f"\n{line}next:\n" in told
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
