"""Whose files are trusted: owners, modes and links on real folders."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Callable, Optional

import pytest

from ovirt_scheduler.catalogue.loader import Loader
from ovirt_scheduler.daemon.assembly import Assembly
from ovirt_scheduler.daemon.watchdog import Notifier
from ovirt_scheduler.errors import ConfigError, PluginError
from ovirt_scheduler.model.analysis import Analysis
from ovirt_scheduler.security import certificates, trust
from ovirt_scheduler.settings import scheduler_conf
from tests.support.command import run, script
from tests.support.daemon import StartDaemon
from tests.support.processes import STRANGER, open_folder

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "outer" / "inner"
    folder.mkdir(parents=True)
    path = folder / "plugin.py"
    path.write_text("def do_filter(hosts, vm, properties): return hosts\n")
    path.chmod(0o644)
    return path


def mended(told: str) -> None:
    """Run the command that a message ends with."""
    subprocess.run(["sh", "-c", told.partition("mend it: ")[2]], check=True)


def test_files_of_this_user_below_a_sticky_folder_are_trusted(file: Path) -> None:
    """Such as those of tests, below /tmp."""
    assert trust.tampering(file) is None
    assert trust.tampering(file.parent) is None
    assert trust.tampering(Path("/")) is None


def test_what_is_not_there_is_an_error_of_its_own(file: Path) -> None:
    """And no question of trust."""
    with pytest.raises(FileNotFoundError):
        trust.tampering(file.with_name("missing"))


def test_links_in_a_circle_end(file: Path) -> None:
    """As they do for who opens them."""
    link = file.with_name("circle")
    link.symlink_to(link)
    with pytest.raises(OSError, match="symbolic links"):
        trust.tampering(link)


def test_a_file_that_everybody_may_write_is_refused(file: Path) -> None:
    """With the command that mends it."""
    file.chmod(0o646)
    told = trust.tampering(file)
    assert told == f"can be written by everybody; mend it: chmod o-w {file}"
    mended(told)
    assert trust.tampering(file) is None


@pytest.mark.parametrize("up", [0, 1])
def test_a_folder_on_the_way_that_everybody_may_write_is_refused(file: Path, up: int) -> None:
    """Whoever may write it may put another file in the place of this one."""
    folder = file.parents[up]
    folder.chmod(0o777)
    told = trust.tampering(file)
    assert told is not None
    assert told.startswith(f"{folder}, on the way to it, can be written by everybody; ")
    mended(told)
    assert trust.tampering(file) is None


def test_a_sticky_folder_is_a_way_but_no_folder_of_plugins(file: Path) -> None:
    """Others may not replace what is in it, but may put files beside it."""
    file.parent.chmod(0o1777)
    assert trust.tampering(file) is None
    told = trust.tampering(file.parent)
    assert told == f"can be written by everybody; mend it: chmod o-w {file.parent}"


@as_root
@pytest.mark.parametrize("up", [None, 0, 1])
def test_what_belongs_to_another_user_is_refused(file: Path, up: int) -> None:
    """The file, its folder, or one above."""
    place = file if up is None else file.parents[up]
    os.chown(place, STRANGER, STRANGER)
    told = trust.tampering(file)
    assert told is not None
    if up is None:
        assert told.endswith(f"belongs to {STRANGER}, not root; mend it: chown root {place}")
        mended(told)
        assert trust.tampering(file) is None
    else:  # it may be somebody's home
        assert told == (
            f"{place}, on the way to it, belongs to {STRANGER}, not root; "
            "move it to a folder that only root can write"
        )


@as_root
def test_the_group_of_this_user_alone_may_write(file: Path) -> None:
    """Another one may not."""
    private = {user.pw_name for user in pwd.getpwall() if user.pw_gid == 0} == {"root"}
    private = private and set(grp.getgrgid(0).gr_mem) <= {"root"}
    file.chmod(0o664)
    assert (trust.tampering(file) is None) is private
    os.chown(file, 0, STRANGER)
    told = trust.tampering(file)
    assert told == f"can be written by its group; mend it: chmod g-w {file}"
    mended(told)
    assert trust.tampering(file) is None


@as_root
def test_a_member_who_is_no_user_hides_no_other(file: Path, tmp_path: Path) -> None:
    """The group of this user is judged by the members who are users."""
    group = tmp_path / "group"
    group.write_text("root:x:0:ghost,nobody\n", "utf-8")
    file.chmod(0o664)
    ask = (
        "import pathlib, sys\n"
        "from ovirt_scheduler.security import trust\n"
        "print(trust.tampering(pathlib.Path(sys.argv[1])))"
    )
    mounted = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/group && exec "$@"', group]
    if not shutil.which("unshare") or subprocess.run([*mounted, "true"], check=False).returncode:
        pytest.skip("no other /etc/group can be mounted here")
    told = script(ask, file, before=mounted).stdout
    assert told.startswith("can be written by its group"), told


@as_root
def test_a_link_counts_as_its_target(file: Path, tmp_path: Path) -> None:
    """The folders on the way there, too; whose the link is does not count."""
    link = tmp_path / "linked.py"
    link.symlink_to("outer/../outer/inner/plugin.py")
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    assert trust.tampering(link) is None
    absolute = tmp_path / "absolute.py"
    absolute.symlink_to(file)
    file.parent.chmod(0o777)
    for each in (link, absolute):
        told = trust.tampering(each)
        assert told is not None
        assert told.startswith(f"{file.parent}, on the way to it, can be written by everybody")


@as_root
def test_a_strangers_link_in_a_sticky_folder_is_refused(file: Path, tmp_path: Path) -> None:
    """It could lead to another of root's files tomorrow."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "plugin.py"
    link.symlink_to(file)
    assert trust.tampering(link) is None
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    told = trust.tampering(link)
    assert told == f"belongs to {STRANGER}, not root; mend it: chown -h root {link}"
    mended(told)
    assert trust.tampering(link) is None


