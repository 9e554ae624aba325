"""The table of settings: every key of scheduler.conf and of a plugin's conf file, once.

The checks at start, the sample file and the manual's tables are all made from it
(contract 5.8, 6)::

    SCHEDULER, CLUSTER, PLUGIN ──► Key.cast()  what each value of a file is made with
                                ├──► (docs/settings_files.py) etc/scheduler.conf, and the tables
                                │      in docs/configuration.md
                                └──► (docs/man_pages.py) ovirt-scheduler.conf(5)

``docs/generate.py`` writes these files anew.

A value is written the same way everywhere: in the file, as a default, as a bound.
"""

from __future__ import annotations

from ovirt_scheduler.model.requests import AnswerForm, EngineScores, Pages
from ovirt_scheduler.model.units import Kind, OnFailure
from ovirt_scheduler.settings.values import Drive, Key

SCHEDULER: tuple[Key, ...] = (
    Key("listening_port", "whole", "18781",
        "TCP port. 0 lets the kernel choose one, which is printed at start.",
        bounds=("0", "65535"), other_names=("listening port", "listerning port")),
    Key("listening_address", "address", "localhost",
        "Where to listen. Beyond the loopback interface only with ssl_client_ca, or with "
        "allow_unauthenticated = true: whoever reaches the port may call."),
    Key("allow_unauthenticated", "truth", "false",
        "Listen beyond the loopback interface although callers do not prove who they are."),
    Key("ssl", "truth", "true",
        "TLS. Without it the calls and answers cross the wire in clear text."),
    Key("ssl_certificate", "path", None,
        "PEM file with the server's certificate, and the chain after it. Goes with ssl_key.",
        unset="self-signed, made on first start in the state folder"),
    Key("ssl_key", "path", None,
        "PEM file with the private key, without a passphrase. Only the daemon's user may read it. "
        "Goes with ssl_certificate.",
        unset="made with the certificate"),
    Key("ssl_client_ca", "path", None,
        "PEM file with the authorities that sign client certificates. A caller without such a "
        "certificate is then refused."),
    Key("ssl_allowed_clients", "subjects", None,
        "Which client certificates are accepted: subject names (CN=engine,O=Example) or common "
        "names, with ; between. Needs ssl_client_ca.",
        unset="every one that ssl_client_ca signed"),
    Key("plugins_path", "folders", "$PYTHONPATH/ovirt_scheduler/plugins",
        "Folders with plugins, with : between. $PYTHONPATH at the beginning of a folder stands for "
        "each entry of that environment variable or, if it is not set, for the place where the "
        "package is installed; such a folder may be missing."),
    Key("plugins_conf_path", "path", "/etc/ovirt/scheduler/plugins",
        "Folder with the plugins' conf files, NAME.conf for the plugin NAME.py."),
    Key("engine_version", "version", None,
        "The oVirt version of the engine. A scheduler that was written for a newer version is left "
        "out, with a warning.",
        unset="every scheduler is taken"),
    Key("root_api", "choice", "design",
        "The form of answers at the URL paths / and /RPC2. An engine calls / and needs the value "
        "engine.",
        choices=AnswerForm),
    Key("engine_scores", "choice", "summed",
        "What runCostFunctions answers in the engine form: one sum for each host, or each "
        "function's own cost, which engines of 4.1 and later multiply themselves.",
        choices=EngineScores),
    Key("plugin_user", "user", None,
        "The user that runs plugins, so that they cannot read the daemon's secrets. Root then has "
        "to start the daemon; see security.md of the manual.",
        unset="the daemon's own user"),
    Key("plugin_timeout", "seconds", "30",
        "Time that one plugin call may take. At most request_timeout.",
        bounds=("0.1", "119")),
    Key("request_timeout", "seconds", "100",
        "Time that a whole request may take, with its waiting. The engine gives up after 120 s.",
        bounds=("0.1", "119")),
    Key("on_failure", "choice", "ignore",
        "What happens if a filter fails or its file does not load: ignore leaves the filter out, "
        "reject makes it reject every host. A plugin's conf file may say otherwise.",
        choices=OnFailure),
    Key("max_parallel_calls", "whole", None,
        "Plugin calls that run at the same time, of all requests together. A request takes at "
        "most half of the free places; with 1, a request may have to wait for a slow one.",
        bounds=("1", "4096"), unset="two for each processor"),
    Key("calls_per_process", "whole", "1000",
        "Calls that a plugin's process serves before it is replaced. With 1, each call has a "
        "process of its own.",
        bounds=("1", "1000000")),
    Key("kept_processes", "whole", "64",
        "Processes of plugins that are kept between calls. If there are more, those that were used "
        "longest ago end.",
        bounds=("0", "65536")),
    Key("max_connections", "whole", "512",
        "Open connections. If all are in use, the one that is idle for longest is closed; if none "
        "is idle, a new one has to wait.",
        bounds=("1", "65536")),
    Key("max_waiting", "whole", "1024",
        "Requests that may wait for their turn. Further requests get fault 104.",
        bounds=("0", "65536")),
    Key("max_request_size", "size", "64 MiB",
        "Bytes of a request's body, also after decompression.", bounds=("1 KiB", "4 GiB")),
    Key("connection_timeout", "seconds", "10",
        "Time for a TLS handshake, and for a request to arrive. A kept connection may idle for "
        "60 seconds.",
        bounds=("0.1", "120")),
    Key("drain_time", "seconds", "0",
        "How long a daemon that is told to stop still takes calls, while /health says 503, so that "
        "a load balancer can notice.",
        bounds=("0", "10")),
    Key("memory_limit", "size", "512 MiB",
        "Memory of each plugin call, beyond what its process has when the call begins.",
        bounds=("1 MiB", "1024 GiB")),
    Key("cpu_limit", "whole_seconds", "60",
        "Processor time of each plugin call, and of each process that it starts.",
        bounds=("1", "86400")),
    Key("files_limit", "whole", "256",
        "Files that each process of a plugin call may have open.", bounds=("16", "1048576")),
    Key("log_file", "path", None,
        "File for the log. It rotates at 10 MiB, and 6 are kept.", unset="standard error"),
    Key("log_format", "choice", "auto",
        "Form of the log: plain text, JSON, or entries of systemd's journal with fields. auto is "
        "journal if standard error goes there, else plain.",
        choices=("auto", "plain", "json", "journal")),
    Key("log_level", "choice", "info",
        "The lowest level of lines in the log.", choices=("debug", "info", "warning", "error")),
    Key("pages", "choice", "health",
        "What GET serves. health: /health to whoever may call, /metrics to this machine; "
        "loopback: also all other pages to this machine; callers: all pages to whoever may call.",
        choices=Pages),
    Key("engine_reasons", "truth", "false",
        "If filters leave no host, the engine form says in errors which filter removed how many. "
        "The engine writes that into its audit log."),
    Key("history", "truth", "true",
        "Keep each decision with every host and the reasons: history.sqlite in the state folder."),
    Key("history_days", "whole", "30", "Days that a decision is kept.", bounds=("1", "36500")),
    Key("history_size", "size", "256 MiB",
        "Bytes that the history may take. If there are more, the oldest decisions are deleted.",
        bounds=("1 MiB", "1024 GiB")),
    Key("record", "truth", "false",
        "Keep the documents of each decision, and the engine's answers, for ovirt-scheduler "
        "replay. They are in the history, and count for history_size."),
    Key("drive", "choice", "off",
        "Whether the daemon itself looks after the clusters of the section [clusters]: dry-run "
        "only logs migrations, approve makes those that somebody approves (ovirt-scheduler plan), "
        "on makes all. Needs the section [engine].",
        choices=Drive),
    Key("url", "url", None,
        "The engine's REST API, such as https://engine.example.com/ovirt-engine/api. Needs "
        "username and password_file.",
        section="engine"),
    Key("username", "text", None,
        "The engine's user, such as scheduler@internal. It has to be allowed to read and, with "
        "drive = on or approve, to migrate VMs.",
        section="engine"),
    Key("password_file", "path", None,
        "File with the password in its first line. Only the daemon's user may read it.",
        section="engine"),
    Key("ca_file", "path", None,
        "PEM file with the authority that signed the engine's certificate.",
        unset="the system's authorities", section="engine"),
    Key("cache_seconds", "seconds", "5",
        "How long the daemon uses an answer of the engine.",
        bounds=("0", "3600"), section="engine"),
    Key("look_distance", "seconds", "5",
        "Least time from the beginning of a look at a cluster to that of the next look that an "
        "event of the engine leads to.",
        bounds=("0", "3600"), section="engine"),
)  # fmt: skip

