"""The settings of the daemon, in scheduler.conf (contract 6).

``conf_file`` checks each value by itself. This module checks which values fit together, and makes
frozen dataclasses of them.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Optional

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.model.plugins import PluginUser
from ovirt_scheduler.model.requests import Pages
from ovirt_scheduler.security import trust
from ovirt_scheduler.security.addresses import is_loopback
from ovirt_scheduler.settings.conf_file import ConfFile, content
from ovirt_scheduler.settings.table import (
    CLUSTER,
    SCHEDULER,
    ClusterSettings,
    EngineSettings,
    Settings,
)
from ovirt_scheduler.settings.value_types import PYTHON_PATH, Drive

CLUSTER_NAME = re.compile(r"[\w.-]{1,40}")

DEFAULT_FILE = Path("/etc/ovirt/scheduler/scheduler.conf")
SYSTEM_STATE = Path("/var/lib/ovirt-scheduler")  # of the daemon that systemd starts


def load(path: Optional[Path], environ: Mapping[str, str], for_daemon: bool = True) -> Settings:
    """Read and check scheduler.conf.

    Args:
        path: the file; None for the one in its usual place, which may be missing.
        environ: for ``PYTHONPATH``, which ``plugins_path`` may name.
        for_daemon: whether ``plugin_user`` needs root. Commands of other users run plugins as
            that user, and ignore it.

    Raises:
        ConfigError: each mistake with the file, the line and the key, and what is allowed.
    """
    file = DEFAULT_FILE if path is None else path
    try:
        data = content(file, ConfigError, trusted=True)
    except FileNotFoundError as error:
        if path is not None:
            raise ConfigError("there is no such file", str(file)) from error
        data = b""
    conf = parse(data, file)
    _check_together(conf)
    _check_files(conf, for_daemon)
    folders, optional = _plugin_folders(conf["plugins_path"], environ)
    plugin_user, engine = _plugin_user(conf, for_daemon), _engine(conf)
    cluster_sections = tuple(_clusters(conf, file))
    conf.mistakes.check()
    derived = {
        "file": file.absolute(),
        "plugins_path": folders,
        "plugins_path_optional": optional,
        "max_parallel_calls": conf["max_parallel_calls"] or 2 * len(os.sched_getaffinity(0)),
        "plugin_user": plugin_user,
        "engine": engine,
        "clusters": cluster_sections,
    }
    return Settings(**{**conf.values, **derived})


def parse(data: bytes, path: Path) -> ConfFile:
    """Check each value of scheduler.conf by itself.

    Args:
        data: what is in the file.
        path: where it is, for messages.

    Raises:
        ConfigError: each mistake with the file, the line and the key, and what is allowed.
    """
    return ConfFile(data, path, ConfigError, SCHEDULER, {"clusters": CLUSTER})


def clusters(data: bytes, path: Path) -> tuple[ClusterSettings, ...]:
    """The sections of ``[clusters]`` in the data of a file.

    Raises:
        ConfigError: as ``parse``.
    """
    conf = parse(data, path)
    sections = tuple(_clusters(conf, path))
    conf.mistakes.check()
    return sections


def state_folder() -> Path:
    """The folder for the certificate and the last good plugins (contract 6).

    Raises:
        ConfigError: the user has no home folder, and the environment names none.
    """
    uid = os.getuid()
    folder = os.environ.get("STATE_DIRECTORY", "").split(":")[0]  # systemd may set several
    if folder:
        return Path(folder)
    with contextlib.suppress(OSError):  # there is none, or this user may not see it
        if uid == 0 or SYSTEM_STATE.stat().st_uid == uid:
            return SYSTEM_STATE
    state = os.environ.get("XDG_STATE_HOME", "")
    if state.startswith("/"):  # the XDG specification has relative paths ignored
        return Path(state) / "ovirt-scheduler"
    try:
        return Path.home() / ".local" / "state" / "ovirt-scheduler"
    except (RuntimeError, KeyError):  # the latter in Python 3.9
        raise ConfigError(
            f"user {uid} has no home folder for the certificate and the last good plugins; "
            "set STATE_DIRECTORY"
        ) from None


def _check_together(conf: ConfFile) -> None:
    """Refuse values that do not fit together, and those that let everybody in by mistake."""
    secured = conf["ssl_client_ca"]
    address = conf["listening_address"]
    open_door = not secured and not conf["allow_unauthenticated"] and not is_loopback(address)
    of_plugin, of_request = conf["plugin_timeout"], conf["request_timeout"]
    drives, engine = conf["drive"] is not Drive.OFF, conf.sections["engine"]
    mistakes = (
        (secured and not conf["ssl"], "ssl_client_ca", "client certificates need ssl = true"),
        (conf["ssl_allowed_clients"] and not secured, "ssl_allowed_clients",
         "needs ssl_client_ca, which is not set"),
        (conf["pages"] is Pages.CALLERS and not secured, "pages",
         "callers needs client certificates: set ssl_client_ca, or write loopback"),
        (open_door, "listening_address",
         f"who reaches {address} could call: set ssl_client_ca, or allow_unauthenticated = true"),
        (conf["log_file"] and conf["log_format"] == "journal", "log_file",
         "log_format = journal writes no file; remove one of them"),
        (conf["ssl_certificate"] and not conf["ssl_key"], "ssl_certificate", "needs ssl_key too"),
        (conf["ssl_key"] and not conf["ssl_certificate"], "ssl_key", "needs ssl_certificate too"),
        (of_plugin > of_request and "plugin_timeout" in conf, "plugin_timeout",
         f"{of_plugin:g} seconds is longer than request_timeout, {of_request:g}"),
        (of_plugin > of_request and "plugin_timeout" not in conf, "request_timeout",
         f"{of_request:g} seconds is shorter than plugin_timeout, {of_plugin:g}: set that, too"),
        (conf["record"] and not conf["history"], "record",
         "record needs the history: set history = true"),
        (drives and not any(key in engine for key in engine.values), "drive",
         "needs url, username and password_file in the section [engine]"),
        (drives and not conf.subsections["clusters"], "drive",
         "needs a section in [clusters] for each cluster: [[name]]"),
    )  # fmt: skip
    for mistaken, key, problem in mistakes:
        if mistaken:
            conf.refuse(key, problem)


def _check_files(conf: ConfFile, for_daemon: bool) -> None:
    """Refuse files that somebody else could change or, if they hold a secret, read."""
    engine = conf.sections["engine"]
    # A link in a folder that others may write could lead the log into any file. The log belongs to
    # the daemon's user, whom root does not trust.
    logs = conf["log_file"] if for_daemon else None
    with contextlib.suppress(OSError):
        if logs and logs.is_symlink():
            conf.refuse("log_file", f"{logs}: is a link; name the file that it leads to")
        if logs and not logs.exists():
            logs = logs.parent
    named = (
        (conf, "log_file", logs, trust.tampering),
        (conf, "ssl_certificate", conf["ssl_certificate"], trust.tampering),
        (conf, "ssl_key", conf["ssl_key"], trust.exposure),
        (conf, "ssl_client_ca", conf["ssl_client_ca"], trust.tampering),
        (engine, "password_file", engine["password_file"], trust.exposure),
        (engine, "ca_file", engine["ca_file"], trust.tampering),
    )
    for section, key, path, problem_of in named:
        if path is not None:
            with contextlib.suppress(OSError):  # whoever opens the file reports that
                problem = problem_of(path)
                if not problem and key != "log_file" and not stat.S_ISREG(path.stat().st_mode):
                    problem = "is not a plain file"  # whoever opens a pipe could wait for good
                if problem:
                    section.refuse(key, f"{path}: {problem}")


def _plugin_user(conf: ConfFile, for_daemon: bool) -> Optional[PluginUser]:
    name = conf["plugin_user"]
    if name is None:
        return None
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        conf.refuse("plugin_user", f"there is no user {name}; make it, or name another")
        return None
    groups = os.getgrouplist(name, account.pw_gid)
    if account.pw_uid == 0 or 0 in groups:
        conf.refuse(
            "plugin_user", f"{name} has the rights of root, or of root's group; name a user without"
        )
    elif os.geteuid() == 0:
        return PluginUser(name, account.pw_uid, account.pw_gid, tuple(groups), account.pw_dir)
    elif for_daemon:
        conf.refuse(
            "plugin_user",
            f"only root can run plugins as {name}; start it as root, or remove the line",
        )
    return None


def _engine(conf: ConfFile) -> Optional[EngineSettings]:
    section = conf.sections["engine"]
    keys = [key for key in section.values if key in section]
    if section["proxy"] and (section["url"] or "").startswith("http:"):
        section.refuse("proxy", "it would read the password: write an https:// url")
    for needed in ("url", "username", "password_file"):
        if keys and needed not in keys:
            section.refuse(keys[0], f"the section needs {needed} too")
    return EngineSettings(**section.values) if keys else None


def _clusters(conf: ConfFile, file: Path) -> Iterator[ClusterSettings]:
    sections = conf.subsections["clusters"]
    names: dict[str, str] = {}  # as the engine finds them: whatever their case
    for name, section in sections.items():
        problem = ""
        other = names.setdefault(name.lower(), name)
        if other != name:
            problem = f"the engine ignores case: keep this section or [[{other}]]"
        if not CLUSTER_NAME.fullmatch(name):
            problem = "is not the name of a cluster: at most 40 letters, digits, - _ and ."
        if problem:
            conf.mistakes.note(f"[clusters] [[{name}]]: {problem}", section.line)
        for key in ("policy", "filters", "cost_functions"):
            if key in section["properties"]:
                problem = f"{key} is a key of its own: write it on a line of its own"
                section.refuse("properties", problem)
        policy = {"policy": section["policy"]} if section["policy"] else {}
        values = {**section.values, "properties": {**section["properties"], **policy}}
        if section.lines["refused_pause"] == section.line:  # it is not set there
            values["refused_pause"] = conf["refused_pause"]
        yield ClusterSettings(name, conf["drive"], str(file), section.lines, **values)


def _plugin_folders(
    written: tuple[str, ...], environ: Mapping[str, str]
) -> tuple[tuple[Path, ...], frozenset[Path]]:
    """The folders of ``plugins_path``, each once; and those among them that may be missing."""
    variable = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    bases = variable or [str(Path(__file__).resolve().parents[2])]
    folders: dict[Path, bool] = {}  # whether it may be missing
    for folder in written:
        if folder.startswith("/"):
            folders[Path(folder)] = False
            continue
        for base in bases:
            inside = folder[len(PYTHON_PATH) :].lstrip("/")
            folders.setdefault(Path(base).absolute() / inside, True)
    return tuple(folders), frozenset(folder for folder, optional in folders.items() if optional)
