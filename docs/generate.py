"""Write what is made from the code: sample file, tables of the manual, manual pages.

Run as ``python docs/generate.py`` after a change of the table of settings
(``ovirt_scheduler/settings/table.py``) or of the command line (``ovirt_scheduler/command/cli.py``).
"""

from pathlib import Path

import man_pages
import settings_files

from ovirt_scheduler.command import cli

_PROJECT = Path(__file__).resolve().parents[1]


def files() -> dict[Path, str]:
    """Every file that is made, with what it has to hold."""
    manual = _PROJECT / "docs" / "configuration.md"
    pages = _PROJECT / "docs" / "man"
    return {
        _PROJECT / "etc" / "scheduler.conf": settings_files.sample(),
        manual: settings_files.manual(manual.read_text(encoding="utf-8")),
        pages / "ovirt-scheduler.1": man_pages.commands(cli.parser()),
        pages / "ovirt-scheduler.conf.5": man_pages.settings(),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
