"""scheduler.conf, and the state folder."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import pytest

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.log.handlers import LogFile
from ovirt_scheduler.model.requests import AnswerForm, EngineScores, Pages, RequestedUnit
from ovirt_scheduler.model.units import OnFailure
from ovirt_scheduler.settings import scheduler_conf
from ovirt_scheduler.settings.table import (
    ClusterSettings,
    EngineSettings,
    Settings,
)
from ovirt_scheduler.settings.value_types import DayHours, Drive
from tests.support.paths import PROJECT

DEFAULTS = Settings(
    listening_port=18781,
    listening_address="localhost",
    allow_unauthenticated=False,
    ssl=True,
    ssl_certificate=None,
    ssl_key=None,
    ssl_client_ca=None,
    ssl_allowed_clients=(),
    plugins_path=(PROJECT / "ovirt_scheduler" / "plugins",),
    plugins_path_optional=frozenset({PROJECT / "ovirt_scheduler" / "plugins"}),
    plugins_conf_path=Path("/etc/ovirt/scheduler/plugins"),
    engine_version=None,
    root_api=AnswerForm.DESIGN,
    engine_scores=EngineScores.PER_UNIT,
    plugin_user=None,
    plugin_timeout=30.0,
    request_timeout=100.0,
    on_failure=OnFailure.IGNORE,
    max_parallel_calls=2 * len(os.sched_getaffinity(0)),
    calls_per_process=1000,
    kept_processes=64,
    max_connections=512,
    max_waiting=1024,
    max_request_size=64 * 1024**2,
    connection_timeout=10.0,
    drain_time=0.0,
    memory_limit=512 * 1024**2,
    cpu_limit=60,
    files_limit=256,
    log_file=None,
    log_format="auto",
    log_level="info",
    pages=Pages.HEALTH,
    engine_reasons=False,
    history=True,
    record=False,
    history_days=30,
    history_size=256 << 20,
    engine=None,
    drive=Drive.OFF,
    clusters=(),
)
ENGINE = "[engine]\nurl = https://e.example/api\nusername = u@internal\npassword_file = /p\n"


@pytest.fixture
def conf(tmp_path):
    """Write a file and read it as scheduler.conf."""

    def load(text: str, **environ: str) -> Settings:
        file = tmp_path / "scheduler.conf"
        file.write_text(text, encoding="utf-8")
        return scheduler_conf.load(file, environ)

    return load


def test_an_empty_file_is_all_defaults(conf):
    """They are those of contract 6."""
    assert conf("") == DEFAULTS


def test_the_usual_file_is_read_where_it_is(monkeypatch, tmp_path):
    """If no file is named."""
    monkeypatch.setattr(scheduler_conf, "DEFAULT_FILE", tmp_path / "scheduler.conf")
    (tmp_path / "scheduler.conf").write_text("ssl = no")
    assert not scheduler_conf.load(None, {}).ssl


def test_a_missing_file_that_others_could_have_taken_away_is_told(monkeypatch, tmp_path):
    """Else nothing has to be configured; without it no caller is asked for a certificate."""
    monkeypatch.setattr(scheduler_conf, "DEFAULT_FILE", tmp_path / "missing" / "scheduler.conf")
    assert scheduler_conf.load(None, {}) == DEFAULTS
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="can be written by everybody; mend it: chmod o-w"):
        scheduler_conf.load(None, {})


def test_a_file_that_was_named_has_to_be_there(tmp_path):
    """A mistyped name does not start the daemon with its defaults."""
    with pytest.raises(ConfigError, match=r"scheduler\.conf: there is no such file"):
        scheduler_conf.load(tmp_path / "scheduler.conf", {})


def test_the_sample_file_is_all_defaults():
    """It changes nothing as it is shipped."""
    assert scheduler_conf.load(PROJECT / "etc" / "scheduler.conf", {}) == DEFAULTS


def test_the_sample_file_is_all_defaults_without_its_comment_signs(conf):
    """What stands behind them are the defaults, in values that can be read."""
    sample = (PROJECT / "etc" / "scheduler.conf").read_text(encoding="utf-8")
    uncommented = re.sub(r"(?m)^#(?=[a-z_]+ = |\[)", "", sample)
    uncommented = re.sub("cache_seconds = 5|look_distance = 5|events = none", "", uncommented)
    assert uncommented.count("\nlistening_port = 18781\n") == 1
    cluster = ClusterSettings("Default")
    assert conf(uncommented) == dataclasses.replace(DEFAULTS, clusters=(cluster,))


def test_the_sample_file_can_be_appended_to(conf):
    """No section is open at its end; one that is appended is the only one of its name."""
    sample = (PROJECT / "etc" / "scheduler.conf").read_text(encoding="utf-8")
    assert conf(f"{sample}listening_port = 1\n").listening_port == 1
    assert conf(f"{sample}{ENGINE}").engine is not None


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("listening port = 80", "listening_port", 80),
        ("listerning port = 80", "listening_port", 80),
        ("ssl = off", "ssl", False),
        ("plugins_conf_path = /c", "plugins_conf_path", Path("/c")),
        ("root_api = engine", "root_api", AnswerForm.ENGINE),
        ("plugin_timeout = 0.5", "plugin_timeout", 0.5),
        ("max_parallel_calls = 3", "max_parallel_calls", 3),
        ("memory_limit = 1 GiB", "memory_limit", 1024**3),
        ("log_file = /var/log/scheduler.log", "log_file", Path("/var/log/scheduler.log")),
        ("log_level = debug", "log_level", "debug"),
    ],
)
def test_a_key_sets_its_field_and_no_other(conf, line, field, value):
    """One line in the file is one change to the settings."""
    assert conf(line) == dataclasses.replace(DEFAULTS, **{field: value})


def test_settings_of_tls_go_together(conf):
    """A daemon for other machines, with everything that it needs, is good."""
    settings = conf(
        "listening_address = 0.0.0.0\nssl_certificate = /c\nssl_key = /k\nssl_client_ca = /a\n"
        "ssl_allowed_clients = engine.example; CN=engine,O=Example"
    )
    assert settings == dataclasses.replace(
        DEFAULTS,
        listening_address="0.0.0.0",
        ssl_certificate=Path("/c"),
        ssl_key=Path("/k"),
        ssl_client_ca=Path("/a"),
        ssl_allowed_clients=("engine.example", "CN=engine,O=Example"),
    )


def test_the_engine_section_is_complete_with_three_keys(conf):
    """The others have defaults, and the URL has no slash at its end."""
    settings = conf(ENGINE.replace("/api", "/api/"))
    assert settings.engine == EngineSettings(
        "https://e.example/api", "u@internal", Path("/p"), None, None, 5.0, 5.0
    )
    settings = conf(ENGINE + "ca_file = /ca\ncache_seconds = 0\nproxy = http://p.example:3128/")
    assert settings.engine is not None
    assert (settings.engine.ca_file, settings.engine.cache_seconds) == (Path("/ca"), 0.0)
    assert settings.engine.proxy == "http://p.example:3128"


def test_clusters_are_told_by_sections_in_a_section(conf):
    """Minutes become seconds, and the policy is one of the properties."""
    settings = conf(
        f"drive = dry-run\n{ENGINE}[clusters]\n[[Default]]\n[[East-1]]\nscheduler = mine\n"
        "policy = power_saving\nproperties = 'a=1; b=x=y'\nload_balance_interval = 0.5\n"
        "timer_interval = 0\nfilters = A; B\ncost_functions = C; D = -2\n"
        "hold = 0.5\nmargin = 2.5 %\nmigrations_per_vm = 9\nbalance = Even\n"
        "average = 10\nhours = 22:00-5:30"
    )
    assert settings.drive is Drive.DRY_RUN
    assert settings.clusters == (
        ClusterSettings("Default", Drive.DRY_RUN),
        ClusterSettings(
            "East-1",
            Drive.DRY_RUN,
            scheduler="mine",
            policy="power_saving",
            properties={"a": "1", "b": "x=y", "policy": "power_saving"},
            filters=(RequestedUnit("A"), RequestedUnit("B")),
            cost_functions=(RequestedUnit("C"), RequestedUnit("D", -2)),
            balance=RequestedUnit("Even"),
            load_balance_interval=30.0,
            timer_interval=0.0,
            hold=30.0,
            margin=2.5,
            migrations_per_vm=9,
            average=600.0,
            hours=DayHours(22 * 60, 5 * 60 + 30),
        ),
    )


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("\nlistening_adress = ::1", 2, "listening_adress: there is no such key; did you mean"),
        ("listening port = 1\n\nlisterning port = 2", 3, "which line 1 sets to 1"),
        ("listening_port = 65536", 1, "listening_port: expected a whole number, from 0 to 65535"),
        ("root_api = both", 1, "root_api: expected one of design, engine"),
        ("request_timeout = 120", 1, "request_timeout: expected seconds"),
        ("request_timeout = 40\nplugin_timeout = 50", 2, "longer than request_timeout, 40"),
        ("request_timeout = 20", 1, "20 seconds is shorter than plugin_timeout, 30: set that, too"),
        ("\nlistening_address = 10.0.0.1", 2, "allow_unauthenticated = true"),
        ("listening_address = host.example", 1, "allow_unauthenticated = true"),
        ("ssl_allowed_clients = a", 1, "ssl_allowed_clients: needs ssl_client_ca"),
        ("listening_address = ::\nallow_unauthenticated = 1\nssl_allowed_clients = a", 3, "ssl_client_ca"),
        ("ssl = no\nssl_client_ca = /a", 2, "ssl_client_ca: client certificates need ssl = true"),
        ("\nssl_certificate = /c", 2, "ssl_certificate: needs ssl_key too"),
        ("\nssl_key = /k", 2, "ssl_key: needs ssl_certificate too"),
        ("[engine]\nurl = https://e.example", 2, "[engine] url: the section needs username too"),
        ("[engine]\ncache_seconds = 1", 2, "the section needs url too"),
        (ENGINE.replace("password_file = /p", ""), 2, "needs password_file too"),
        (ENGINE + "proxy = http://p.example", 5, "proxy: expected an http:// URL with a port and"),
        (ENGINE + "proxy = http://u:p@p.example:1", 5, "proxy: expected an http:// URL with a port"),
        (ENGINE + "proxy = http://p.example:x", 5, "proxy: expected an http:// URL with a port and"),
        (ENGINE.replace("https://e.example", "http://localhost") + "proxy = http://p.example:1", 5,
         "proxy: it would read the password"),
        ("url = https://e.example", 1, "belongs in the section [engine]"),
        ("[engine]\nssl = no", 2, "belongs above the sections"),
        ("a line", 1, "expected `key = value`"),
        ("drive = yes", 1, "drive: expected one of off, dry-run, approve, on"),
        (f"drive = on\n{ENGINE}", 1, "drive: needs a section in [clusters]"),
        ("drive = on\n[engine]\n[clusters]\n[[A]]", 1, "drive: needs url, username and password_"),
        ("[clusters]\nscheduler = default", 2, "belongs in a section in [clusters]: [[name]]"),
        ("cost_functions = A", 1, "belongs in a section in [clusters]: [[name]]"),
        ("[clusters]\nlog_level = debug", 2, "[clusters] log_level: belongs above the sections"),
        ("[cluster]\n[[A]]", 1, "[cluster]: there is no such section; did you mean clusters?"),
        ("[clusters]\n[[A]]\npolcy = x", 3, "[clusters] [[A]] polcy: there is no such key; did"),
        ("[clusters]\n[[A]]\n[[B]]\ntimer_interval = -1", 4, "[clusters] [[B]] timer_interval: "),
        ("[clusters]\n\n[[A B]]\nscheduler = x", 3, "[clusters] [[A B]]: is not the name of a cluster"),
        ("[clusters]\n[[East]]\n[[east]]", 3, "the engine ignores case: keep this section or [[East]]"),
        ("[clusters]\n[[A]]\nproperties = a;b", 3, "expected key=value, with ; between"),
        ("[clusters]\n[[A]]\nproperties = a=1;a=2", 3, "expected key=value, with ; between"),
        ("[clusters]\n[[A]]\nproperties = policy=none", 3, "policy is a key of its own"),
        ("[clusters]\n[[A]]\nproperties = filters=B", 3, "filters is a key of its own"),
        ("[clusters]\n[[A]]\nfilters = B;B", 3, "expected names, each once, with ; between"),
        ("[clusters]\n[[A]]\ncost_functions = B=2;C=half", 3, "names, each once and with an int"),
        ("[engine]\n[[A]]", 2, "[engine] [[A]]: there is no such section"),
    ],
)  # fmt: skip
def test_a_mistake_stops_the_start(conf, tmp_path, text, line, words):
    """It names the file, the line, the key and what is allowed (contract 6)."""
    with pytest.raises(ConfigError) as caught:
        conf(text)
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "scheduler.conf"), line)
    assert words in caught.value.message


def test_each_entry_of_the_variable_gets_the_suffix(conf, monkeypatch, tmp_path):
    """Empty entries are passed over, and relative ones are where the daemon starts."""
    monkeypatch.chdir(tmp_path)
    settings = conf("", PYTHONPATH=":/one::two:/one")
    folders = (Path("/one/ovirt_scheduler/plugins"), tmp_path / "two" / "ovirt_scheduler/plugins")
    assert settings.plugins_path == folders
    assert settings.plugins_path_optional == set(folders)


def test_only_folders_of_the_variable_may_be_missing(conf):
    """A folder that is written out has to be there, even where the variable has it as well."""
    settings = conf("plugins_path = $PYTHONPATH/p:/b:/a/p", PYTHONPATH="/a:/c")
    assert settings.plugins_path == (Path("/a/p"), Path("/c/p"), Path("/b"))
    assert settings.plugins_path_optional == {Path("/c/p")}


@pytest.mark.parametrize(
    ("environ", "uid", "folder"),
    [
        ({"STATE_DIRECTORY": "/s"}, 0, "/s"),
        ({"STATE_DIRECTORY": "/s:/t", "HOME": "/h"}, 1000, "/s"),
        ({"HOME": "/root", "XDG_STATE_HOME": "/x"}, 0, "/var/lib/ovirt-scheduler"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/x"}, 1000, "/x/ovirt-scheduler"),
        ({"HOME": "/h", "XDG_STATE_HOME": "x"}, 1000, "/h/.local/state/ovirt-scheduler"),
        ({"HOME": "/h"}, 1000, "/h/.local/state/ovirt-scheduler"),
    ],
)
def test_the_state_folder_follows_the_environment_and_the_user(monkeypatch, environ, uid, folder):
    """systemd's word first, then root's place, then the user's own (contract 6)."""
    monkeypatch.setattr(os, "environ", environ)
    monkeypatch.setattr(os, "getuid", lambda: uid)
    assert scheduler_conf.state_folder() == Path(folder)


