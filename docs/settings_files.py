"""The sample of scheduler.conf and the manual's tables, made from the table of settings."""

from __future__ import annotations

import textwrap

from ovirt_scheduler.settings.table import CLUSTER, PLUGIN, SCHEDULER
from ovirt_scheduler.settings.value_types import Key

_SAMPLE_HEAD = (
    "The configuration of ovirt-scheduler. Every key is optional, and the values that are "
    "commented out here are the defaults. Uncomment a section's name, too, to use its keys; what "
    "is appended to this file is in no section. man ovirt-scheduler.conf tells how values are "
    "written."
)

_CLUSTERS_HEAD = (
    "Which scheduler looks after which cluster: a section in the section for each, named as the "
    "cluster is. It takes effect with drive = dry-run or on."
)


def sample() -> str:
    """``etc/scheduler.conf``: every key commented out, with its meaning and default."""
    blocks = [_comment(_SAMPLE_HEAD)]
    section = ""
    for key in SCHEDULER:
        if key.section != section:
            section = key.section
            blocks.append(f"#[{section}]")
        default = f"Default: {key.unset}." if key.default is None else ""
        words = " ".join(filter(None, (key.help, f"Allowed: {key.allowed}.", default)))
        blocks.append(f"{_comment(words)}\n#{key.name} = {key.default or ''}".rstrip())
    blocks.append(_comment(_CLUSTERS_HEAD) + "\n#[clusters]\n#[[Default]]")
    for key in CLUSTER:
        words = f"{key.help} Allowed: {key.allowed}."
        blocks.append(f"{_comment(words)}\n#{key.name} = {key.default or ''}".rstrip())
    return "\n\n".join(blocks) + "\n"


def _comment(words: str) -> str:
    return textwrap.fill(
        words, 88, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )


_MANUAL_TABLES = (("scheduler.conf", SCHEDULER), ("clusters", CLUSTER), ("plugin conf", PLUGIN))


def manual(text: str) -> str:
    """``docs/configuration.md`` with its tables made anew.

    A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``.
    """
    for name, table in _MANUAL_TABLES:
        head, begin, rest = text.partition(f"<!-- table: {name} -->\n")
        _, end, tail = rest.partition("<!-- end of table -->\n")
        text = f"{head}{begin}{_markdown(table)}{end}{tail}"
    return text


def _markdown(table: tuple[Key, ...]) -> str:
    rows = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    for key in table:
        name = f"`[{key.section}]` `{key.name}`" if key.section else f"`{key.name}`"
        default = key.unset if key.default is None else f"`{key.default}`"
        rows.append(f"| {name} | {default} | {key.allowed} | {key.help} |")
    return "\n".join(rows) + "\n"
