"""This machine's files for tests to change: the changes are in memory, and gone with the overlay.

What runs there has no network but a loopback interface of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Optional

from tests.support.command import executed
from tests.support.waiting import LONG

INTERPRETER = "/opt/python"  # the tests' Python; a home folder is closed to the daemon

_TOOLS = ("ip", "mount", "nsenter", "setpriv", "unshare")
_NAMESPACES = ("unshare", "--mount", "--propagation", "private", "--net")

_OURS = ("etc/ovirt/scheduler", "opt/ovirt-scheduler", "var/lib/ovirt-scheduler")
_VARIABLES = (
    f"PATH=/usr/local/bin:{INTERPRETER}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PIP_CONFIG_FILE=/dev/null", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels",
)  # fmt: skip

_MAKE = """
mount -t tmpfs tmpfs "$1"
cd "$1"
mkdir changes work root
mount -t overlay overlay -o lowerdir=/,upperdir=changes,workdir=work root
mkdir -p root/opt/python
mount --bind "$2" root/opt/python
mount --rbind /dev root/dev
mount -t proc proc root/proc
mount -t tmpfs tmpfs root/run
mount -t tmpfs -o mode=1777 tmpfs root/tmp
ip link set lo up
exec chroot root sh -c 'echo made; exec sleep infinity'
"""


class Overlay:
    """The files, and processes that see them; ``end`` takes both away.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._holder = subprocess.Popen(
            [
                *_NAMESPACES,
                "setpriv",
                "--pdeathsig",
                "KILL",
                "sh",
                "-euc",
                _MAKE,
                "sh",
                folder,
                sys.base_prefix,
            ],
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"made\n":
            raise OSError("the overlay cannot be made")
        self.root = Path(f"/proc/{self._holder.pid}/root")
        (self.root / "root").chmod(0o755)  # a library of the interpreter may lie there
        for place in _OURS:
            shutil.rmtree(self.root / place, ignore_errors=True)

    def inside(self, *command: str) -> list[str]:
        """The command that runs this one there as root, with none of our environment."""
        return ["nsenter", "--target", str(self._holder.pid), "--mount", "--net", "--root",
                "--wd", "env", "-i", *command]  # fmt: skip

    def run(self, *command: str) -> str:
        """What a command there says, which has to end well.

        It finds the tests' Python, and a pip that asks no index.
        """
        ended = executed(*self.inside(*_VARIABLES, *command))
        assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def write_program(self, name: str, text: str) -> None:
        """Have a program of this text there in place of another of its name."""
        program = self.root / "usr/local/bin" / name
        program.write_text(text)
        program.chmod(0o755)

    def end(self) -> None:
        """Take it away."""
        self._holder.kill()
        self._holder.wait(LONG)
        assert self._holder.stdout is not None
        self._holder.stdout.close()


def missing() -> Optional[str]:
    """Why no overlay can be made here; None where it can."""
    for tool in _TOOLS:
        if not shutil.which(tool):
            return f"needs {tool}"
    tried = executed(*_NAMESPACES, "true")
    return f"no namespaces are to be had: {tried.stderr.strip()}" if tried.returncode else None
