"""Write what is made from the code: sample file, tables of the manual, manual pages.

Run as ``python docs/generate.py`` after a change of the table of settings
(``ovirt_scheduler/settings/table.py``), of the command line (``ovirt_scheduler/command/cli.py``) or
of a message of the log, whose meaning you then write into ``docs/messages.md``.
"""

from pathlib import Path

import log_messages
import man_pages
import settings_files

from ovirt_scheduler.command import cli

_PROJECT = Path(__file__).resolve().parents[1]


def files() -> dict[Path, str]:
    """Every file that is made, with what it has to hold."""
    manual = _PROJECT / "docs" / "configuration.md"
    messages = _PROJECT / "docs" / "messages.md"
    pages = _PROJECT / "docs" / "man"
    return {
        _PROJECT / "etc" / "scheduler.conf": settings_files.sample(),
        messages: log_messages.page(messages.read_text(encoding="utf-8")),
        manual: settings_files.manual(manual.read_text(encoding="utf-8")),
        pages / "ovirt-scheduler.1": man_pages.commands(cli.parser()),
        pages / "ovirt-scheduler.conf.5": man_pages.settings(),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