def test_a_secret_that_others_may_read_is_told(file: Path) -> None:
    """With the command that mends it; for a plugin that is all right."""
    file.chmod(0o604)
    assert trust.tampering(file) is None
    told = trust.exposure(file)
    assert told == f"can be read by everybody; mend it: chmod 600 {file}"
    mended(told)
    assert trust.exposure(file) is None


@as_root
def test_a_secret_in_the_hands_of_others_is_told(file: Path) -> None:
    """Its group, or a folder in which it could be replaced."""
    file.chmod(0o640)
    os.chown(file, 0, STRANGER)
    assert trust.exposure(file) == f"can be read by its group; mend it: chmod 600 {file}"
    file.chmod(0o600)
    file.parent.chmod(0o777)
    assert "on the way to it" in str(trust.exposure(file))


def asked_as_stranger(path: Path, question: Callable[[Path], Optional[str]]) -> str:
    """The answer in a process of another user."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(STRANGER, STRANGER, STRANGER)
        os.setresuid(STRANGER, STRANGER, STRANGER)
        os.write(writing, str(question(path)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


@as_root
def test_a_user_trusts_root_and_itself() -> None:
    """And its own group, and a key of root's that this group may read; nobody else."""
    with open_folder() as folder:
        path = folder / "key"
        path.touch(0o640)
        for owner, group in ((STRANGER, STRANGER), (0, STRANGER)):
            os.chown(path, owner, group)
            assert asked_as_stranger(path, trust.exposure) == "None"
        path.chmod(0o660)
        assert asked_as_stranger(path, trust.tampering) == "None"
        path.chmod(0o644)
        told = asked_as_stranger(path, trust.exposure)
        assert (
            told
            == f"can be read by everybody; mend it: chown {STRANGER} {path} && chmod 600 {path}"
        )
        mended(told)
        assert asked_as_stranger(path, trust.exposure) == "None"
        os.chown(path, STRANGER + 1, 0)
        assert asked_as_stranger(path, trust.tampering) == (
            f"belongs to {STRANGER + 1}, neither root nor {STRANGER}, who runs this; "
            f"mend it: chown root {path}"
        )


