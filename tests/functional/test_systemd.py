"""The unit under a real systemd, on a machine of its own: installed, started, reloaded, ended.

What systemd does with it is seen through systemctl and journalctl, as an administrator sees it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from ovirt_scheduler import __version__
from tests.support.machine import CONF, PYTHON, UNIT, Machine, drop_in, missing, processes, show
from tests.support.paths import PROJECT
from tests.support.plugin_rights import ALLOWED, CAN, REFUSED
from tests.support.processes import offspring

SETUP = ("ovirt-scheduler", "setup")
SETTINGS = "plugins_path = /srv/plugins\n"
CERTIFICATE = "/var/lib/ovirt-scheduler/certificate/certificate.pem"
USER = "ovirt-scheduler"
FOLDERS = {
    "/var/lib/ovirt-scheduler": f"{USER} 700",
    "/var/log/ovirt-scheduler": f"{USER} 750",
    "/etc/ovirt/scheduler": "root 755",
    "/etc/ovirt/scheduler/plugins": "root 755",
}

pytestmark = [pytest.mark.skipif(missing() is not None, reason=missing() or ""), pytest.mark.long]

# Calls once for each line that it reads, on one connection and never on another.
CALLS = f"""
import http.client, ssl, sys
trust = ssl.create_default_context(cafile="{CERTIFICATE}")
connection = http.client.HTTPSConnection("localhost", 18781, context=trust)
connection.connect()
connection.auto_open = False
discover = "<methodCall><methodName>discover</methodName></methodCall>"
for line in sys.stdin:
    connection.request("POST", "/design", discover, {{"Content-Type": "text/xml"}})
    units = connection.getresponse().read()
    print(b"Can" in units, b"Late" in units, flush=True)
"""

# Clients that call while the daemon is restarted: every second one on a new connection each time.
# A kept connection that is closed while it is idle is opened again, as HTTP has it.
RESTARTS = f"""
import http.client, ssl, subprocess, sys, threading
trust = ssl.create_default_context(cafile="{CERTIFICATE}")
discover = "<methodCall><methodName>discover</methodName></methodCall>"
answered, failures, stopped = [], [], threading.Event()

def ask(connection):
    connection.request("POST", "/design", discover, {{"Content-Type": "text/xml"}})
    assert b"Can" in connection.getresponse().read()

def call(keeps):
    connection, used = None, False
    while not stopped.is_set():
        connection = connection or http.client.HTTPSConnection("localhost", 18781, context=trust)
        try:
            ask(connection)
            answered.append(1)
            used = keeps
        except Exception as error:
            if not used:
                failures.append(repr(error))
            used = False
        if not used:
            connection.close()
            connection = None

clients = [threading.Thread(target=call, args=(number % 2 == 0,)) for number in range(16)]
for client in clients:
    client.start()
for number in range(int(sys.argv[1])):
    if number % 2:
        subprocess.run(["systemctl", "daemon-reload"], check=True)
    subprocess.run(["systemctl", "restart", "{UNIT}"], check=True)
    subprocess.run(["systemctl", "reset-failed", "{UNIT}"], check=True)  # of the limit of starts
stopped.set()
for client in clients:
    client.join()
