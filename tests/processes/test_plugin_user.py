"""plugin_user: what a plugin can do that runs as another user than the daemon, which is root."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ovirt_scheduler.model.plugins import PluginUser
from ovirt_scheduler.processes import interpreter
from tests.support.daemon import Daemon
from tests.support.processes import NOBODY, for_all_users, lives, offspring, processes_with
from tests.support.waiting import LONG, wait_until

pytestmark = pytest.mark.long

IDS = ["host-1", "host-2"]

# All that the unit's drop-in leaves to the daemon (docs/security.md).
CAPABILITIES = ["setpriv", "--bounding-set", "-all,+setuid,+setgid,+kill", "--no-new-privs", "--"]

# What a plugin finds of itself and of root's, written where the test reads it.
LOOKING = """
import json, os, pathlib, resource

CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs")

def works(attempt, *arguments):
    try:
        attempt(*arguments)
    except OSError:
        return False
    return True

def look(out, forbidden=(), pids=()):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    back = {
        "setuid": works(os.setuid, 0), "setgid": works(os.setgid, 0),
        "setreuid": works(os.setreuid, 0, 0), "seteuid": works(os.seteuid, 0),
        "setgroups": works(os.setgroups, [0]),
    }
    found = {
        "pid": os.getpid(),
        "ids": [*os.getresuid(), *os.getresgid()],
        "groups": sorted(os.getgroups()),
        "status": {name: int(status[name], 16) for name in CAPABILITIES},
        "environ": dict(os.environ),
        "folder": os.getcwd(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        "opened": [path for path in forbidden if works(os.listdir, path) or works(open, path)],
        "written": [path for path in forbidden if works(open, path, "a")],
        "signalled": [pid for pid in pids if works(os.kill, pid, 0)],
        "limited": [pid for pid in pids if works(resource.prlimit, pid, resource.RLIMIT_CPU)],
        "back": [name for name, worked in back.items() if worked],
    }
    new = pathlib.Path(out + ".new")
    new.write_text(json.dumps(found))
    new.rename(out)
"""

PLUGINS = {
    "_looking": LOOKING,
    "by_function": """
import json, os, _looking
if not os.path.exists("OUT/analysis"):
    _looking.look("OUT/analysis")
def do_filter(hosts, vm, properties):
    _looking.look("OUT/function", **json.loads(properties["look"]))
    return hosts
""",
    "by_class": """
import json, _looking
class by_class:
    def do_filter(self, hosts_ids, vm_id, args_map):
        _looking.look("OUT/class", **json.loads(args_map["look"]))
        print(hosts_ids)
""",
    "sleeps": """
import subprocess, time
def do_filter(hosts, vm, properties):
    subprocess.Popen(["sleep", properties["marker"]], start_new_session=True)
    time.sleep(3600)
""",
    "attacks": """
import os, signal
def parent(pid):
    stat = open(f"/proc/{pid}/stat").read()
    return int(stat[stat.rindex(")") + 2:].split()[1])
def do_filter(hosts, vm, properties):
    request_process = os.getppid()
    for pid in (parent(request_process), request_process, os.getpid()):
        os.kill(pid, signal.SIGKILL)
""",
}


class Root:
    """A daemon of root's with secrets, and what its plugins found."""

    def __init__(self, folder: Path) -> None:
        self.plugins = folder / "plugins"
        self.plugins.mkdir()
        self.out = folder / "out"
        self.out.mkdir()
        os.chown(self.out, NOBODY.pw_uid, NOBODY.pw_gid)
        for name, text in PLUGINS.items():
            (self.plugins / f"{name}.py").write_text(text.replace("OUT", str(self.out)))
        (self.plugins / "by_function.py").chmod(0o600)  # the daemon reads it, not the plugin
        (folder / "sleeps.conf").write_text("timeout = 1\n")
        self.password = folder / "password"
        self.password.write_text("correct horse battery staple")
        self.password.chmod(0o600)
        self.log_file = folder / "scheduler.log"
        self.daemon = Daemon(
            folder,
            self.plugins,
            f"plugin_user = {NOBODY.pw_name}\nplugins_conf_path = {folder}\n"
            f"log_file = {self.log_file}\n[engine]\nurl = https://127.0.0.1:1/api\n"
            f"username = u\npassword_file = {self.password}",
            [],
            before=for_all_users(*CAPABILITIES),
        )
        state = self.daemon.state
        self.forbidden = [
            str(path)
            for path in (
                state / "certificate", state / "certificate" / "key.pem", state / "plugins",
                self.password, self.log_file, f"/proc/{self.daemon.pid}/environ",
                f"/proc/{self.daemon.pid}/mem", f"/proc/{self.daemon.pid}/fd",
            )
        ]  # fmt: skip

    def call(self, unit: str, **properties: str) -> Any:
        look = {"forbidden": self.forbidden, "pids": [self.daemon.pid, 1]}
        return self.daemon.engine.runFilters(
            [unit], IDS, "vm-1", {"look": json.dumps(look), **properties}
        )

    def found(self, name: str) -> dict[str, Any]:
        return json.loads((self.out / name).read_text())


@pytest.fixture(scope="module")
def root(as_root: None, room: Path) -> Iterator[Root]:
    running = Root(room)
    yield running
    below = offspring(running.daemon.pid)
    assert running.daemon.stop() == 0
    assert [pid for pid in below if Path(f"/proc/{pid}").exists()] == []


@pytest.fixture(scope="module", params=["function", "class", "analysis"])
def found(root: Root, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What was found from inside: a call of each kind of unit, and the loading of a file."""
    if request.param != "analysis":
        assert root.call(f"by_{request.param}")["result"] == IDS
    return root.found(request.param)


def test_plugins_run_as_that_user_alone(found):
    """Real, effective and saved; its own groups; no capability, and none to be gained."""
    assert found["ids"] == [NOBODY.pw_uid] * 3 + [NOBODY.pw_gid] * 3
    assert set(found["groups"]) == set(os.getgrouplist(NOBODY.pw_name, NOBODY.pw_gid))
    assert found["status"] == {
        "CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapAmb": 0, "NoNewPrivs": 1,
    }  # fmt: skip


def test_there_is_no_way_back_to_root(found):
    """By no system call that changes users."""
    assert found["back"] == []


def test_nothing_of_the_daemons_can_be_opened(found):
    """Neither the key nor the password, the state folder, the log, or the daemon in /proc."""
    assert (found["opened"], found["written"]) == ([], [])


def test_the_daemon_cannot_be_sent_a_signal_or_be_limited(found):
    """Nor anything else of root's."""
    assert (found["signalled"], found["limited"]) == ([], [])


def test_the_environment_is_that_users(found):
    """Home and name; nothing of the daemon's but path, time zone and language."""
    environ = found["environ"]
    assert environ["HOME"] == NOBODY.pw_dir
    assert environ["USER"] == environ["LOGNAME"] == NOBODY.pw_name
    assert {name for name in environ if not name.startswith("LC_")} <= {
        "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ",
    }  # fmt: skip


def test_folder_and_limits_are_as_ever(root, found):
    """The plugin's folder is the working directory (contract 5.3); limits hold (contract 5.4)."""
    assert found["folder"] == str(root.plugins)
    assert found["files"] == 256


def test_a_folder_for_temporary_files_is_not_passed_on():
    """The daemon's may be closed to that user."""
    user = PluginUser("somebody", 12, 34, (34,), "/home/somebody")
    environ = {"TMPDIR": "/root/tmp", "HOME": "/root", "A_SECRET": "x", "LC_ALL": "C"}
    assert interpreter.environment(environ, user) == {
        "HOME": "/home/somebody", "USER": "somebody", "LOGNAME": "somebody", "LC_ALL": "C",
    }  # fmt: skip
    assert interpreter.environment(environ, None) == {
        "TMPDIR": "/root/tmp", "HOME": "/root", "LC_ALL": "C",
    }  # fmt: skip


def test_the_memory_of_its_processes_is_hidden_as_ever(root):
    """Files in /proc are root's for a process that is not dumpable; the change resets that."""
    below = offspring(root.daemon.pid)
    assert len(below) >= 2
    for pid in below:
        status = Path(f"/proc/{pid}/status").read_text()
        assert f"\nUid:\t{NOBODY.pw_uid}\t" in status
        assert Path(f"/proc/{pid}/environ").stat().st_uid == 0


def test_what_is_over_is_killed_with_all_that_it_started(root, marker):
    """A grandchild in a session of its own too; the daemon counts on nobody's help."""
    answer = root.call("sleeps", marker=marker)
    assert "its timeout is 1 s" in answer["plugin_errors"]["sleeps"][0]
    assert processes_with(marker) == []


def test_plugins_that_kill_what_they_can_harm_only_plugins(root):
    """SIGKILL to the zygote and to the request process, which are the same user's."""
    answer = root.call("attacks")
    assert answer["result_code"] == 1
    assert root.daemon.process.poll() is None
    assert root.call("by_function")["result"] == IDS


def test_a_call_under_way_is_ended_with_the_daemon(as_root, marker, room):
    """kill -9 of the daemon leaves nothing, though its processes are another user's."""
    folder = room / "killed"
    (folder / "plugins").mkdir(parents=True)
    (folder / "plugins" / "sleeps.py").write_text(PLUGINS["sleeps"])
    # Without TLS: the standard library leaves a socket open whose handshake the kill has cut off.
    settings = f"plugin_user = {NOBODY.pw_name}\nssl = false"
    daemon = Daemon(folder, folder / "plugins", settings, [], before=for_all_users())

    def call() -> None:
        lost = contextlib.suppress(OSError, http.client.HTTPException)
        with lost, daemon.proxy() as scheduler:
            scheduler.runFilters(["sleeps"], IDS, "vm-1", {"marker": marker})

    thread = threading.Thread(target=call)
    thread.start()
    try:
        wait_until(lambda: processes_with(marker))
        below = wait_until(lambda: len(offspring(daemon.pid)) >= 3 and offspring(daemon.pid))
    finally:
        daemon.stop(signal.SIGKILL)
        thread.join(LONG)
    wait_until(lambda: not any(map(lives, below)))
    assert processes_with(marker) == []


def test_a_folder_that_is_closed_later_is_as_one_that_has_gone(root):
    """What was loaded from it is still good, and runs elsewhere."""
    root.plugins.chmod(0o700)
    try:
        assert root.call("by_function")["result"] == IDS
        assert root.found("function")["folder"] == "/"
    finally:
        root.plugins.chmod(0o755)


def test_that_users_processes_are_kept(root):
    """What is compared of them can be read without rights."""
    pids = {root.call("by_function") and root.found("function")["pid"] for _ in range(20)}
    assert len(pids) < 10


def test_a_changed_user_takes_a_restart(root):
    """SIGHUP refuses it, and nothing changes."""
    conf = root.out.parent / "scheduler.conf"
    before = conf.read_text()
    conf.write_text(before.replace(f"plugin_user = {NOBODY.pw_name}", "plugin_user = daemon"))
    root.daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "plugin_user cannot change without a restart" in root.log_file.read_text())
    conf.write_text(before)
    (root.out / "class").unlink(missing_ok=True)
    assert root.call("by_class")["result"] == IDS
    assert root.found("class")["ids"] == [NOBODY.pw_uid] * 3 + [NOBODY.pw_gid] * 3