CLUSTER: tuple[Key, ...] = (
    Key("scheduler", "text", "default", "The scheduler that looks after the cluster."),
    Key("policy", "text", None, "One of the scheduler's policies.", unset="the scheduler's first"),
    Key("properties", "assignments", None,
        "Other properties of the scheduler and the units, as key=value;key2=value2."),
    Key("filters", "names", None, "The filters that decide where a VM may be migrated to."),
    Key("cost_functions", "factors", None,
        "The cost functions that decide where a VM is best migrated to, as "
        "name=factor;name2=factor2."),
    Key("balance", "text", None,
        "A balance that says what to migrate, instead of the scheduler's load_balance.",
        unset="the scheduler's"),
    Key("load_balance_interval", "minutes", "1",
        "Time between two questions what to migrate. 0 is never.", bounds=("0", "10080")),
    Key("timer_interval", "minutes", "10",
        "Time between two calls by the timer. 0 is never.", bounds=("0", "10080")),
    Key("hold", "minutes", "3",
        "How long an imbalance has to last before VMs are migrated for it. 0 is not at all.",
        bounds=("0", "1440")),
    Key("margin", "percent", "5",
        "By how many points migrations have to improve the imbalance of their hosts. 0 allows "
        "whatever the scheduler wants.", bounds=("0", "100")),
    Key("migrations_per_vm", "whole", "4",
        "How often a VM is migrated within an hour at most; then it stays where it is.",
        bounds=("1", "1000")),
)  # fmt: skip