print(len(answered), failures[:3])
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A machine with the project, one plugin, and a web server for the plugin to ask."""
    booted = Machine(tmp_path_factory.mktemp("machine"))
    try:
        (booted.root / "srv/plugins").mkdir()
        (booted.root / "srv/plugins/Can.py").write_text(CAN)
        (booted.root / "srv/web").mkdir()
        booted.run("mkdir", "--mode=777", "/srv/open")
        booted.run("mknod", "--mode=666", "/dev/spare", "c", "1", "3")
        booted.run("systemd-run", "--unit=web", PYTHON, "-m", "http.server", "--directory=/srv/web",
                   "--bind=localhost", "8080")  # fmt: skip
        booted.run("ovirt-scheduler", "setup")
        yield booted
    finally:
        booted.end()


@pytest.fixture
def stopped(machine):
    """The daemon is not running, has its settings, and no start counts against it."""
    (machine.root / CONF).write_text(SETTINGS)
    machine.run("systemctl", "stop", UNIT)
    machine.run("systemctl", "reset-failed", UNIT, check=False)
    return machine


@pytest.fixture
def running(stopped):
    """The daemon, freshly started."""
    stopped.run("systemctl", "start", UNIT)
    return stopped


def journal(machine):
    """What the present daemon and systemd said about it, and what the former ones said."""
    return machine.run("journalctl", "--no-pager", "--output=cat", f"--unit={UNIT}")


def filtered(machine, *ids):
    """The ids that the plugin accepts, by a call over TLS on the machine."""
    hosts = machine.root / "srv/hosts"
    hosts.write_text(" ".join(ids))
    answer = machine.run("ovirt-scheduler", "filter", "Can", "--hosts", "/srv/hosts", "-o", "json")
    return json.loads(answer)["accepted"]


def owners(machine):
    """Who has each folder, and its mode."""
    return dict(zip(FOLDERS, machine.run("stat", "--format=%U %a", *FOLDERS).splitlines()))


def test_the_user_and_the_folders_are_there_before_the_first_start(stopped):
    """So a key and a password can be laid down for it; systemd is content with all of it."""
    assert stopped.run("systemctl", "is-system-running") == "running"
    assert owners(stopped) == FOLDERS


def test_it_is_started_when_it_is_ready_and_the_engine_after_it(stopped):
    """While a plugin still loads it is not; what is to start after it waits."""
    gate = stopped.root / "srv/gate"
    os.mkfifo(gate)
    slow = stopped.root / "srv/plugins/Slow.py"
    slow.write_text(
        "open('/srv/gate').read()\ndef do_filter(hosts, vm, properties): return hosts\n"
    )
    engine = stopped.root / "etc/systemd/system/ovirt-engine.service"
    engine.write_text("[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n")
    try:
        stopped.run("systemctl", "daemon-reload")
        stopped.run("systemctl", "start", "--no-block", UNIT, engine.name)
        with read_from(stopped, gate):
            assert show(stopped, "ActiveState") == "activating"
            assert show(stopped, "ActiveState", engine.name) == "inactive"
        stopped.run("systemctl", "start", engine.name)
        assert show(stopped, "ActiveState") == "active"
        told = show(stopped, "StatusText")  # the first look at how all is comes soon
        assert told.endswith(("listening on https://localhost:18781", "all well"))
    finally:
        slow.unlink()
        gate.unlink()


@contextlib.contextmanager
def read_from(machine, pipe):
    """From when somebody on the machine reads from the pipe until they may go on."""
    ends = []

    def has_reader():
        with contextlib.suppress(OSError):
            ends.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(ends)

    machine.wait_for(has_reader, f"a reader of {pipe.name}")
    try:
        yield
    finally:
        os.close(ends[0])


def test_plugins_can_do_what_they_need_and_nothing_more(running):
    """Fork, ask over the network, write in their own places; and leave no process."""
    assert filtered(running, *ALLOWED, *REFUSED) == ALLOWED, journal(running)
    names = {Path(f"/proc/{pid}/comm").read_text() for pid in processes(running)}
    assert "sleep\n" not in names, names


def test_what_a_call_leaves_in_shared_memory_is_gone_with_the_daemon(stopped):
    """It is there for the next call, and never for the rest of the machine."""
    for _ in range(2):
        stopped.run("systemctl", "restart", UNIT)
        assert filtered(stopped, "leave_shared_memory") == ["leave_shared_memory"]
        assert filtered(stopped, "leave_shared_memory", "fork") == ["fork"]
        assert list((stopped.root / "dev/shm").iterdir()) == []


def test_a_drop_in_gives_more_shared_memory(stopped):
    """The one of docs/security.md."""
    page = (PROJECT / "docs/security.md").read_text("utf-8")
    lines = re.findall(r"^    (TemporaryFileSystem=.*)$", page, re.MULTILINE)
    with drop_in(stopped, "\n".join(lines)):
        stopped.run("systemctl", "start", UNIT)
        given = ["share_memory", "fill_the_shared_memory"]
        assert filtered(stopped, *given) == given


def test_the_memory_of_all_processes_together_is_bounded(machine):
    """To three quarters of what the machine has."""
    (total,) = re.findall(r"^MemTotal: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert 0.74 < int(show(machine, "MemoryMax")) / (int(total) << 10) < 0.76


def test_a_drop_in_opens_what_a_plugin_needs_more(stopped):
    """The one of docs/operations.md."""
    page = (PROJECT / "docs/operations.md").read_text("utf-8")
    (paths,) = re.findall(r"^ +(ReadWritePaths=(.+))$", page, re.MULTILINE)
    (stopped.root / "srv/measurements").symlink_to("open")
    with drop_in(stopped, paths[0]):
        stopped.run("systemctl", "start", UNIT)
        assert filtered(stopped, "write_elsewhere") == ["write_elsewhere"]


def test_the_drop_in_for_plugin_user_is_enough(stopped):
    """The one of docs/security.md: plugins are that user's, the daemon stops as it did."""
    page = (PROJECT / "docs/security.md").read_text("utf-8")
    (text,) = re.findall(r"^    \[Service\]\n((?:    .+\n)+)", page, re.MULTILINE)
    (stopped.root / CONF).write_text(f"{SETTINGS}plugin_user = {USER}\n")
    with drop_in(stopped, text):
        stopped.run("systemctl", "start", UNIT)
        can = [name for name in ALLOWED if name not in ("write_its_state", "write_its_log")]
        assert filtered(stopped, *ALLOWED, *REFUSED) == can
        stopped.run("systemctl", "stop", UNIT)
    assert show(stopped, "Result") == "success"
    assert processes(stopped) == []