KEYS = {
    "ssl_certificate": "ssl_certificate = {path}\nssl_key = /nowhere\n",
    "ssl_key": "ssl_key = {path}\nssl_certificate = /nowhere\n",
    "ssl_client_ca": "ssl_client_ca = {path}\n",
    "[engine] password_file": "[engine]\nurl = https://e/\nusername = u\npassword_file = {path}\n",
    "[engine] ca_file": (
        "[engine]\nurl = https://e/\nusername = u\npassword_file = /nowhere\nca_file = {path}\n"
    ),
}


def spoil(path: Path) -> None:
    path.chmod(0o666)


@pytest.mark.parametrize("key", KEYS)
def test_a_file_that_scheduler_conf_names_is_looked_at(tmp_path: Path, key: str) -> None:
    """The message names the line, the key, the file and the command."""
    named = tmp_path / "named"
    named.touch(0o600)
    conf = tmp_path / "scheduler.conf"
    conf.write_text(KEYS[key].format(path=named))
    scheduler_conf.load(conf, {})
    spoil(named)
    with pytest.raises(ConfigError) as caught:
        scheduler_conf.load(conf, {})
    assert f"{key}: {named}: can be written by everybody; mend it: chmod o-w" in str(caught.value)
    named.chmod(0o644)
    if key in ("ssl_key", "[engine] password_file"):
        with pytest.raises(ConfigError, match=r"can be read by .*chmod 600"):
            scheduler_conf.load(conf, {})
    else:
        scheduler_conf.load(conf, {})


def test_a_password_is_looked_at_whenever_it_is_read(tmp_path: Path) -> None:
    """It may have come after the start, or been opened to others since."""
    named = tmp_path / "named"
    conf = tmp_path / "scheduler.conf"
    conf.write_text(KEYS["[engine] password_file"].format(path=named))
    engine = scheduler_conf.load(conf, {}).engine
    assert engine is not None
    named.touch(0o600)
    named.write_text("secret\n")
    assert engine.password() == "secret"
    named.chmod(0o644)
    with pytest.raises(ConfigError, match=r"can be read by .*chmod 600"):
        engine.password()


def test_scheduler_conf_is_looked_at(tmp_path: Path) -> None:
    """Whoever may write it could name other files."""
    conf = tmp_path / "scheduler.conf"
    conf.touch()
    spoil(conf)
    with pytest.raises(ConfigError, match=r"can be written by .*chmod"):
        scheduler_conf.load(conf, {})


@pytest.mark.long
def test_check_tells_of_a_plugin_that_others_may_change(file: Path) -> None:
    """The plugin, its conf file, a helper or a folder: nothing of it is run; mended, it is."""
    folder = file.parent
    ran = folder / "ran"
    file.write_text(f"import _helper, package.a\nopen({str(ran)!r}, 'w')\n{file.read_text()}")
    (folder / "plugin.conf").write_text("timeout = 5\n")
    (folder / "package").mkdir()
    helpers = ("_helper.py", "package/__init__.py", "package/a.py")
    for helper in helpers:
        (folder / helper).write_text(f"open({str(ran)!r}, 'w')\n")
    conf = folder / "scheduler.conf"
    conf.write_text(
        f"plugins_path = {folder}\nplugins_conf_path = {folder}\nssl = false\nlistening_port = 0\n"
    )
    for what in ("plugin.py", "plugin.conf", ".", "package", *helpers):
        spoiled = folder / what
        spoiled.chmod(0o777)
        status, *said = run(folder, "check", "--config", str(conf))
        assert status in (1, 78), said
        assert f"{spoiled}" in "".join(said)
        assert "can be written by" in "".join(said)
        assert not ran.exists(), what
        spoiled.chmod(0o755)
    status, out, _ = run(folder, "check", "--config", str(conf))
    assert status == 0, out
    assert "plugin" in out
    assert ran.exists()