PLUGIN: tuple[Key, ...] = (
    Key("name", "text", None, "Name of the property set.", unset="the plugin's name"),
    Key("customProperties", "text", None,
        "The properties that the units take: key=regex;key2=regex2."),
    Key("defaultValues", "text", None,
        "The properties' defaults, in the same order, with ; between. An empty place is no "
        "default."),
    Key("kinds", "choices", "filter, cost_function, balance",
        "Which of the plugin's units have the properties.", choices=Kind),
    Key("timeout", "seconds", None,
        "Time that one call of this plugin may take.",
        bounds=("0.1", "119"), unset="plugin_timeout of scheduler.conf"),
    Key("memory_limit", "size", None,
        "Memory of each call of this plugin, beyond what its process has when the call begins.",
        bounds=("1 MiB", "1024 GiB"), unset="memory_limit of scheduler.conf"),
    Key("calls_per_process", "whole", None,
        "Calls that a process of this plugin serves before it is replaced. Set 1 if its calls must "
        "not share what they change inside a library.",
        bounds=("1", "1000000"), unset="calls_per_process of scheduler.conf"),
    Key("on_failure", "choice", None,
        "What happens if the filter fails, does not load, or is gone while this conf file is "
        "there: ignore leaves it out, reject makes it reject every host.",
        choices=OnFailure, unset="on_failure of scheduler.conf"),
    Key("shadow", "truth", "false",
        "Whether the plugin's policy units only look on: they are called after each answer, and "
        "what they say is recorded, but never used."),
    Key("enabled", "truth", "true", "Whether the plugin is loaded."),
)  # fmt: skip
