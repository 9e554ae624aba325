"""Starts Python interpreters: the zygote's, and one to run a single module aside.

For another user than the daemon's, the zygote starts as root and changes its user itself
(``privileges``): until then nobody else may look into it, or send it a signal.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Optional

from ovirt_scheduler.model.plugins import PluginUser

# The daemon's variables that plugins get; any other one could hold a secret.
_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR")

_BOOT = (
    "import sys; control, user, *sys.path[:] = sys.argv[1:]; "
    "from ovirt_scheduler.processes.worker.zygote import main; "
    "main(int(control), [*map(int, user.split())])"
)


def start_zygote(control: int, user: Optional[PluginUser]) -> subprocess.Popen[bytes]:
    """Start a zygote.

    Args:
        control: the descriptor that it is to have.
        user: whom it is to run as; None: this process's own user.
    """
    ids = () if user is None else (user.uid, user.gid, *user.groups)
    return subprocess.Popen(
        [sys.executable, "-I", "-c", _BOOT, str(control), " ".join(map(str, ids)), *_paths()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(control,),
        env=environment(os.environ, user),
        cwd="/",
        start_new_session=True,  # a Ctrl-C at the terminal is the daemon's to handle
    )


_MAIN = "import sys; sys.path[:] = sys.argv[1:]; from ovirt_scheduler.{} import main; main()"


def run_main(module: str, stdin: str, seconds: float) -> str:
    """Run a module's ``main`` in a process of its own, and return what it prints.

    Args:
        stdin: its standard input.

    Raises:
        OSError: it cannot be started, ends with a failure or takes longer; the text says why.
    """
    try:
        completed = subprocess.run(
            [sys.executable, "-I", "-c", _MAIN.format(module), *_paths()],
            input=stdin.encode("utf-8"),
            capture_output=True,
            env=environment(os.environ, None),
            cwd="/",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"it was not done after {seconds:g} s") from None
    if completed.returncode:
        last = completed.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise OSError(last or f"it ended with status {completed.returncode}")
    return completed.stdout.decode("utf-8")


def _paths() -> list[str]:
    return [os.path.abspath(path) for path in sys.path]  # noqa: PTH100  "" is the folder we are in


def environment(environ: Mapping[str, str], user: Optional[PluginUser]) -> dict[str, str]:
    """The environment of the zygote: only the daemon's variables that are surely no secrets."""
    passed_on = {
        name: value
        for name, value in environ.items()
        if name in _ENVIRONMENT or name.startswith("LC_")
    }
    if user is not None:
        passed_on.update(HOME=user.home, USER=user.name, LOGNAME=user.name)
        passed_on.pop("TMPDIR", None)  # it may be for the daemon alone
    return passed_on
