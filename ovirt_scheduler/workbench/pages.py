"""Pages of HTML with plots, each in one file that loads nothing."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from ovirt_scheduler import __version__
from ovirt_scheduler.errors import BadUsage, NotOverwritten

_FOLDER = Path(__file__).resolve().parent / "templates"


def render(template: str, **values: object) -> str:
    """A page.

    Args:
        template: its file in ``templates``.
        values: by their names there.

    Raises:
        BadUsage: Jinja2 is not installed.
    """
    try:
        jinja2: Any = importlib.import_module("jinja2")
    except ImportError:
        raise BadUsage("--html needs Jinja2, which is not installed") from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(_FOLDER)), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    return str(environment.get_template(template).render(version=__version__, **values))


def write(file: Path, page: str) -> None:
    """Write a page.

    Raises:
        NotOverwritten: it cannot be written.
    """
    try:
        file.write_text(page, "utf-8", "replace")
    except OSError as error:
        raise NotOverwritten(f"{file}: cannot be written: {error.strerror}") from None
