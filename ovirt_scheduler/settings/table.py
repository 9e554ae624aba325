"""The table of settings: every key of scheduler.conf and of a plugin's conf file, once.

The fields of these dataclasses are the table. A field has the type of the settings in force, and
says with ``setting`` how its value is written in the file. The checks at start, the sample file and
the manual's tables are all made from it (contract 5.8, 6)::

    SCHEDULER, CLUSTER, PLUGIN ──► Key.cast()  what each value of a file is made with
                                ├──► (docs/settings_files.py) etc/scheduler.conf, and the tables
                                │      in docs/configuration.md
                                └──► (docs/man_pages.py) ovirt-scheduler.conf(5)

``docs/generate.py`` writes these files anew.

A value is written the same way everywhere: in the file, as a default, as a bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional

from ovirt_scheduler.errors import ConfigError, OptionMistake
from ovirt_scheduler.model.plugins import PluginUser
from ovirt_scheduler.model.requests import AnswerForm, EngineScores, Pages, RequestedUnit
from ovirt_scheduler.model.units import Kind, OnFailure
from ovirt_scheduler.security import trust
from ovirt_scheduler.settings.value_types import DayHours, Drive, EngineEvents, Key

_LONGEST_PASSWORD = 4096  # characters
_REFUSED_PAUSE = (
    "How long a VM is not migrated to a host after the engine has refused that, or it failed. 0 is "
    "not at all."
)


def setting(
    value_type: str, default: Optional[str], meaning: str, name: str = "", **more: Any
) -> Any:
    """A field of a dataclass that is a line of the table.

    Args:
        value_type: how it is written; one of ``values.TYPES``.
        default: as it would stand in the file.
        meaning: a sentence for the manual.
        name: of the key, unless it is that of the field.
        more: of the ``Key``.
    """
    key = Key(name, value_type, default, meaning, **more)
    return field(default_factory=lambda: key.default_value, metadata={"key": key})


def _keys(settings: type, section: str = "") -> tuple[Key, ...]:
    """The table that the fields of a dataclass are."""
    written = {each.name: each.metadata["key"] for each in fields(settings) if each.metadata}
    return tuple(
        key._replace(name=key.name or name, section=section) for name, key in written.items()
    )


@dataclass(frozen=True)
class EngineSettings:
    """The section ``[engine]``: the REST API for contract 5.2."""

    # fmt: off
    url: str = setting("url", None,
        "The engine's REST API, such as https://engine.example.com/ovirt-engine/api. Needs "
        "username and password_file.")
    username: str = setting("text", None,
        "The engine's user, such as scheduler@internal. It has to be allowed to read and, with "
        "drive = on or approve, to migrate VMs.")
    password_file: Path = setting("path", None,
        "File with the password in its first line. Only the daemon's user may read it.")
    ca_file: Optional[Path] = setting("path", None,
        "PEM file with the authority that signed the engine's certificate.",
        unset="the system's authorities")
    proxy: Optional[str] = setting("proxy", None,
        "The HTTP proxy through which the daemon and its plugins' connections reach the engine, "
        "such as http://proxy.example.com:3128. Those of the environment are not used.")
    cache_seconds: float = setting("seconds", "5",
        "How long the daemon uses an answer of the engine.",
        bounds=("0", "3600"))
    look_distance: float = setting("seconds", "5",
        "Least time from the beginning of a look at a cluster to that of the next look that an "
        "event of the engine leads to.",
        bounds=("0", "3600"))
    events: EngineEvents = setting("choice", "none",
        "What the daemon writes into the engine's events: failures is what somebody may have to "
        "act on; all has migrations too. The user needs the role ExternalEventsCreator.",
        choices=EngineEvents)
    # fmt: on

    def password(self) -> str:
        """Read the password, which is the first line of its file.

        Raises:
            ConfigError: the file cannot be read, or others could read or change it.
        """
        password = ""
        try:
            reason = trust.exposure(self.password_file)
            if reason is None:
                with self.password_file.open(encoding="utf-8-sig") as file:
                    password = file.readline(_LONGEST_PASSWORD + 1).rstrip("\n")
                if not 0 < len(password) <= _LONGEST_PASSWORD:
                    reason = f"expected 1 to {_LONGEST_PASSWORD} characters in its first line"
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
        except ValueError:
            reason = "is not UTF-8"
        if reason:
            raise ConfigError(reason, str(self.password_file))
        return password


@dataclass(frozen=True)
class ClusterSettings:
    """One section of ``[clusters]``; intervals in seconds, 0: never.

    The policy is among the properties, too.
    """

    name: str  # of the cluster
    drive: Drive = Drive.OFF
    file: str = field(default="", compare=False)
    lines: Mapping[str, Optional[int]] = field(default_factory=dict, compare=False)  # of its keys
    changed: frozenset[str] = field(default=frozenset(), compare=False)  # keys, by options
    # fmt: off
    scheduler: str = setting("text", "default", "The scheduler that looks after the cluster.")
    policy: Optional[str] = setting("text", None,
        "One of the scheduler's policies.", unset="the scheduler's first")
    properties: Mapping[str, str] = setting("assignments", None,
        "Other properties of the scheduler and the units, as key=value;key2=value2.",
        absent=MappingProxyType({}))
    filters: tuple[RequestedUnit, ...] = setting("names", None,
        "The filters that decide where a VM may be migrated to.", absent=())
    cost_functions: tuple[RequestedUnit, ...] = setting("factors", None,
        "The cost functions that decide where a VM is best migrated to, as "
        "name=factor;name2=factor2.",
        absent=())
    balance: Optional[RequestedUnit] = setting("unit", None,
        "A balance that says what to migrate, instead of the scheduler's load_balance.",
        unset="the scheduler's")
    load_balance_interval: float = setting("minutes", "1",
        "Time between two questions what to migrate. 0 is never.", bounds=("0", "10080"))
    timer_interval: float = setting("minutes", "10",
        "Time between two calls by the timer. 0 is never.", bounds=("0", "10080"))
    hold: float = setting("minutes", "3",
        "How long an imbalance has to last before VMs are migrated for it. 0 is not at all.",
        bounds=("0", "1440"))
    margin: float = setting("percent", "5",
        "By how many points migrations have to improve the imbalance of their hosts. 0 allows "
        "whatever the scheduler wants.", bounds=("0", "100"))
    average: float = setting("minutes", "0",
        "A balancing goes by averages of the use of hosts and VMs, in which a change counts for "
        "63 % after this time. 0 is no average.", bounds=("0", "1440"))
    hours: Optional[DayHours] = setting("day_hours", None,
        "When balancings may migrate VMs, by the clock of the daemon's machine. At other times "
        "their plans are only told, as in a dry run.", unset="all day")
    migrations_per_vm: int = setting("whole", "4",
        "How often a VM is migrated within an hour at most; then it stays where it is.",
        bounds=("1", "1000"))
    affinity: bool = setting("truth", "true",
        "Keep to the engine's affinity groups: read them, plan by them, and mend hard rules that "
        "stay broken.")
    refused_pause: float = setting("minutes", None, _REFUSED_PAUSE,
        bounds=("0", "1440"), unset="refused_pause outside of the section", absent=600.0)
    # fmt: on

    def mistake(self, key: str, problem: str) -> ConfigError:
        """The exception to raise about a key. Its line is the section's if the key is not set."""
        words = f"[clusters] [[{self.name}]] {key}: {problem}"
        error_type = OptionMistake if key in self.changed else ConfigError
        return error_type(words, self.file, self.lines.get(key))


