"""One daemon on a state folder: a second would write into what the first has there."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path
from typing import Optional

from ovirt_scheduler.errors import ConfigError

_log = logging.getLogger(__name__)


def take(state: Path) -> Optional[int]:
    """Lock a state folder, which is made where it is missing, for as long as this process lives.

    Returns:
        The descriptor that holds the lock; None where nothing can be written there, which is told.

    Raises:
        ConfigError: another daemon has it.
    """
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        _log.warning(
            "%(file)s cannot be locked: %(reason)s; start no other daemon on it",
            {"file": str(state), "reason": str(error)},
        )
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(
            "another daemon uses this state folder; stop it, or set STATE_DIRECTORY to a folder "
            "of this one's own",
            str(state),
        ) from None
    return descriptor