def test_a_plugin_that_is_opened_to_others_stays_as_it_was(
    start_daemon: StartDaemon, file: Path
) -> None:
    """Its file, its folder, or the one above: what is written then waits until it is mended."""
    daemon = start_daemon(plugins=file.parent)
    kept = ["a", "b", "c", "d"]
    with daemon.proxy() as proxy:
        for opened in (file, file.parent, file.parents[1]):
            assert proxy.runFilters(["plugin"], ["a", "b", "c", "d"], "vm", {}) == kept
            before = opened.stat().st_mode
            opened.chmod(0o777)
            count = len(kept) - 1
            file.write_text(f"def do_filter(hosts, vm, properties): return hosts[:{count}]\n")
            assert "plugin" in proxy.discover()
            assert proxy.runFilters(["plugin"], ["a", "b", "c", "d"], "vm", {}) == kept
            assert f"can be written by everybody; mend it: chmod o-w {opened}" in daemon.log
            opened.chmod(before)
            assert "plugin" in proxy.discover()
            del kept[-1]
            assert proxy.runFilters(["plugin"], ["a", "b", "c", "d"], "vm", {}) == kept


def test_a_conf_file_that_others_could_have_taken_away_is_told(executor, tmp_path):
    """It may have said that the plugin is not enabled, or that its failure rejects."""
    path = tmp_path / "plugin.py"
    path.write_text("def do_filter(hosts, vm, properties): return hosts\n")
    confs = tmp_path / "confs"
    conf = tmp_path / "scheduler.conf"
    conf.write_text(f"plugins_path = {tmp_path}\nplugins_conf_path = {confs}\n")
    loader = Loader(scheduler_conf.load(conf, {}), executor.analyse)
    (file,) = loader.scan().files
    assert loader.load(file, loader.scan()).units
    confs.mkdir()
    confs.chmod(0o777)
    with pytest.raises(PluginError, match=f"mend it: chmod o-w {confs}"):
        loader.load(file, loader.scan())
    confs.chmod(0o755)
    assert loader.load(file, loader.scan()).units


def test_a_certificate_of_our_own_making_that_others_may_write_stops_the_start(
    tmp_path: Path,
) -> None:
    """As one that scheduler.conf names."""
    conf = tmp_path / "scheduler.conf"
    conf.write_text("listening_port = 0\n")
    made = certificates.ensure(tmp_path / "state" / "certificate")
    spoil(made.certificate)
    with pytest.raises(ConfigError, match=f"chmod o-w {made.certificate}"):
        Assembly(scheduler_conf.load(conf, {}), tmp_path / "state", Notifier({}))


def test_a_sticky_folder_of_plugins_is_not_listed(file: Path) -> None:
    """Others could put a plugin there by way of a hard link."""
    file.parent.chmod(0o1777)
    (file.parent / "scheduler.conf").write_text(f"plugins_path = {file.parent}\n")
    scan = Loader(
        scheduler_conf.load(file.parent / "scheduler.conf", {}), lambda _: Analysis()
    ).scan()
    assert scan.files == []
    assert scan.unreadable == [file.parent]
    (problem,) = scan.problems
    assert str(problem) == (
        f"{file.parent}: can be written by everybody; mend it: chmod o-w {file.parent}"
    )


@as_root
def test_an_access_control_list_is_no_private_group(file: Path) -> None:
    """It may let in users whom the mode does not show: acl(5)."""
    entries = [(1, 6, -1), (2, 6, STRANGER), (4, 6, -1), (0x10, 6, -1), (0x20, 4, -1)]
    packed = b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(file, "system.posix_acl_access", struct.pack("<I", 2) + packed)
    except OSError as error:
        pytest.skip(f"no access control lists here: {error}")
    told = trust.tampering(file)
    assert told == f"can be written by its group; mend it: chmod g-w {file}"
    mended(told)
    assert trust.tampering(file) is None
