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
        "Listen beyond the loopback interface although nobody has to prove who they are."),
    Key("ssl", "truth", "true",
        "TLS. Without it the calls and answers cross the wire in clear text."),
    Key("ssl_certificate", "path", None,
        "PEM file with the server's certificate, and the chain after it. Goes with ssl_key.",
        unset="self-signed, made on first start in the state folder"),
    Key("ssl_key", "path", None,
        "PEM file with the private key, without a passphrase, for nobody else to read. Goes with "
        "ssl_certificate.",
        unset="made with the certificate"),
    Key("ssl_client_ca", "path", None,
        "PEM file with the authorities whose client certificates are let in. A caller without "
        "such a certificate is then refused."),
    Key("ssl_allowed_clients", "subjects", None,
        "Subject names (CN=engine,O=Example) or common names, with ; between, of the client "
        "certificates that are let in. Needs ssl_client_ca.",
        unset="every one that ssl_client_ca signed"),
    Key("plugins_path", "folders", "$PYTHONPATH/ovirt_scheduler/plugins",
        "Folders with plugins, with : between. $PYTHONPATH at the beginning of one stands for "
        "each entry of that environment variable in turn, or, where it is not set, for the "
        "place where the package is installed; such a folder may be missing."),
    Key("plugins_conf_path", "path", "/etc/ovirt/scheduler/plugins",
        "Folder with the plugins' conf files, NAME.conf for the plugin NAME.py."),
    Key("engine_version", "version", None,
        "The oVirt version of the engine. A scheduler that was written for a newer one is left "
        "out, with a warning.",
        unset="every scheduler is taken"),
    Key("root_api", "choice", "design",
        "The answer form at the URL paths / and /RPC2. An engine that was set up for the old "
        "proxy needs engine there.",
        choices=AnswerForm),
    Key("engine_scores", "choice", "summed",
        "What runCostFunctions answers in the engine form: one sum for each host, or each "
        "function's own cost, which engines of 4.1 and later multiply themselves.",
        choices=EngineScores),
    Key("plugin_user", "user", None,
        "User as whom plugins run, so that they cannot read what the daemon alone may. The daemon "
        "has to be started by root then; security.md of the manual has more.",
        unset="the daemon's own user"),
    Key("plugin_timeout", "seconds", "30",
        "Time that one plugin call may take. No longer than request_timeout.",
        bounds=("0.1", "119")),
    Key("request_timeout", "seconds", "100",
        "Time that a whole request may take, waiting included. The engine gives up at 120.",
        bounds=("0.1", "119")),
    Key("on_failure", "choice", "ignore",
        "What a filter that fails, or whose file does not load, does to the hosts: it is left out "
        "as though it had not been asked for, or it rejects every host. A plugin's conf file may "
        "say otherwise.",
        choices=OnFailure),
    Key("max_parallel_calls", "whole", None,
        "Plugin calls that run at the same time, of all requests together. A request takes at "
        "most half of those that are free; with 1, a request may have to wait for a slow one.",
        bounds=("1", "4096"), unset="two for each processor"),
    Key("calls_per_process", "whole", "1000",
        "Calls that a plugin's process serves before it is replaced. With 1, each call has a "
        "process of its own.",
        bounds=("1", "1000000")),
    Key("kept_processes", "whole", "64",
        "Processes of plugins that are kept between calls. Beyond them, those that were used "
        "longest ago end.",
        bounds=("0", "65536")),
    Key("max_connections", "whole", "512",
        "Open connections. When all are taken, the one that is idle for longest is closed, "
        "else a new one has to wait.",
        bounds=("1", "65536")),
    Key("max_waiting", "whole", "1024",
        "Requests that wait for their turn. Further ones get the fault 104.",
        bounds=("0", "65536")),
    Key("max_request_size", "size", "64 MiB",
        "Bytes of a request's body, after decompression too.", bounds=("1 KiB", "4 GiB")),
    Key("connection_timeout", "seconds", "10",
        "Time for a TLS handshake, and for a request to arrive. A kept connection may idle for "
        "60 seconds.",
        bounds=("0.1", "120")),
    Key("drain_time", "seconds", "0",
        "How long the daemon still takes calls when it is told to stop, while /health says 503: "
        "for a load balancer, which has to notice.",
        bounds=("0", "10")),
    Key("memory_limit", "size", "512 MiB",
        "Memory of each plugin call, above what its process has when the call begins.",
        bounds=("1 MiB", "1024 GiB")),
    Key("cpu_limit", "whole_seconds", "60",
        "Processor time of each plugin call, and of each process that it starts.",
        bounds=("1", "86400")),
    Key("files_limit", "whole", "256",
        "Files that each process of a plugin call may have open.", bounds=("16", "1048576")),
    Key("log_file", "path", None,
        "File for the log. It rotates at 10 MiB, and 6 are kept.", unset="standard error"),
    Key("log_format", "choice", "auto",
        "What a line of the log looks like: plain text, JSON, or an entry of systemd's journal "
        "with its fields. auto is journal where standard error goes there, else plain.",
        choices=("auto", "plain", "json", "journal")),
    Key("log_level", "choice", "info",
        "What is worth a line in the log.", choices=("debug", "info", "warning", "error")),
    Key("pages", "choice", "health",
        "What GET serves. health: /health to whoever may call, /metrics on this machine; "
        "loopback: all other pages there, too; callers: all pages to whoever may call.",
        choices=Pages),
    Key("engine_reasons", "truth", "false",
        "Where filters leave no host, the engine form says in errors who removed how many. The "
        "engine writes that into its audit log."),
    Key("history", "truth", "true",
        "Keep each decision with every host and the reasons: history.sqlite in the state folder."),
    Key("history_days", "whole", "30", "Days that a decision is kept.", bounds=("1", "36500")),
    Key("history_size", "size", "256 MiB",
        "Bytes that the history may take. Beyond them the oldest decisions go.",
        bounds=("1 MiB", "1024 GiB")),
    Key("record", "truth", "false",
        "Keep with each decision the documents that it was made on, and what the engine answered, "
        "for ovirt-scheduler replay. They are in the history, and count for history_size."),
    Key("drive", "choice", "off",
        "Whether the daemon itself looks after the clusters of the section [clusters]: dry-run "
        "logs the migrations that it would make, approve makes those that somebody approves "
        "(ovirt-scheduler plan), on makes all. Needs the section [engine].",
        choices=Drive),
    Key("url", "url", None,
        "The engine's REST API, such as https://engine.example.com/ovirt-engine/api. Needs "
        "username and password_file.",
        section="engine"),
    Key("username", "text", None,
        "Who asks, such as scheduler@internal. A user that may only read will do; with drive = on "
        "it is one that may migrate VMs.",
        section="engine"),
    Key("password_file", "path", None,
        "File with the password in its first line, for nobody else to read.", section="engine"),
    Key("ca_file", "path", None,
        "PEM file with the authority that signed the engine's certificate.",
        unset="the system's authorities", section="engine"),
    Key("cache_seconds", "seconds", "5",
        "How long an answer of the engine is used again.", bounds=("0", "3600"), section="engine"),
    Key("look_distance", "seconds", "5",
        "How long a look at a cluster keeps off the next one that an event of the engine leads to.",
        bounds=("0", "3600"), section="engine"),
)  # fmt: skip

