"""Whether the files that scheduler.conf names are such that the daemon can use them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator, Optional

from ovirt_scheduler.errors import ConfigError
from ovirt_scheduler.security import certificates
from ovirt_scheduler.settings.config import EngineSettings, Settings


def problems(settings: Settings) -> Iterator[str]:
    """A sentence for each file that cannot be used; reads only.

    Certificates of the daemon are ``certificate_report``'s, plugins the loader's.
    """
    if settings.log_file is not None:
        reason = _unwritable(settings.log_file)
        if reason:
            yield f"{settings.log_file}: {reason}; mend log_file"
    if settings.engine is not None:
        yield from of_engine(settings.engine)


def of_engine(engine: EngineSettings) -> Iterator[str]:
    """A sentence for each file of ``[engine]`` that cannot be used; reads only."""
    try:
        engine.password()
    except ConfigError as error:
        yield f"{error}; mend password_file"
    if engine.ca_file is not None:
        try:
            certificates.describe(engine.ca_file)
        except ConfigError as error:
            yield f"{error}; mend ca_file"


def _unwritable(path: Path) -> Optional[str]:
    if path.is_dir():
        return "is a folder"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    place = path if path.exists() else path.parent
    return None if os.access(place, os.W_OK) else f"{place} cannot be written by this user"
