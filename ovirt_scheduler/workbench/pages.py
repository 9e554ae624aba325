"""Pages of HTML with plots, each in one file that loads nothing."""

from __future__ import annotations

from pathlib import Path

from ovirt_scheduler import __version__
from ovirt_scheduler.errors import BadUsage, NotOverwritten
from ovirt_scheduler.server.pages import views

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
        found = views.templates(_FOLDER)
    except ImportError:
        raise BadUsage("--html needs Jinja2, which is not installed") from None
    return str(found.get_template(template).render(version=__version__, **values))


def write(file: Path, page: str) -> None:
    """Write a page.

    Raises:
        NotOverwritten: it cannot be written.
    """
    try:
        file.write_text(page, "utf-8", "replace")
    except OSError as error:
        raise NotOverwritten(f"{file}: cannot be written: {error.strerror}") from None
