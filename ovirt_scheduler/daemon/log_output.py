"""The log's place and format, as the settings have them (contract 6)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ovirt_scheduler.log import journal
from ovirt_scheduler.log.file import LogFile, StandardError
from ovirt_scheduler.log.format import JsonFormatter, PlainFormatter
from ovirt_scheduler.settings.config import Settings


def make_handler(settings: Settings, environ: Mapping[str, str]) -> logging.Handler:
    """Make what writes the log: to the journal, to standard error, or to a file that rotates.

    Args:
        environ: tells whether standard error goes to the journal already.

    Raises:
        ConfigError: the file cannot be written.
    """
    style, file = settings.log_format, settings.log_file
    in_journal = style == "auto" and file is None and journal.is_standard_error(environ)
    if style == "journal" or in_journal:
        return journal.JournalHandler(journal.SOCKET)
    made = StandardError() if file is None else LogFile(file)
    made.setFormatter(JsonFormatter() if style == "json" else PlainFormatter())
    return made


def use(handler: logging.Handler, level: str) -> None:
    """Log with this handler from now on, and close the one before."""
    # No line shows these, and each record would look them up.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


def say(line: str) -> None:
    """Print a line to standard error, for whoever started the daemon, at any level of the log.

    It is JSON if the log is JSON, as a program reads it then.
    """
    used = logging.getLogger().handlers
    if any(isinstance(each.formatter, JsonFormatter) for each in used):
        said = {"name": __name__, "msg": line, "levelno": logging.INFO, "levelname": "INFO"}
        line = JsonFormatter().format(logging.makeLogRecord(said))
    StandardError.write(line)