def test_the_daemons_user_finds_the_daemons_state(tmp_path, monkeypatch):
    """In the system's folder, which belongs to this user; another user has one of their own."""
    monkeypatch.setattr(scheduler_conf, "SYSTEM_STATE", tmp_path)
    monkeypatch.setattr(os, "environ", {"HOME": "/h", "XDG_STATE_HOME": "/x"})
    assert scheduler_conf.state_folder() == tmp_path
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert scheduler_conf.state_folder() == Path("/x/ovirt-scheduler")


def test_a_user_without_a_home_has_to_say_where_state_goes(monkeypatch):
    """An unknown uid, as in a container, gets told what to set."""
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(ConfigError, match="set STATE_DIRECTORY"):
        scheduler_conf.state_folder()


@pytest.mark.parametrize(
    "settings",
    [
        "ssl_certificate = {0}\nssl_key = {1}", "ssl_certificate = {1}\nssl_key = {0}",
        "ssl_client_ca = {0}",
        "[engine]\nurl = https://e/api\nusername = u\npassword_file = {0}",
        "[engine]\nurl = https://e/api\nusername = u\npassword_file = {1}\nca_file = {0}",
    ],
)  # fmt: skip
def test_a_file_that_is_a_pipe_is_refused(conf, tmp_path, settings):
    """Whoever read it would wait for somebody to write, and not even SIGTERM would end that."""
    pipe, plain = tmp_path / "pipe", tmp_path / "plain"
    os.mkfifo(pipe, 0o600)
    plain.touch(0o600)
    with pytest.raises(ConfigError, match="pipe: is not a plain file"):
        conf(settings.format(pipe, plain))