CLUSTER: tuple[Key, ...] = (
    Key("scheduler", "text", "default", "The scheduler that is asked."),
    Key("policy", "text", None, "One of the scheduler's policies.", unset="the scheduler's first"),
    Key("properties", "assignments", None,
        "What else the scheduler and the units are given, as key=value;key2=value2."),
    Key("filters", "names", None, "The filters that say where a VM may be migrated to."),
    Key("cost_functions", "factors", None,
        "The cost functions that say where a VM is best migrated to, as "
        "name=factor;name2=factor2."),
    Key("balance", "text", None,
        "A balance that says what to migrate, in the place of the scheduler's load_balance.",
        unset="the scheduler's"),
    Key("load_balance_interval", "minutes", "1",
        "How often it is asked what to migrate. 0 is never.", bounds=("0", "10080")),
    Key("timer_interval", "minutes", "10",
        "How often it is called by the timer. 0 is never.", bounds=("0", "10080")),
    Key("hold", "minutes", "3",
        "How long an imbalance has to last before VMs are migrated for it. 0 is not at all.",
        bounds=("0", "1440")),
    Key("margin", "percent", "5",
        "By how many points migrations have to better the imbalance of the hosts that they are "
        "between. 0 is whatever the scheduler wants.", bounds=("0", "100")),
    Key("migrations_per_vm", "whole", "4",
        "How often one VM is migrated within an hour, at most; then it stays where it is.",
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
        "Memory of each call of this plugin, above what its process has when the call begins.",
        bounds=("1 MiB", "1024 GiB"), unset="memory_limit of scheduler.conf"),
    Key("calls_per_process", "whole", None,
        "Calls that a process of this plugin serves before it is replaced; 1 for a plugin whose "
        "calls must not share what they change inside a library.",
        bounds=("1", "1000000"), unset="calls_per_process of scheduler.conf"),
    Key("on_failure", "choice", None,
        "When the filter fails, does not load, or is gone while this conf file stands: leave it "
        "out as though it had not been asked for, or reject every host.",
        choices=OnFailure, unset="on_failure of scheduler.conf"),
    Key("shadow", "truth", "false",
        "Whether the plugin's policy units only look on: they are called after each answer, what "
        "they say is recorded, and counts for nothing."),
    Key("enabled", "truth", "true", "Whether the plugin is loaded."),
)  # fmt: skip