@dataclass(frozen=True)
class Settings:
    """scheduler.conf (contract 6). Times are seconds, sizes bytes, paths absolute."""

    file: Optional[Path] = field(default=None, compare=False)  # that they were read from
    engine: Optional[EngineSettings] = None
    clusters: tuple[ClusterSettings, ...] = ()
    # The folders of plugins_path that are from $PYTHONPATH, and may be missing.
    plugins_path_optional: frozenset[Path] = frozenset()
    conf_beside: bool = False  # a NAME.conf beside NAME.py counts before one in plugins_conf_path
    # fmt: off
    listening_port: int = setting("whole", "18781",
        "TCP port. 0 lets the kernel choose one, which is printed at start.",
        bounds=("0", "65535"), other_names=("listening port", "listerning port"))
    listening_address: str = setting("address", "localhost",
        "Where to listen. Beyond the loopback interface only with ssl_client_ca, or with "
        "allow_unauthenticated = true: whoever reaches the port may call.")
    allow_unauthenticated: bool = setting("truth", "false",
        "Listen beyond the loopback interface although callers do not prove who they are.")
    ssl: bool = setting("truth", "true",
        "TLS. Without it the calls and answers cross the wire in clear text.")
    ssl_certificate: Optional[Path] = setting("path", None,
        "PEM file with the server's certificate, and the chain after it. Goes with ssl_key.",
        unset="self-signed, made on first start in the state folder")
    ssl_key: Optional[Path] = setting("path", None,
        "PEM file with the private key, without a passphrase. Only the daemon's user may read it. "
        "Goes with ssl_certificate.",
        unset="made with the certificate")
    ssl_client_ca: Optional[Path] = setting("path", None,
        "PEM file with the authorities that sign client certificates. A caller without such a "
        "certificate is then refused.")
    ssl_allowed_clients: tuple[str, ...] = setting("subjects", None,
        "Which client certificates are accepted: subject names (CN=engine,O=Example) or common "
        "names, with ; between. Needs ssl_client_ca.",
        unset="every one that ssl_client_ca signed", absent=())
    plugins_path: tuple[Path, ...] = setting("folders", "$PYTHONPATH/ovirt_scheduler/plugins",
        "Folders with plugins, with : between. $PYTHONPATH at the beginning of a folder stands for "
        "each entry of that environment variable or, if it is not set, for the place where the "
        "package is installed; such a folder may be missing.")
    plugins_conf_path: Path = setting("path", "/etc/ovirt/scheduler/plugins",
        "Folder with the plugins' conf files, NAME.conf for the plugin NAME.py.")
    engine_version: Optional[str] = setting("version", None,
        "The oVirt version of the engine. A scheduler that was written for a newer version is left "
        "out, with a warning.",
        unset="every scheduler is taken")
    root_api: AnswerForm = setting("choice", "design",
        "The form of answers at the URL paths / and /RPC2. An engine calls / and needs the value "
        "engine.",
        choices=AnswerForm)
    engine_scores: EngineScores = setting("choice", "per_unit",
        "What runCostFunctions answers in the engine form: each function's own cost, which the "
        "engine multiplies, or one sum for each host, for engines before 4.1.",
        choices=EngineScores)
    plugin_user: Optional[PluginUser] = setting("user", None,
        "The user that runs plugins, so that they cannot read the daemon's secrets. Root then has "
        "to start the daemon; see security.md of the manual.",
        unset="the daemon's own user")
    plugin_timeout: float = setting("seconds", "30",
        "Time that one plugin call may take. At most request_timeout.",
        bounds=("0.1", "119"))
    request_timeout: float = setting("seconds", "100",
        "Time that a whole request may take, with its waiting. The engine gives up after 120 s.",
        bounds=("0.1", "119"))
    on_failure: OnFailure = setting("choice", "ignore",
        "What happens if a filter fails or its file does not load: ignore leaves the filter out, "
        "reject makes it reject every host. A plugin's conf file may say otherwise.",
        choices=OnFailure)
    max_parallel_calls: int = setting("whole", None,
        "Plugin calls that run at the same time, of all requests together. A request takes at "
        "most half of the free places; with 1, a request may have to wait for a slow one.",
        bounds=("1", "4096"), unset="two for each processor")
    calls_per_process: int = setting("whole", "1000",
        "Calls that a plugin's process serves before it is replaced. With 1, each call has a "
        "process of its own.",
        bounds=("1", "1000000"))
    kept_processes: int = setting("whole", "64",
        "Processes of plugins that are kept between calls. If there are more, those that were used "
        "longest ago end.",
        bounds=("0", "65536"))
    max_connections: int = setting("whole", "512",
        "Open connections. If all are in use, the one that is idle for longest is closed. If none "
        "is idle, it is one whose request still arrives: first one without a whole head, then the "
        "slowest. Else a new one has to wait.",
        bounds=("1", "65536"))
    max_waiting: int = setting("whole", "1024",
        "Requests that may wait for their turn. Further requests get fault 104.",
        bounds=("0", "65536"))
    max_request_size: int = setting("size", "64 MiB",
        "Bytes of a request's body, also after decompression.", bounds=("1 KiB", "4 GiB"))
    connection_timeout: float = setting("seconds", "10",
        "Time for a TLS handshake, and for a request to arrive. A kept connection may idle for "
        "60 seconds.",
        bounds=("0.1", "120"))
    drain_time: float = setting("seconds", "0",
        "How long a daemon that is told to stop still takes calls, while /health says 503, so that "
        "a load balancer can notice.",
        bounds=("0", "10"))
    memory_limit: int = setting("size", "512 MiB",
        "Memory of each plugin call, beyond what its process has when the call begins.",
        bounds=("1 MiB", "1024 GiB"))
    cpu_limit: int = setting("whole_seconds", "60",
        "Processor time of each plugin call, and of each process that it starts.",
        bounds=("1", "86400"))
    files_limit: int = setting("whole", "256",
        "Files that each process of a plugin call may have open.", bounds=("16", "1048576"))
    log_file: Optional[Path] = setting("path", None,
        "File for the log. logrotate may move it: the daemon then makes it anew.",
        unset="standard error")
    log_format: str = setting("choice", "auto",
        "Form of the log: plain text, JSON, or entries of systemd's journal with fields. auto is "
        "journal if standard error goes there, else plain.",
        choices=("auto", "plain", "json", "journal"))
    log_level: str = setting("choice", "info",
        "The lowest level of lines in the log.", choices=("debug", "info", "warning", "error"))
    pages: Pages = setting("choice", "health",
        "What GET serves. health: /health to whoever may call, /metrics to this machine; "
        "loopback: also all other pages to this machine; callers: all pages to whoever may call.",
        choices=Pages)
    engine_reasons: bool = setting("truth", "false",
        "If filters leave no host, the engine form says in errors which filter removed how many. "
        "The engine writes that into its audit log.")
    history: bool = setting("truth", "true",
        "Keep each decision with every host and the reasons: history.sqlite in the state folder.")
    history_days: int = setting("whole", "30", "Days that a decision is kept.",
        bounds=("1", "36500"))
    history_size: int = setting("size", "256 MiB",
        "Bytes that the history's file and its log may take. If there are more, the oldest "
        "decisions and events are deleted.",
        bounds=("1 MiB", "1024 GiB"))
    record: bool = setting("truth", "false",
        "Keep the documents of each decision, and the engine's answers, for ovirt-scheduler "
        "replay. They are in the history, and count for history_size.")
    drive: Drive = setting("choice", "off",
        "Whether the daemon itself looks after the clusters of the section [clusters]: dry-run "
        "only logs migrations, approve makes those that somebody approves (ovirt-scheduler plan), "
        "on makes all. Needs the section [engine].",
        choices=Drive)
    refused_pause: float = setting("minutes", "10", _REFUSED_PAUSE, bounds=("0", "1440"))
    # fmt: on


