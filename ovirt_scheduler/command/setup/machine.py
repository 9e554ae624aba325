"""The machine that is set up: its files below a root, its users, its programs.

With another root than ``/`` nothing outside of it is written, and nothing is started or stopped.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Sequence, Set

from ovirt_scheduler.errors import StepFailed
from ovirt_scheduler.security.whole_file import write_whole

_SYSTEM_PROGRAMS = "/usr/sbin:/usr/bin:/sbin:/bin"  # cron and sudo may not have all of them
_PROGRAM = "ovirt-scheduler"
_COMMAND_SECONDS = 120.0


class Owner(NamedTuple):
    uid: int
    gid: int


class Machine:
    """
    Args:
        root: absolute; where the machine's ``/`` is.
        live: whether it is the machine that this process runs on.
    """

    def __init__(self, root: Path, live: bool) -> None:
        self.root = root
        self.live = live
        self.gone: Set[str] = set()  # what the steps of a dry run would have removed

    def path(self, name: str) -> Path:
        """Where this process finds what the machine calls ``name``.

        Raises:
            StepFailed: a symbolic link on the way leads out of the root.
        """
        place = self.root / name.lstrip("/")
        folder = place.parent.resolve()
        if self.root.resolve() not in (folder, *folder.parents):
            raise StepFailed(f"{place}: a link on the way leads out of {self.root}; remove it")
        return place

    def name(self, place: Path) -> str:
        """What the machine calls a place below its root.

        Raises:
            ValueError: it is not below it.
        """
        return f"/{place.relative_to(self.root)}"

    def read(self, name: str) -> Optional[bytes]:
        """A file's content; None where there is none."""
        try:
            return self.path(name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file of root's, whole or not at all, and the folders above it."""
        place = self.path(name)
        self.make_folder(self.name(place.parent))
        write_whole(place, data, mode)

    def make_folder(self, name: str, mode: int = 0o755) -> None:
        """Make a folder of this process's user, and those above it with mode 0755."""
        place = self.path(name)
        for folder in (*reversed(place.parents), place):
            its_mode = mode if folder == place else 0o755
            with contextlib.suppress(FileExistsError):
                folder.mkdir(its_mode)
                folder.chmod(its_mode)  # whatever the umask

    def give(self, name: str, owner: Owner) -> None:
        """Give a file or folder to somebody; only root can, and others leave it as it is."""
        if os.geteuid() == 0:
            os.chown(self.path(name), *owner, follow_symlinks=False)

    def owner(self, user: str) -> Optional[Owner]:
        """Numbers of a user and of its group; None where there is no such user."""
        if self.live and self.root == Path("/"):
            with contextlib.suppress(KeyError):
                known = pwd.getpwnam(user)
                return Owner(known.pw_uid, known.pw_gid)
            return None
        for line in (self.read("/etc/passwd") or b"").decode().splitlines():
            fields = line.split(":")
            if fields[0] == user:
                return Owner(int(fields[2]), int(fields[3]))
        return None

    def tool(self, name: str) -> Optional[str]:
        """Where a program of the system that does the work lies, if there is one."""
        return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PROGRAMS}")

    def root_option(self, name: str) -> List[str]:
        """The option that has a program of the system work below the root; none for ``/``."""
        return [] if self.root == Path("/") else [f"{name}={self.root}"]

    def run(self, command: Sequence[str], given: str = "") -> str:
        """Run a program to its end, and give what it printed.

        Raises:
            StepFailed: it cannot be run, or failed; with what it said.
        """
        shown = shlex.join(command)
        try:
            ended = subprocess.run(
                command,
                input=given,
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
            said = (ended.stderr + ended.stdout).strip() or "without a word"
            raise StepFailed(f"{shown}: exit status {ended.returncode}: {said}")
        return ended.stdout

    def succeeds(self, command: Sequence[str]) -> bool:
        """Whether a program that asks something says yes."""
        try:
            self.run(command)
        except StepFailed:
            return False
        return True

    @property
    def runs_systemd(self) -> bool:
        """sd_booted(3), of this machine."""
        return self.live and self.path("/run/systemd/system").is_dir()

    def program(self) -> Optional[str]:
        """What the machine calls the program ``ovirt-scheduler``; None where it has none."""
        places = [Path(sys.argv[0]).absolute(), Path(sys.executable).parent / _PROGRAM]
        places += [self.root / folder / _PROGRAM for folder in ("usr/bin", "usr/local/bin")]
        for place in places:
            if place.name == _PROGRAM and self.root in place.parents and os.path.lexists(place):
                return self._led_to(place)
        return None

    def _led_to(self, place: Path) -> str:
        """What the machine calls that to which a link leads, such as one of setup's own."""
        if not place.is_symlink():
            return self.name(place)
        return str(Path(self.name(place)).parent / place.readlink())


@contextlib.contextmanager
def acting_as(owner: Owner) -> Iterator[None]:
    """Have files made by another user; for root, in a process of one thread.

    What root does in a folder that somebody else may write could be led astray by a link that
    is put there meanwhile.
    """
    if os.geteuid() != 0 or owner.uid == 0:
        yield
        return
    groups: List[int] = os.getgroups()
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
