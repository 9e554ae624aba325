"""A real daemon, started as an administrator starts it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional
from xmlrpc.client import Fault, ServerProxy

import pytest

from tests.support.paths import PROJECT
from tests.support.processes import offspring
from tests.support.waiting import LONG, wait_until

_LISTENS = re.compile(r'(?:^|")listening on (\S+?)(?:"|$)', re.MULTILINE)

# What systemd does before it runs a program: the socket that it keeps is descriptor 3.
_HAND_OVER = """
import os, sys
if sys.argv[1]:
    os.environ["NOTIFY_SOCKET"] = sys.argv[1]
if int(sys.argv[2]) >= 0:
    os.dup2(int(sys.argv[2]), 3)
    os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="listener")
os.execv(sys.argv[3], sys.argv[3:])
"""


def under_manager(notify: Optional[Path], kept: int = -1) -> list[str]:
    """The beginning of a command as systemd runs it.

    Args:
        notify: the socket that it is told on; None: it is told nothing.
        kept: the descriptor of a socket that it has kept.
    """
    return [sys.executable, "-c", _HAND_OVER, str(notify or ""), str(kept)]


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port of 127.0.0.1 that the kernel gives to nobody, but a server that names it may have.

    Nobody listens on it until then. Servers set SO_REUSEADDR, as this does.
    """
    with socket.socket() as holding:
        holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holding.bind(("127.0.0.1", 0))
        yield holding.getsockname()[1]


class Calls:
    """The methods of a daemon, each called over a connection of its own."""

    def __init__(self, connect: Callable[[], ServerProxy]) -> None:
        self._connect = connect

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*parameters: object) -> object:
            with self._connect() as proxy:
                return getattr(proxy, method)(*parameters)

        return call


class Daemon:
    """A daemon of its own for a test, started as an administrator starts it.

    Args:
        before: the beginning of a command line that runs the rest, and becomes it.
        port: to listen on; 0: the kernel chooses.
        given: descriptors that it inherits.
    """

    def __init__(
        self,
        folder: Path,
        plugins: Path,
        settings: str,
        options: list[str],
        before: Sequence[str] = (),
        port: int = 0,
        given: Sequence[int] = (),
    ) -> None:
        self.state, self.plugins = folder / "state", plugins
        self._log = folder / "log"
        config = folder / "scheduler.conf"
        config.write_text(f"listening_port = {port}\n{settings}\n", "utf-8")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "ovirt_scheduler", "serve",
                 "--config", str(config), "--plugins", str(plugins), *options],
                cwd=PROJECT,
                env={**os.environ, "STATE_DIRECTORY": str(self.state)},
                stdin=subprocess.DEVNULL,
                stderr=log,
                pass_fds=given,
            )  # fmt: skip
        self.pid = self.process.pid
        self.design, self.engine = Calls(self.proxy), Calls(partial(self.proxy, "/engine"))
        self.url = self._listening()

    def _listening(self) -> str:
        """The address that it prints when it is ready."""

        def look() -> tuple[bool, Optional[re.Match[str]]]:
            ended = self.process.poll() is not None  # before its last words are read
            return ended, _LISTENS.search(self.log)

        try:
            _, listens = wait_until(look, lambda: self.log, suits=any)
            assert listens, f"the daemon did not start:\n{self.log}"
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        return listens[1]

    @property
    def zygote(self) -> int:
        """The pid of the daemon's one child, which forks the others."""
        return offspring(self.pid)[0]

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8")

    @property
    def certificate(self) -> Path:
        return self.state / "certificate" / "certificate.pem"

    @property
    def trust(self) -> Optional[ssl.SSLContext]:
        if self.url.startswith("http:"):
            return None
        return ssl.create_default_context(cafile=str(self.certificate))

    def proxy(self, path: str = "/design") -> ServerProxy:
        return ServerProxy(self.url + path, context=self.trust, use_builtin_types=True)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send the signal and give the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(LONG)


StartDaemon = Callable[..., Daemon]


def refusal(code: int, call: Callable[..., object], *arguments: object) -> str:
    """What the fault with that code says, in which the call ends."""
    with pytest.raises(Fault) as refused:
        call(*arguments)
    assert refused.value.faultCode == code
    return refused.value.faultString