def test_it_runs_as_its_own_user_with_its_own_folders(running):
    """Without capabilities; the state for nobody else, the log for the group."""
    daemon = processes(running)[0]
    status = Path(f"/proc/{daemon}/status").read_text()
    assert "NoNewPrivs:\t1" in status
    assert "CapBnd:\t0000000000000000" in status
    uid = running.run("id", "--user", USER)
    assert f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}" in status
    assert owners(running) == FOLDERS


def test_the_daemons_user_asks_it_without_naming_its_folder(running):
    """Though that user's home folder has a place for state, too."""
    asked = running.run(
        "env", "HOME=/var/lib/ovirt-scheduler", "setpriv", f"--reuid={USER}", f"--regid={USER}",
        "--clear-groups", "ovirt-scheduler", "status",
    )  # fmt: skip
    assert "Certificate ends" in asked


def test_it_goes_by_the_old_proxys_name_too(running):
    """Units and habits that name ovirt-scheduler-proxy find it."""
    assert show(running, "Id", "ovirt-scheduler-proxy.service") == UNIT
    running.run("systemctl", "stop", "ovirt-scheduler-proxy")
    assert show(running, "ActiveState") == "inactive"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("StartLimitIntervalUSec", "1min"),
        ("OOMPolicy", "continue"),  # a plugin call that the kernel ends is one failed call
        ("LimitNOFILESoft", "524288"),  # max_connections may ask for more than 1024
    ],
)
def test_what_a_machine_with_much_to_do_needs(machine, name, value):
    """As systemd understands it."""
    assert show(machine, name) == value


def test_a_reload_takes_new_settings_on_the_connections_there_are(running):
    """The same connection sees the plugins of the new folder."""
    late = running.root / "srv/late"
    late.mkdir(exist_ok=True)
    (late / "Late.py").write_text("def do_filter(hosts, vm, properties): return hosts\n")
    with subprocess.Popen(
        running.inside(PYTHON, "-c", CALLS),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    ) as client:  # fmt: skip

        def called():
            client.stdin.write("\n")
            return client.stdout.readline().split()

        assert called() == ["True", "False"]
        (running.root / CONF).write_text("plugins_path = /srv/late\nlog_level = debug\n")
        before = show(running, "MainPID")
        reload_done(running, "SIGHUP: settings, certificates and plugins are read again")
        assert called() == ["False", "True"]
    assert show(running, "MainPID") == before
    assert show(running, "StatusText") == "listening on https://localhost:18781"


def test_a_reload_with_bad_settings_goes_on_with_the_former_and_says_so(running):
    """In the journal, and in the status."""
    (running.root / CONF).write_text(f"{SETTINGS}log_levle = debug\n")
    reload_done(running, "the settings are refused, the former settings stay in use")
    assert show(running, "ActiveState") == "active"
    assert "; the last reload failed: " in show(running, "StatusText")
    (running.root / CONF).write_text(SETTINGS)
    assert filtered(running, "fork") == ["fork"]
    reload_done(running, "SIGHUP: settings, certificates and plugins are read again")
    assert show(running, "StatusText") == "listening on https://localhost:18781"


def reload_done(machine, line):
    """Reload, and wait for its end: systemctl waits for the signal alone."""
    said = journal(machine).count(line)
    machine.run("systemctl", "reload", UNIT)
    machine.wait_for(lambda: journal(machine).count(line) > said, line)
    machine.wait_for(lambda: show(machine, "ActiveState") == "active", "the end of the reload")


