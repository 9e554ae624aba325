"""A cluster that two daemons are told to drive: which of them does, and how the other takes over."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter

import pytest

from ovirt_scheduler.clusters.ownership import ClusterOwnership, Mark
from ovirt_scheduler.clusters.persistence import DriveMemory
from ovirt_scheduler.settings.table import ClusterSettings
from ovirt_scheduler.settings.value_types import Drive
from tests.support.command import run
from tests.support.daemon import Daemon
from tests.support.driven import OFTEN, RECORDER, cluster
from tests.support.waiting import wait_until

SECTION = cluster(migrations_per_vm=1000, hold=0)


def mark(kind="s", since=1, daemon="here-0001", tag="00aa"):
    return f"ovirt-scheduler-{kind}{since:011x}-{daemon}-{tag}"


@pytest.mark.parametrize(
    "text", [mark(), mark("t", 1_795_000_000_000), mark(daemon="a-b-c-d-e-f-0123", tag="ffff")]
)
def test_a_mark_is_a_correlation_id_and_read_again(text):
    """Of 50 characters at most, as the engine takes them."""
    assert len(text) <= 50
    read = Mark.read(text)
    assert read is not None
    assert str(read) == text


@pytest.mark.parametrize("text", ["", "1e892ea9", mark()[:-1], mark("x"), f"{mark()}0", "ovirt-scheduler"])  # fmt: skip
def test_what_is_no_mark_is_left_alone(text):
    """Correlation ids of others."""
    assert Mark.read(text) is None


def test_who_began_first_drives_and_who_took_over_last_before_them():
    """Ties go by the daemon's name."""
    wanted = [
        mark("t", 9), mark("t", 3), mark("s", 1), mark("s", 2, "here-0001"), mark("s", 2, "here-0002"),
    ]  # fmt: skip
    assert [str(each) for each in sorted(map(Mark.read, reversed(wanted)), key=lambda each: each.rank)] == wanted  # fmt: skip


def ownership_of(store, drive=Drive.ON):
    settings = ClusterSettings("Default", drive)
    return ClusterOwnership(settings, store)


