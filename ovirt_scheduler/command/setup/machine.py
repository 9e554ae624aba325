"""The machine that is set up: its files, users and programs.

It may be an image, whose ``/`` is a folder here. Then nothing outside of that folder is written,
and nothing is started or stopped.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from ovirt_scheduler.errors import StepFailed
from ovirt_scheduler.security.atomic_file import read_whole, write_whole

_SYSTEM_PROGRAMS = "/usr/sbin:/usr/bin:/sbin:/bin"  # cron and sudo may not have all of them
_PROGRAM = "ovirt-scheduler"
_COMMAND_SECONDS = 120.0
MOST_BYTES = 16 << 20  # of a file


class Owner(NamedTuple):
    """The numbers of a user and of its group."""

    uid: int
    gid: int


class Machine:
    """A machine below a root. A ``name`` is a path as the machine itself has it.

    Attributes:
        root: where the machine's ``/`` is.
        live: whether this process runs on it.
        gone: names that a dry run would have removed so far.
    """

    def __init__(self, root: Path, live: bool) -> None:
        self.root = root
        self.live = live
        self.gone: set[str] = set()

    def path(self, name: str) -> Path:
        """The path at which this process finds a name of the machine.

        Raises:
            StepFailed: a symbolic link on the way leads out of the root.
        """
        place = self.root / name.lstrip("/")
        folder = place.parent.resolve()
        if self.root.resolve() not in (folder, *folder.parents):
            raise StepFailed(f"{place}: a link on the way leads out of {self.root}; remove it")
        return place

    def name(self, place: Path) -> str:
        """The machine's name of a path below its root.

        Raises:
            ValueError: it is not below the root.
        """
        return f"/{place.relative_to(self.root)}"

    def read(self, name: str) -> Optional[bytes]:
        """The content of a file, or None if it does not exist.

        Raises:
            StepFailed: it cannot be read, or is no plain file; at a pipe this would wait for good.
        """
        place = self.path(name)
        try:
            if not stat.S_ISREG(place.stat().st_mode):
                raise StepFailed(
                    f"{place}: is not a plain file; find out what it is, and move it away"
                )
            return read_whole(place, MOST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StepFailed(f"{place}: cannot be read: {error.strerror}") from None

    def write(self, name: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file whole or not at all; make the folders above it.

        Raises:
            StepFailed: it cannot be written.
        """
        place = self.path(name)
        try:
            self.make_folder(self.name(place.parent))
            write_whole(place, data, mode)
        except OSError as error:
            raise StepFailed(
                f"{place}: cannot be written: {error.strerror}; mend it, then run setup again"
            ) from None

    def make_folder(self, name: str, mode: int = 0o755) -> None:
        """Make a folder, and those above it with mode 0755."""
        place = self.path(name)
        for folder in (*reversed(place.parents), place):
            its_mode = mode if folder == place else 0o755
            with contextlib.suppress(FileExistsError):
                folder.mkdir(its_mode)
                folder.chmod(its_mode)  # whatever the umask

    def owner(self, user: str) -> Optional[Owner]:
        """The numbers of a user and its group, or None if there is no such user."""
        if self.live and self.root == Path("/"):
            with contextlib.suppress(KeyError):
                known = pwd.getpwnam(user)
                return Owner(known.pw_uid, known.pw_gid)
            return None
        line = re.compile(rf"(?m)^{re.escape(user)}:[^:\n]*:(\d+):(\d+):".encode())
        found = line.search(self.read("/etc/passwd") or b"")
        return None if found is None else Owner(int(found[1]), int(found[2]))

    def tool(self, name: str) -> Optional[str]:
        """The path of one of this system's programs, or None."""
        return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PROGRAMS}")

    def root_option(self, name: str) -> list[str]:
        """The option with which a program works below the root; nothing for the root ``/``."""
        return [] if self.root == Path("/") else [f"{name}={self.root}"]

    def run(self, command: Sequence[str]) -> str:
        """Run a program to its end.

        Returns:
            What it wrote to standard output.

        Raises:
            StepFailed: it cannot be run, or it failed; with its output.
        """
        shown = shlex.join(command)
        program, *further = command
        try:
            ended = subprocess.run(
                [self.tool(program) or program, *further],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise StepFailed(f"{shown}: not done after {_COMMAND_SECONDS:.0f} seconds") from None
        except OSError as error:
            raise StepFailed(f"{shown}: {error.strerror}") from None
        if ended.returncode != 0:
            output = (ended.stderr + ended.stdout).strip() or "without a word"
            raise StepFailed(f"{shown}: exit status {ended.returncode}: {output}")
        return ended.stdout

    @property
    def runs_systemd(self) -> bool:
        """Whether systemd runs on it, as sd_booted(3) finds out."""
        return self.live and self.path("/run/systemd/system").is_dir()

    def program(self) -> Optional[str]:
        """The name of the program ``ovirt-scheduler`` on the machine, or None."""
        places = [Path(sys.argv[0]).absolute(), Path(sys.executable).parent / _PROGRAM]
        places += [self.root / folder / _PROGRAM for folder in ("usr/bin", "usr/local/bin")]
        for place in places:
            if place.name == _PROGRAM and self.root in place.parents and os.path.lexists(place):
                name = Path(self.name(place))
                # Of a link, such as setup makes one, its target.
                return str(name.parent / place.readlink() if place.is_symlink() else name)
        return None


@contextlib.contextmanager
def acting_as(owner: Owner) -> Iterator[None]:
    """Act as another user, to make files in a folder that this user may write.

    Root must not write there itself: the user could put a link in its way. Only for a process of
    one thread. Without root's rights it does nothing.
    """
    if os.geteuid() != 0 or owner.uid == 0:
        yield
        return
    groups: list[int] = os.getgroups()
    group = os.getegid()
    os.setgroups([])
    os.setegid(owner.gid)
    os.seteuid(owner.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)