@dataclass(frozen=True)
class PluginConf:
    """A plugin's conf file (contract 5.8). None means the value of scheduler.conf.

    ``properties.parse`` reads ``custom_properties`` and ``default_values``.
    """

    # fmt: off
    name: str = setting("text", None, "Name of the property set.", unset="the plugin's name")
    custom_properties: str = setting("text", None,
        "The properties that the units take: key=regex;key2=regex2.",
        name="customProperties", absent="")
    default_values: str = setting("text", None,
        "The properties' defaults, in the same order, with ; between. An empty place is no "
        "default.",
        name="defaultValues", absent="")
    kinds: frozenset[Kind] = setting("choices", "filter, cost_function, balance",
        "Which of the plugin's units have the properties.", choices=Kind)
    timeout: Optional[float] = setting("seconds", None,
        "Time that one call of this plugin may take.",
        bounds=("0.1", "119"), unset="plugin_timeout of scheduler.conf")
    memory_limit: Optional[int] = setting("size", None,
        "Memory of each call of this plugin, beyond what its process has when the call begins.",
        bounds=("1 MiB", "1024 GiB"), unset="memory_limit of scheduler.conf")
    calls_per_process: Optional[int] = setting("whole", None,
        "Calls that a process of this plugin serves before it is replaced. Set 1 if its calls must "
        "not share what they change inside a library.",
        bounds=("1", "1000000"), unset="calls_per_process of scheduler.conf")
    on_failure: Optional[OnFailure] = setting("choice", None,
        "What happens if the filter fails, does not load, or is gone while this conf file is "
        "there: ignore leaves it out, reject makes it reject every host.",
        choices=OnFailure, unset="on_failure of scheduler.conf")
    shadow: bool = setting("truth", "false",
        "Whether the plugin's policy units only look on: they are called after each answer, and "
        "what they say is recorded, but never used.")
    enabled: bool = setting("truth", "true", "Whether the plugin is loaded.")
    # fmt: on
    properties_line: Optional[int] = field(default=None, compare=False)  # in the file
    defaults_line: Optional[int] = field(default=None, compare=False)


SCHEDULER = (*_keys(Settings), *_keys(EngineSettings, "engine"))
CLUSTER = _keys(ClusterSettings)
PLUGIN = _keys(PluginConf)
