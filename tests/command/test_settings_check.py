"""Files that scheduler.conf names, and that the daemon could not use."""

from __future__ import annotations

import os

import pytest

from ovirt_scheduler.command import check, cli
from ovirt_scheduler.engine.inventory import Inventory
from ovirt_scheduler.settings import scheduler_conf
from tests.support.command import run

URL = "https://engine.example.com/ovirt-engine/api"
ENGINE = f"[engine]\nurl = {URL}\nusername = a@b\n"


@pytest.fixture
def told(tmp_path):
    """What is told of settings in which FOLDER stands for a folder of the test's own."""

    def problems(text: str) -> list:
        (tmp_path / "scheduler.conf").write_text(text.replace("FOLDER", str(tmp_path)))
        settings = scheduler_conf.load(tmp_path / "scheduler.conf", {})
        inventory = settings.engine and Inventory(settings.engine)
        found = [*check.problems(settings, inventory)]
        if inventory:
            inventory.close()
        return [each.replace(str(tmp_path), "FOLDER") for each in found]

    return problems


@pytest.fixture
def password(tmp_path):
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text("secret\n")
    return file


def test_nothing_is_told_of_what_can_be_used(told, tmp_path):
    """Nothing is made either: a log that is not there yet will be."""
    assert told("") == []
    assert told("log_file = FOLDER/log\n") == []
    assert not (tmp_path / "log").exists()


@pytest.mark.usefixtures("one_executor")
@pytest.mark.parametrize("drive", ["off", "dry-run"])
def test_a_cluster_that_is_not_looked_after_is_told(tmp_path, password, drive):
    """Its section does nothing while drive is off."""
    conf = tmp_path / "scheduler.conf"
    conf.write_text(
        f"ssl = false\nlistening_port = 0\nplugins_path = {tmp_path}/none\ndrive = {drive}\n[clusters]\n[[East]]\n"
        f"[engine]\nurl = http://127.0.0.1:1\nusername = a@b\npassword_file = {password}\n"
    )
    _, out, err = run(tmp_path, "check", "--config", str(conf))
    assert err == ""
    told = "note: drive = off: cluster East is not looked after\n" in out
    assert told == (drive == "off")


@pytest.mark.parametrize(
    ("log", "problem"),
    [("FOLDER/none/log", "there is no folder FOLDER/none"), ("FOLDER", "is a folder")],
)
def test_a_log_that_could_not_be_written_is_told(told, log, problem):
    """The start would end there."""
    assert told(f"log_file = {log}\n") == [f"{log}: {problem}; mend log_file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_closed_to_this_user_is_told(told, tmp_path):
    """The log of a daemon that runs as somebody else."""
    (tmp_path / "logs").mkdir(mode=0o500)
    (problem,) = told("log_file = FOLDER/logs/log\n")
    assert "FOLDER/logs cannot be written by this user" in problem


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\nsecret\n", "expected 1 to 4096 characters in its first line"),
        (b"s" * 4097, "expected 1 to 4096 characters in its first line"),
        (b"\xff\n", "is not UTF-8"),
    ],
)
def test_a_password_that_could_not_be_read_is_told(told, password, data, problem):
    """The daemon would start, and have no login. The engine is not asked."""
    password.unlink() if data is None else password.write_bytes(data)
    assert told(f"{ENGINE}password_file = FOLDER/password\n") == [
        f"[engine] {URL}: no login: password_file FOLDER/password: {problem}"
    ]


def test_an_authority_that_is_none_is_told(told, password):
    """No answer of the engine would be trusted."""
    found = told(f"{ENGINE}password_file = FOLDER/password\nca_file = FOLDER/scheduler.conf\n")
    assert found == ["FOLDER/scheduler.conf: holds no PEM certificate; mend ca_file"]


@pytest.mark.parametrize(
    ("file", "is_rotated"),
    [("log.json", True), ("daemon.log", True), ("log", False), ("old/daemon.log", False)],
)
def test_a_log_that_nothing_rotates_is_noted(tmp_path, capsys, monkeypatch, file, is_rotated):
    """It is no mistake: the administrator may have a logrotate file for it."""
    folder = tmp_path / "log"
    (folder / "old").mkdir(parents=True)
    monkeypatch.setattr(check, "_LOGS", folder)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    conf = tmp_path / "scheduler.conf"
    conf.write_text(f"ssl = false\nlistening_port = 0\nlog_file = {folder / file}\n")
    assert cli.main(["check", "--config", str(conf)]) == 0
    assert ("nothing that comes with the package rotates" in capsys.readouterr().out) != is_rotated
