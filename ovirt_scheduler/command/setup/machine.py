"""The machine that is set up: its files, users and programs.

It may be an image, whose ``/`` is a folder here. Then nothing outside of that folder is written,
nothing is started or stopped, and no program of the image is run.

Whoever owns a folder could put a link in the way of what root writes there. So files are reached
through descriptors: from the root on, each folder is opened without following a link, and its owner
and mode are looked at.
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
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from ovirt_scheduler.errors import StepFailed
from ovirt_scheduler.security import trust
from ovirt_scheduler.security.atomic_file import read_whole, write_whole

_SYSTEM_PROGRAMS = "/usr/sbin:/usr/bin:/sbin:/bin"  # cron and sudo may not have all of them
_PROGRAM = "ovirt-scheduler"
_COMMAND_SECONDS = 120.0
_ACCOUNTS = ("/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc/.pwd.lock")
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
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
        """The path at which this process finds a name of the machine, to show it or look at it.

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

    @contextlib.contextmanager
    def opened(
        self, name: str, also: Optional[Owner] = None, closed: bool = False
    ) -> Iterator[Path]:
        """Open a folder, and give a path that leads to it alone, even if the folder is replaced.

        Args:
            also: a user besides root who may own it.
            closed: whether to refuse one in which everybody may write.

        Raises:
            FileNotFoundError: it does not exist.
            StepFailed: it or a folder on the way to it is a link, or belongs to somebody else.
        """
        owners = {0, os.geteuid()} | ({also.uid} if also else set())
        place, descriptor = self.root, os.open(self.root, _FOLDER)
        try:
            _check_owner(place, os.fstat(descriptor), owners)
            for part in Path(name).parts[1:]:
                place /= part
                inner = _open_inner(place, descriptor)
                os.close(descriptor)
                descriptor = inner
                _check_owner(place, os.fstat(descriptor), owners)
            mode = os.fstat(descriptor).st_mode
            if closed and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                mend = f"chmod o-w {shlex.quote(str(place))}"
                raise StepFailed(f"{place}: can be written by everybody; mend it: {mend}")
            path = Path(f"/proc/self/fd/{descriptor}")
            try:
                yield path
            except OSError as error:
                error.filename = str(error.filename).replace(str(path), str(place), 1)
                raise
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _folder_of(
        self, name: str, also: Optional[Owner] = None, closed: bool = False
    ) -> Iterator[Path]:
        """The path of a file or folder below its parent, which is opened as by ``opened``."""
        with self.opened(str(Path(name).parent), also, closed) as folder:
            yield folder / Path(name).name

    def status(self, name: str) -> Optional[os.stat_result]:
        """The status of a file, folder or link itself; None if it does not exist.

        Raises:
            StepFailed: as ``opened``.
        """
        try:
            with self._folder_of(name) as place:
                return place.lstat()
        except FileNotFoundError:
            return None

    def read(self, name: str, also: Optional[Owner] = None) -> Optional[bytes]:
        """The content of a file, or None if it does not exist.

        Args:
            also: a user besides root who may own its folder.

        Raises:
            StepFailed: it cannot be read, or is no plain file; at a pipe this would wait for good.
        """
        where = self.root / name.lstrip("/")
        try:
            with self._folder_of(name, also) as place:
                if not stat.S_ISREG(place.lstat().st_mode):
                    raise StepFailed(
                        f"{where}: is not a plain file; find out what it is, and move it away"
                    )
                descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    return read_whole(descriptor, MOST_BYTES)
                finally:
                    os.close(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StepFailed(f"{where}: cannot be read: {error.strerror}") from None

    def write(self, name: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file whole or not at all; make the folders above it.

        Raises:
            StepFailed: it cannot be written.
        """
        try:
            self.make_folder(str(Path(name).parent))
            with self._folder_of(name, closed=True) as place:
                write_whole(place, data, mode)
        except OSError as error:
            where = self.root / name.lstrip("/")
            raise StepFailed(
                f"{where}: cannot be written: {error.strerror}; mend it, then run setup again"
            ) from None

    def make_folder(self, name: str, mode: int = 0o755, owner: Optional[Owner] = None) -> None:
        """Make a folder, and those above it with mode 0755.

        Args:
            owner: to give it to, if this process may.
        """
        parts = Path(name).parts
        for folder in (str(Path(*parts[:count])) for count in range(2, len(parts) + 1)):
            try:
                with self._folder_of(folder, closed=True) as place:
                    place.mkdir(0o700)
            except FileExistsError:
                continue
            with self.opened(folder) as place:
                place.chmod(mode if folder == name else 0o755)  # whatever the umask
                if owner is not None and folder == name and os.geteuid() == 0:
                    os.chown(place, *owner)

    def link(self, name: str, target: str) -> None:
        """Make a link, in the place of another one or of nothing."""
        self.make_folder(str(Path(name).parent))
        with self._folder_of(name, closed=True) as place:
            place.unlink(missing_ok=True)
            place.symlink_to(target)

    def link_target(self, name: str, also: Optional[Owner] = None) -> Optional[str]:
        """The target of a link: empty if the name is no link's, None if nothing has the name.

        Args:
            also: a user besides root who may own its folder.
        """
        try:
            with self._folder_of(name, also) as place:
                return str(place.readlink()) if stat.S_ISLNK(place.lstat().st_mode) else ""
        except FileNotFoundError:
            return None

    def remove(self, name: str, also: Optional[Owner] = None) -> None:
        """Remove a file, a link, or a folder with all that is in it.

        Args:
            also: a user besides root who may own the folder that it is in.
        """
        with self._folder_of(name, also) as place:
            if stat.S_ISDIR(place.lstat().st_mode):
                shutil.rmtree(place)
            else:
                place.unlink()

    def check_accounts(self) -> None:
        """Check that programs which edit the accounts edit those of this machine.

        Raises:
            StepFailed: in an image, a file of them is a link.
        """
        for file in () if self.live else _ACCOUNTS:
            if self.link_target(file):
                raise StepFailed(f"{self.root}{file}: is a link; put a file in its place")

    def owner(self, user: str) -> Optional[Owner]:
        """The numbers of a user and its group, or None if there is no such user."""
        if self.live and self.root == Path("/"):
            with contextlib.suppress(KeyError):
                account = pwd.getpwnam(user)
                return Owner(account.pw_uid, account.pw_gid)
            return None
        line = re.compile(rf"(?m)^{re.escape(user)}:[^:\n]*:(\d+):(\d+):".encode())
        entry = line.search(self.read("/etc/passwd") or b"")
        return None if entry is None else Owner(int(entry[1]), int(entry[2]))

    def tool(self, name: str) -> Optional[str]:
        """The path of one of this system's programs, or None."""
        return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PROGRAMS}")

    def root_option(self, name: str) -> list[str]:
        """The option with which a program works below the root; nothing for the root ``/``."""
        return [] if self.root == Path("/") else [f"{name}={self.root}"]

    def run(self, command: Sequence[str], sent: str = "") -> str:
        """Run a program to its end.

        Args:
            sent: to its standard input.

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
                input=sent,
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
                # The target of a link, as setup makes one.
                return str(name.parent / place.readlink() if place.is_symlink() else name)
        return None


def _open_inner(place: Path, folder: int) -> int:
    """Open a folder in an opened one, but no link.

    Raises:
        OSError: it does not exist, or is no folder.
        StepFailed: it is a link.
    """
    try:
        return os.open(place.name, _FOLDER, dir_fd=folder)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            with contextlib.suppress(OSError):  # it is no link
                target = os.readlink(place.name, dir_fd=folder)
                raise StepFailed(
                    f"{place}: is a link to {target}, and setup follows none; put a folder in its "
                    "place (a bind mount is one)"
                ) from None
        error.filename = str(place)
        raise


def _check_owner(place: Path, status: os.stat_result, owners: Collection[int]) -> None:
    """Refuse a folder in which somebody else could put a link in the way.

    Raises:
        StepFailed: it belongs to somebody else.
    """
    if status.st_uid not in owners:
        owner = trust.user_name(status.st_uid)
        raise StepFailed(
            f"{place}: belongs to {owner}, and not to root, so {owner} could change what root puts "
            "there; find out why, and run setup again when that is mended"
        )


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
