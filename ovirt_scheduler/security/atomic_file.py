"""Files that are read and written whole or not at all, and that a power cut does not harm."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Optional, Union


def read_whole(path: Union[Path, int], most_bytes: int) -> bytes:
    """Read a file to its end, or what a program writes that a shell names ``<(program)``.

    Args:
        path: of a plain file, or of a pipe that has no name of its own. Or a descriptor of
            anything, which stays open.

    Raises:
        OSError: it cannot be read, is something else, or has no end within so many bytes.
    """
    if isinstance(path, Path) and _may_wait(path):
        raise OSError(errno.EINVAL, "it is not a plain file", str(path))
    with open(path, "rb", closefd=isinstance(path, Path)) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it is longer than {most_bytes >> 20} MiB", str(path))
    return data


def _may_wait(path: Path) -> bool:
    """Whether it is a device, or a pipe with a name, at which a reader could wait for good.

    Raises:
        OSError: it cannot be looked at.
    """
    mode = path.stat().st_mode
    if stat.S_ISFIFO(mode):
        return not str(path.resolve()).startswith("/proc/")  # pipe:[1234] of a descriptor
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file, or replace one. For one writer at a time.

    Args:
        path: of the file. Its draft is a hidden file beside it.
        data: what it is to hold.
        mode: its permissions, whatever the umask.

    Raises:
        OSError: it cannot be written; a former file is as it was.
    """
    draft = path.parent / f".{path.name}.new"
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode)
            file.flush()
            os.fsync(descriptor)
        os.replace(draft, path)  # noqa: PTH105  Path.replace hides that it is atomic
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    sync_folder(path.parent)


def write_over(path: Path, data: bytes, mode: Optional[int] = None) -> None:
    """Write a file that somebody names: as ``write_whole``, but into a device or a pipe in place.

    Args:
        mode: its permissions; None: as they were or, of a new file, as the umask has it.

    Raises:
        OSError: it cannot be written, or is a link.
    """
    with contextlib.suppress(FileNotFoundError):
        before = path.lstat().st_mode
        if stat.S_ISLNK(before):
            raise OSError(errno.ELOOP, "it is a link", str(path))
        if not stat.S_ISREG(before):
            path.write_bytes(data)
            return
        mode = stat.S_IMODE(before) if mode is None else mode
    if mode is None:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    write_whole(path, data, mode)


def write_state(path: Path, data: bytes) -> None:
    """Write a file of the state folder (``StateFolder``), or of a folder in it, which is made.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, data)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, so that a power cut does not change them."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
