"""Starts the zygote's process: with one descriptor of the daemon's, and nothing secret.

As another user than the daemon's it is started as root, and changes itself (``privileges``): until
then nobody else may look into it, or send it a signal.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Dict, Mapping, Optional

from ovirt_scheduler.model import PluginUser

# What plugins get of the daemon's environment; anything else could be a secret.
_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR")

_BOOT = (
    "import sys; control, user, *sys.path[:] = sys.argv[1:]; "
    "from ovirt_scheduler.zygote import main; main(int(control), [*map(int, user.split())])"
)


def zygote(control: int, user: Optional[PluginUser]) -> subprocess.Popen[bytes]:
    """Start a zygote.

    Args:
        control: the descriptor that it is to have.
        user: whom it is to run as; None: this process's own user.
    """
    ids = () if user is None else (user.uid, user.gid, *user.groups)
    paths = [os.path.abspath(path) for path in sys.path]  # noqa: PTH100  "" is the folder we are in
    return subprocess.Popen(
        [sys.executable, "-I", "-c", _BOOT, str(control), " ".join(map(str, ids)), *paths],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(control,),
        env=environment(os.environ, user),
        cwd="/",
        start_new_session=True,  # a Ctrl-C at the terminal is the daemon's to handle
    )


def environment(environ: Mapping[str, str], user: Optional[PluginUser]) -> Dict[str, str]:
    passed_on = {
        name: value
        for name, value in environ.items()
        if name in _ENVIRONMENT or name.startswith("LC_")
    }
    if user is not None:
        passed_on.update(HOME=user.home, USER=user.name, LOGNAME=user.name)
        passed_on.pop("TMPDIR", None)  # it may be for the daemon alone
    return passed_on
