"""Write what is made from the table of settings: the sample file and the manual's tables.

Run as ``python docs/generate.py`` after a change of ``ovirt_scheduler/settings_table.py``.
"""

from pathlib import Path

from ovirt_scheduler import settings_table

_PROJECT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Write ``etc/scheduler.conf`` and ``docs/configuration.md`` anew."""
    sample = _PROJECT / "etc" / "scheduler.conf"
    sample.write_text(settings_table.sample(), encoding="utf-8")
    manual = _PROJECT / "docs" / "configuration.md"
    text = manual.read_text(encoding="utf-8")
    manual.write_text(settings_table.manual(text), encoding="utf-8")


if __name__ == "__main__":
    main()