def test_the_journal_has_the_fields_of_the_log(running):
    """Without a setting; an administrator asks for those of one kind."""
    assert filtered(running, "fork") == ["fork"]

    def entry() -> str:
        wanted = ("SCHEDULER_METHOD=runFilters", "--lines=1", "--output=json")
        return running.run("journalctl", "--no-pager", f"--unit={UNIT}", *wanted)

    running.wait_for(entry, "an entry on the request")
    told = json.loads(entry())
    assert (told["_TRANSPORT"], told["PRIORITY"]) == ("journal", "6")
    assert (told["SCHEDULER_UNITS"], told["SCHEDULER_OUTCOME"]) == ("Can", "ok")
    assert told["MESSAGE"].startswith(f"request {told['SCHEDULER_REQUEST']} runFilters, ")


def test_killed_it_is_started_again(running):
    """With everything below it gone before."""
    former = processes(running)
    os.kill(former[0], signal.SIGKILL)
    restarted(running)
    assert set(processes(running)).isdisjoint(former)
    assert filtered(running, "fork") == ["fork"]


def test_restarts_and_upgrades_refuse_and_lose_no_call(running):
    """An upgrade has systemd read the unit again, too."""
    told = running.run(PYTHON, "-c", RESTARTS, "4")
    answered, _, failures = told.strip().splitlines()[-1].partition(" ")
    assert failures == "[]", told
    assert int(answered) > 100


def test_setup_after_an_upgrade_restarts_the_former_version_and_says_so(running):
    """Once: then it runs what is installed."""
    (module,) = (running.root / "opt/ovirt-scheduler/lib").glob("*/*/ovirt_scheduler/__init__.py")
    text, before = module.read_text("utf-8"), show(running, "MainPID")
    assert "already so: ovirt-scheduler.service is enabled and runs" in running.run(*SETUP)
    try:
        module.write_text(text.replace(f'"{__version__}"', '"99.0"'), "utf-8")
        told = running.run(*SETUP)
        assert f"as version {__version__} runs, and 99.0 is installed\n" in f"{told}\n"
        assert show(running, "MainPID") != before
        assert "99.0" in journal(running)
        assert "already so: ovirt-scheduler.service is enabled and runs" in running.run(*SETUP)
    finally:
        module.write_text(text, "utf-8")


def restarted(machine):
    machine.wait_for(lambda: show(machine, "NRestarts") == "1", "a restart")
    machine.wait_for(lambda: show(machine, "ActiveState") == "active", "the end of the restart")


def test_what_does_not_stay_up_is_left_alone_after_five_starts(stopped):
    """Somebody has to look."""
    with drop_in(stopped, "ExecStart=\nExecStart=/bin/false\nRestartSec=10ms"):
        stopped.run("systemctl", "start", UNIT, check=False)
        stopped.wait_for(lambda: show(stopped, "ActiveState") == "failed", "the end of trying")
        assert show(stopped, "NRestarts") == "5"


def test_bad_settings_are_told_and_not_tried_again(stopped):
    """Exit status 78, with the key and the nearest one that there is."""
    (stopped.root / CONF).write_text("log_levle = debug\n")
    assert "failed" in stopped.run("systemctl", "start", UNIT, check=False)
    assert [show(stopped, name) for name in ("ActiveState", "ExecMainStatus", "NRestarts")] == [
        "failed", "78", "0",
    ]  # fmt: skip
    assert "log_level" in journal(stopped)


def test_the_watchdog_ends_a_daemon_whose_plugin_calls_do_not_work(stopped):
    """Though it accepts connections; another is started, and the journal says why."""
    with drop_in(stopped, "WatchdogSec=2s"):
        stopped.run("systemctl", "start", UNIT)
        former = processes(stopped)
        zygote = min(offspring(former[0]))
        inner = Path(f"/proc/{zygote}/status").read_text().split("NSpid:")[1].split()[1]
        stopped.run("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups",
                    "prlimit", "--nproc=1:1", "--pid", inner)  # fmt: skip
        told = "plugin calls do not work, the watchdog is not fed: "
        stopped.wait_for(lambda: told in journal(stopped), told)
        os.kill(zygote, signal.SIGSTOP)  # it cannot end by itself either
        restarted(stopped)
        assert "Watchdog timeout" in journal(stopped).split(told)[-1]
        assert filtered(stopped, "fork") == ["fork"]
        assert set(processes(stopped)).isdisjoint(former)


def test_stopped_it_ends_by_itself_and_leaves_nothing(running):
    """Exit status 0 on SIGTERM, without systemd's SIGKILL."""
    assert len(processes(running)) > 1
    running.run("systemctl", "stop", UNIT)
    assert [show(running, name) for name in ("Result", "ExecMainCode", "ExecMainStatus")] == [
        "success", "1", "0",
    ]  # fmt: skip
    assert processes(running) == []
