"""The manual pages, in man(7): made from what ``--help`` and the table of settings say.

What only a manual page tells (files, environment, signals) stands here.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ovirt_scheduler.settings.table import CLUSTER, PLUGIN, SCHEDULER
from ovirt_scheduler.settings.value_types import Key

_ABOUT = (
    "The engine asks the daemon over XML-RPC which hosts fit a VM, what each would cost, and "
    "which VM to migrate. The daemon asks the plugins: Python files in the folders of "
    "plugins_path, each in processes of its own."
)
_SEVERAL = 4  # commands with the same option
_SIGNALS = {
    "SIGTERM, SIGINT": "End: take no new calls, and give running calls ten seconds.",
    "SIGHUP": "Read settings, certificates and plugins again; no connection and no call is broken. "
    "If they have a mistake, nothing changes, and the log says what is wrong.",
}
_FILES = {
    "/etc/ovirt/scheduler/scheduler.conf": "The settings, see ovirt-scheduler.conf(5).",
    "/etc/ovirt/scheduler/plugins/NAME.conf": "The settings of the plugin NAME.py.",
    "/var/lib/ovirt-scheduler": "The state folder: the certificate that was made on first start, "
    "the history, and the last version of each plugin that loaded. For users other than root and "
    "its owner it is ~/.local/state/ovirt-scheduler.",
    "PREFIX/share/doc/ovirt-scheduler": "The manual: docs/operations.md, docs/security.md and "
    "others. PREFIX is /usr for a package, /usr/local where setup has made links, else the folder "
    "of the virtual environment.",
}
_ENVIRONMENT = {
    "STATE_DIRECTORY": "The state folder. systemd sets it.",
    "XDG_STATE_HOME": "Where the state folder lies, for users other than root and its owner.",
    "PYTHONPATH": "Each entry stands for $PYTHONPATH in plugins_path.",
    "NOTIFY_SOCKET, WATCHDOG_USEC": "Where and how often the daemon reports to systemd; see "
    "sd_notify(3).",
    "JOURNAL_STREAM": "Whether standard error goes to the journal, for log_format = auto.",
}
_WRITTEN = """\
A file is UTF-8 text of lines key = value. A comment begins with #. Quotes around a whole value are
removed; only a value that holds a #, or begins or ends with white space, needs them.

Sizes are bytes, or have a unit of B, KiB, MiB or GiB. Times are seconds. True is true, yes, on or
1; false is false, no, off or 0. To get the default, leave the line out.