def begin(folder, drive=Drive.ON):
    """How the daemon of that state folder begins to look after the cluster."""
    store = DriveMemory(folder / "clusters.json")
    ownership = ownership_of(store, drive)
    ownership.determine()
    store.save("Default")
    mark = Mark.read(ownership.memory.mark)  # none in a dry run
    wait_until(lambda: mark is None or time.time_ns() // 1_000_000 > mark.since)
    return ownership


def test_a_dry_run_does_not_count_as_driving(tmp_path):
    """Nor what was before it: the daemon that makes migrations is not to stand by then."""
    long_ago, other = tmp_path / "long_ago", tmp_path / "other"
    begin(long_ago)
    begin(long_ago, Drive.DRY_RUN)
    driver = begin(other)
    later = begin(long_ago)
    later.add_marks([driver.memory.mark])
    driver.add_marks([later.memory.mark])
    driver.determine()
    later.determine()
    assert later.driven_by == Mark.read(driver.memory.mark).daemon
    assert driver.driven_by == ""


def test_a_takeover_in_the_middle_of_a_reload_holds(tmp_path):
    """What looks after the cluster next was made already, and looks after the former has ended."""
    store = DriveMemory(tmp_path / "clusters.json")
    former = ownership_of(store)
    former.determine()
    following = ownership_of(store)
    former.take_over()
    former.determine()
    following.determine()
    assert Mark.read(following.memory.mark).by_takeover
    assert following.memory.mark == former.memory.mark


def test_who_takes_what_it_drives_already_loses_no_change_of_status(tmp_path):
    """It alone was to act on it."""
    driver = begin(tmp_path)
    driver.memory.statuses["web"] = "up"
    driver.take_over()
    driver.determine()
    assert driver.memory.statuses == {"web": "up"}


def test_who_stands_by_again_after_a_takeover_says_so_again(tmp_path, caplog):
    """Once each time."""
    one, two = begin(tmp_path / "one"), begin(tmp_path / "two")
    driver, standby = one, two
    for turn in (1, 2, 3):
        for _ in range(2):
            standby.add_marks([driver.memory.mark])
            standby.determine()
        name = Mark.read(driver.memory.mark).daemon
        assert standby.driven_by == name
        words = f"{name} drives it, and this daemon stands by"
        assert caplog.text.count(words) == (turn + 1) // 2
        standby.take_over()
        standby.determine()
        driver, standby = standby, driver


def test_a_takeover_holds_over_a_restart_before_the_next_look(tmp_path):
    """Whoever was told that the daemon drives the cluster goes home."""
    driver = begin(tmp_path / "driver")
    begin(tmp_path)
    store = DriveMemory(tmp_path / "clusters.json")
    standby = ownership_of(store)
    standby.add_marks([driver.memory.mark])
    standby.determine()
    assert standby.driven_by == Mark.read(driver.memory.mark).daemon
    standby.take_over()
    again = begin(tmp_path)
    assert (again.driven_by, Mark.read(again.memory.mark).by_takeover) == ("", True)


def test_a_copied_state_folder_makes_no_twin(tmp_path):
    """A daemon on another machine has a mark of its own; on the same one it keeps it."""
    own = Mark.read(begin(tmp_path).memory.mark)
    assert begin(tmp_path).memory.mark == str(own)
    file = tmp_path / "clusters.json"
    file.write_text(file.read_text().replace(own.daemon, f"x{own.daemon[1:]}"))
    assert Mark.read(begin(tmp_path).memory.mark).daemon[:-5] == own.machine


def test_the_log_tells_of_so_many_others_and_no_more(tmp_path, caplog):
    """Whoever may migrate VMs may write what looks like a mark."""
    ownership = begin(tmp_path)
    own = Mark.read(ownership.memory.mark)
    others = [own._replace(since=own.since + 1, daemon=f"x-{number:04x}") for number in range(500)]
    ownership.add_marks(map(str, others))
    ownership.determine()
    assert caplog.text.count("migrates its VMs, too") == 20


def test_whatever_looks_like_a_mark_a_cluster_can_be_taken_over(tmp_path):
    """One of the farthest future, after which there is no later one, does not count."""
    ownership = begin(tmp_path)
    own = Mark.read(ownership.memory.mark)
    for years, driven_by in ((9, "x-0000"), (400, "")):
        since = min(own.since + years * 365 * 86_400_000, 0xFFFFFFFFFFF)
        ownership.add_marks([str(Mark(True, since, "x-0000", own.cluster))])
        ownership.determine()
        assert ownership.driven_by == driven_by
        ownership.take_over()
        ownership.determine()
        taken = Mark.read(ownership.memory.mark)
        assert (ownership.driven_by, taken.by_takeover, taken.daemon) == ("", True, own.daemon)


class Two:
    """A daemon, another that began later, and the fake engine whose cluster both drive.

    The first one moves the VM ``web``, the second one ``mail``.
    """

    def __init__(self, driven) -> None:
        self.driven, self.engine = driven, driven.engine
        self.engine.instant_migrations = True
        self.folder = driven.folder / "second"
        (self.folder / "plugins").mkdir(parents=True)
        recorder = RECORDER.format(folder=str(self.folder))
        (self.folder / "plugins" / "recorder.py").write_text(recorder)
        (self.folder / "wanted").write_text("{}")
        (self.folder / "told").touch()
        self.first = driven.start("on", SECTION)
        self.second = self.start_second()

    def start_second(self) -> Daemon:
        settings = (
            f"ssl = false\nlog_level = info\ndrive = on\n{self.engine.conf()}\n"
            f"[clusters]\n{SECTION}\n"
        )
        daemon = Daemon(self.folder, self.folder / "plugins", settings, [])
        self.driven.open.callback(daemon.stop)
        return daemon

    def move(self, name: str) -> None:
        """Have the VM wanted on the other host by the daemon that moves it, and no other VM."""
        host = "puma" if self.driven.vm(name).host == "lynx" else "lynx"
        folder = self.driven.folder if name == "web" else self.folder
        (folder / "unfinished").write_text(json.dumps({name: host}))
        (folder / "unfinished").replace(folder / "wanted")

    def by(self, daemon: Daemon) -> int:
        """How many migrations it has made."""
        marks = (Mark.read(event.correlation_id) for event in tuple(self.engine.events.values()))
        counted = Counter(each.daemon for each in marks if each is not None)
        return counted[self.name(daemon)]

    def name(self, daemon: Daemon) -> str:
        text = (daemon.state / "clusters.json").read_text()
        read = Mark.read(text.partition('"mark":')[2].split('"')[1])
        assert read is not None
        return read.daemon

    def wait_while_vms_move(self, condition) -> None:
        """Each of the VMs is always wanted elsewhere."""

        def look():
            self.move("web")
            self.move("mail")
            return condition()

        wait_until(look, lambda: f"{self.first.log}\n\n{self.second.log}")

    def wait_until_only(self, daemon: Daemon, other: Daemon, times: int = 1) -> None:
        """The other stands by, for the so manieth time, and this one goes on."""
        words = f"cluster Default: {self.name(daemon)} drives it, and this daemon stands by"
        self.wait_while_vms_move(lambda: other.log.count(words) == times)
        before, goal = self.by(other), self.by(daemon) + 4
        self.wait_while_vms_move(lambda: self.by(daemon) >= goal)
        assert self.by(other) == before

    def clusters(self, daemon: Daemon, *words: str):
        return run(daemon.state.parent, "clusters", *words)


@pytest.fixture
def two(driven):
    return Two(driven)


def test_of_two_that_drive_a_cluster_the_later_one_stands_by(two):
    """It says so in its log and in its status; the other one tells of it, too."""
    two.wait_until_only(two.first, two.second)
    assert f"{two.name(two.first)} drives it" in two.clusters(two.second, "list")[1]
    assert "well" in two.clusters(two.first, "list")[1]
    assert f"{two.name(two.second)} migrates its VMs, too" in two.first.log or not two.by(
        two.second
    )


@pytest.mark.long
def test_who_stands_by_does_so_after_a_restart_too(two):
    """Nobody else knows whether the other has ended."""
    two.wait_until_only(two.first, two.second)
    two.second.stop()
    before = two.by(two.second)
    two.second = two.start_second()
    assert "stands by" in wait_until(lambda: two.clusters(two.second, "list")[1])
    goal = two.by(two.first) + 4
    two.wait_while_vms_move(lambda: two.by(two.first) >= goal)
    assert two.by(two.second) == before


@pytest.mark.long
def test_a_standby_takes_over_and_the_other_stands_by(two):
    """And the other takes the cluster back."""
    two.wait_until_only(two.first, two.second)
    status, told, _ = two.clusters(two.second, "take", "Default")
    assert (status, told) == (0, f"this daemon drives the cluster Default from now on; {two.name(two.first)} did before\n")  # fmt: skip
    two.wait_until_only(two.second, two.first)
    assert two.clusters(two.first, "take", "Default")[0] == 0
    two.wait_until_only(two.first, two.second, times=2)


@pytest.mark.long
def test_who_takes_over_goes_on_from_what_the_engine_says(two):
    """It begins nothing while a migration of the other is under way, and tells no old change."""
    two.wait_until_only(two.first, two.second)
    two.engine.instant_migrations = False
    two.move("web")
    wait_until(lambda: two.driven.vm("web").status == "migrating")
    two.first.stop(9)
    two.move("mail")
    told = (two.folder / "told").read_text()
    before = two.by(two.second)
    assert two.clusters(two.second, "take", "Default")[0] == 0
    wait_until(lambda: "taken over" in two.second.log)
    two.driven.wait_for_looks(4)
    assert two.by(two.second) == before
    assert (two.folder / "told").read_text() == told
    two.engine.finish_migrations()
    wait_until(lambda: two.by(two.second) == before + 1)
    assert "the migration of web" in two.second.log


@pytest.mark.long
def test_a_reload_loses_no_takeover(driven):
    """It comes before the next look, which the engine keeps waiting; a look that is cut off is no problem."""
    daemon = driven.start("on", SECTION, driven.engine.conf(cache_seconds=0))
    driven.wait_for_looks(1)
    driven.engine.answering.clear()
    arrived = len(driven.engine.queries)
    driven.wait(lambda: len(driven.engine.queries) > arrived)
    assert run(driven.folder, "clusters", "take", "Default")[0] == 0
    daemon.process.send_signal(signal.SIGHUP)
    driven.wait_for_log("are read again")
    driven.engine.answering.set()
    driven.wait_for_log("taken over")
    assert "WARNING cluster" not in driven.daemon.log


def test_what_cannot_be_taken_is_told(driven):
    """A cluster that is not there, and wrong words."""
    driven.start("on", SECTION)
    status, _, said = run(driven.folder, "clusters", "take", "Defualt")
    assert (status, "did you mean Default?" in said) == (1, True)
    assert run(driven.folder, "clusters", "take")[0] == 2
    assert run(driven.folder, "clusters", "list", "Default")[0] == 2


@pytest.mark.long
def test_a_daemon_that_only_tells_of_migrations_takes_no_cluster(driven):
    """It is in nobody's way, and stands by for nobody."""
    driven.start("dry-run", cluster(balance=OFTEN))
    assert "set drive = on" in run(driven.folder, "clusters", "take", "Default")[2]
    assert "dry-run" in run(driven.folder, "clusters", "list")[1]