@pytest.mark.parametrize("user", ["", *["plugin_user = nobody\n"] * (os.geteuid() == 0)])
def test_a_log_that_others_could_lead_elsewhere_is_refused(tmp_path, user):
    """Whoever the daemon is: it would write into any file of its user's."""
    file, log, folder = (tmp_path / name for name in ("scheduler.conf", "log", "logs"))
    log.symlink_to(tmp_path / "elsewhere")
    folder.mkdir()
    folder.chmod(0o777)
    for name, told in ((log, "log: is a link; name the"), (folder / "log", f"chmod o-w {folder}")):
        file.write_text(f"{user}log_file = {name}\n")
        with pytest.raises(ConfigError, match=told):
            scheduler_conf.load(file, {})
    folder.chmod(0o700)
    scheduler_conf.load(file, {})
    (folder / "log").touch()
    (folder / "log").chmod(0o666)
    scheduler_conf.load(file, {}, for_daemon=False)  # it is the daemon's user's, and not root's
    with pytest.raises(ConfigError, match=f"mend it: chmod o-w {folder}/log"):
        scheduler_conf.load(file, {})


def test_the_journal_goes_with_no_log_file(conf):
    """Neither is left out silently."""
    with pytest.raises(ConfigError, match=r":2: log_file.*log_format = journal writes no file"):
        conf("log_format = journal\nlog_file = /var/log/x\n")


def test_a_log_with_a_name_too_long_is_told_when_it_is_opened(tmp_path):
    """With plugin_user, which has its folder looked at, as without."""
    file = tmp_path / "scheduler.conf"
    file.write_text(f"log_file = /{'x' * 300}\nplugin_user = nobody\n")
    settings = scheduler_conf.load(file, {}, for_daemon=False)
    with pytest.raises(ConfigError, match="the log cannot be written: File name too long"):
        LogFile(settings.log_file)


def test_settings_that_do_not_fit_together_are_told_at_once(conf):
    """Those of the sections, too."""
    with pytest.raises(ConfigError) as caught:
        conf("record = on\nhistory = off\n[engine]\nurl = https://e/api\n[clusters]\n[[a b]]\n")
    assert [mistake.line for mistake in caught.value.mistakes] == [1, 4, 4, 6]