If scheduler.conf has a mistake, the daemon does not start (exit status 78). If a plugin's file has
a mistake, that plugin is not loaded. The message names file, line and key, and what is allowed;
ovirt-scheduler check shows it without a daemon.
"""


def commands(parser: argparse.ArgumentParser) -> str:
    """``ovirt-scheduler(1)``.

    Args:
        parser: the whole command line, with one sub-parser for each command.
    """
    lines = [
        *_head("ovirt-scheduler", "1", _one_line(parser.description)),
        ".SH SYNOPSIS",
        rf"\fB{_roff(parser.prog)}\fR \fICOMMAND\fR [\fIOPTION\fR ...]",
        ".br",
        rf"\fB{_roff(parser.prog)}\fR [\fICOMMAND\fR] \fB\-\-help\fR",
        ".SH DESCRIPTION",
        *_prose(f"{_one_line(parser.description)} {_ABOUT}"),
        ".SH COMMANDS",
        *_prose("Options that several commands share are in COMMON OPTIONS."),
    ]
    common = _common_options(parser)
    for command in _sub_parsers(parser):
        lines += _command(command, common)
    lines += [
        ".SH COMMON OPTIONS",
        *_list(common),
        ".SH EXIT STATUS",
        *_list(_statuses(parser)),
        ".SH SIGNALS",
        "Of the daemon:",
        *_list(_SIGNALS.items()),
        ".SH FILES",
        *_list(_FILES.items()),
        ".SH ENVIRONMENT",
        *_list(_ENVIRONMENT.items()),
        ".SH EXAMPLES",
        *_verbatim(_part(parser, "examples")),
        ".SH SEE ALSO",
        r"\fBovirt\-scheduler.conf\fR(5), \fBjournalctl\fR(1), \fBsystemctl\fR(1)",
    ]
    return "\n".join(lines) + "\n"


def settings() -> str:
    """``ovirt-scheduler.conf(5)``."""
    lines = [
        *_head("ovirt-scheduler.conf", "5", "settings of ovirt-scheduler and of its plugins"),
        ".SH SYNOPSIS",
        _roff("/etc/ovirt/scheduler/scheduler.conf"),
        ".br",
        _roff("/etc/ovirt/scheduler/plugins/NAME.conf"),
        ".SH DESCRIPTION",
        *_prose("Both files are optional, and so is every key."),
    ]
    for paragraph in _WRITTEN.split("\n\n"):
        lines += [".PP", *_prose(_one_line(paragraph))]
    lines += [".SH SCHEDULER.CONF"]
    section = ""
    for key in SCHEDULER:
        if key.section != section:
            section = key.section
            lines += [f'.SS "Section [{section}], below all others"']
        lines += _key(key)
    lines += ['.SS "Section [clusters], with a section [[NAME]] for each cluster"']
    for key in CLUSTER:
        lines += _key(key)
    lines += [
        ".SH PLUGIN CONF FILES",
        *_prose("NAME.conf in plugins_conf_path is for the plugin NAME.py."),
    ]
    for key in PLUGIN:
        lines += _key(key)
    lines += [".SH SEE ALSO", r"\fBovirt\-scheduler\fR(1)"]
    return "\n".join(lines) + "\n"


def _head(name: str, section: str, brief: str) -> list[str]:
    brief = brief.rstrip(".")
    return [
        '.\\" Made by docs/generate.py: change what it is made from.',
        f'.TH {_roff(name.upper())} {section} "" ovirt\\-scheduler "ovirt\\-scheduler"',
        ".nh",  # nothing is hyphenated, and no line is stretched
        ".ad l",
        ".SH NAME",
        f"{_roff(name)} \\- {_roff(brief[0].lower() + brief[1:])}",
    ]


def _common_options(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """Options that several commands have with the same help."""
    every = Counter(
        (_invocation(action), _help(command, action))
        for command in _sub_parsers(parser)
        for action in _actions(command)
        if _is_option(action) and action.help
    )
    return sorted(entry for entry, times in every.items() if times >= _SEVERAL)


def _entries(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """What a command takes, each with its help, options last."""
    described = [action for action in sorted(_actions(parser), key=_is_option) if action.help]
    return [(_invocation(action), _help(parser, action)) for action in described]


def _command(parser: argparse.ArgumentParser, common: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f'.SS "{_roff(parser.prog)}"'
    yield rf"\fB{_roff(parser.prog)}\fR"
    yield from _usage(parser)
    for paragraph in (parser.description or "").split("\n\n"):
        yield ".PP"
        yield from _prose(_one_line(paragraph))
    yield from _list(entry for entry in _entries(parser) if entry not in common)
    yield ".PP"
    yield "Examples:"
    yield from _verbatim(_part(parser, "examples"))


def _usage(parser: argparse.ArgumentParser) -> Iterator[str]:
    """What a command takes, options first, those that exclude each other together."""
    groups = [group._group_actions for group in parser._mutually_exclusive_groups]  # noqa: SLF001
    actions = sorted(_actions(parser), key=_is_option, reverse=True)
    for action in actions:
        group = next((group for group in groups if action in group), [action])
        if action is not group[0]:
            continue
        shown = " | ".join(_invocation(each) for each in group)
        optional = action.option_strings and not action.required
        several = action.nargs == "+" or isinstance(action, argparse._AppendAction)  # noqa: SLF001
        yield (f"[{shown}]" if optional else shown) + (r" ...\&" if several else "")


def _invocation(action: argparse.Action) -> str:
    r"""``\fB--option\fR \fIVALUE\fR``, or an argument's place."""
    words = f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper()
    value = rf"\fI{_roff(str(action.metavar or words))}\fR"
    if not action.option_strings:
        return value
    option = rf"\fB{_roff(action.option_strings[-1])}\fR"
    return option if action.nargs == 0 else f"{option} {value}"


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return (action.help or "") % {**vars(action), "prog": parser.prog}


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    every = parser._actions  # noqa: SLF001  argparse has no other way to ask
    return [action for action in every if not isinstance(action, argparse._HelpAction)]  # noqa: SLF001


def _sub_parsers(parser: argparse.ArgumentParser) -> Sequence[argparse.ArgumentParser]:
    found = [action for action in _actions(parser) if isinstance(action.choices, dict)]
    return list(found[0].choices.values())


def _is_option(action: argparse.Action) -> bool:
    return bool(action.option_strings)


def _part(parser: argparse.ArgumentParser, name: str) -> list[str]:
    """The indented lines below ``NAME:`` at the end of the help."""
    _, _, rest = f"\n{parser.epilog}".partition(f"\n{name}:\n")
    return textwrap.dedent(rest.partition("\n\n")[0]).splitlines()


def _statuses(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    text = "\n".join(_part(parser, "exit status"))
    for number, told in re.findall(r"^(\d+) +(.*(?:\n +.*)*)", text, re.MULTILINE):
        yield number, _one_line(told)


def _key(key: Key) -> Iterator[str]:
    default = f"Default: {key.unset if key.default is None else key.default}."
    names = f"Read too: {', '.join(key.other_names)}." if key.other_names else ""
    told = " ".join(filter(None, (key.help, f"Allowed: {key.allowed}.", default, names)))
    yield from _list([(key.name, told)])


def _list(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A term on a line of its own, what is told of it below."""
    for term, told in entries:
        yield ".TP"
        yield term if term.startswith("\\") else rf"\fB{_roff(term)}\fR"
        yield from _prose(told)


def _prose(text: str) -> list[str]:
    lines = textwrap.wrap(text, 90, break_on_hyphens=False, break_long_words=False)
    return [_roff(line) for line in lines]


def _verbatim(lines: Sequence[str]) -> list[str]:
    return [".PP", ".nf", ".RS 4", *map(_roff, lines), ".RE", ".fi"]


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _roff(text: str) -> str:
    """Text as roff takes it: a minus that can be copied, nothing that is a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
