"""Pages of HTML with plots, each in one file that loads nothing."""

from __future__ import annotations

from pathlib import Path

from ovirt_scheduler import __version__
from ovirt_scheduler.errors import BadUsage, NotOverwritten
from ovirt_scheduler.server.pages import views

_FOLDER = Path(__file__).resolve().parent / "templates"


def write(file: Path, template: str, **values: object) -> None:
    """Write a page.

    Args:
        template: its file in ``templates``.
        values: by their names there.

    Raises:
        BadUsage: Jinja2 is not installed.
        NotOverwritten: it cannot be written.
    """
    try:
        page = views.templates(_FOLDER).get_template(template)
        file.write_text(page.render(version=__version__, **values), "utf-8", "replace")
    except ImportError:
        raise BadUsage("--html needs Jinja2, which is not installed") from None
    except OSError as error:
        raise NotOverwritten(f"{file}: cannot be written: {error.strerror}") from None
