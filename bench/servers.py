"""Server processes of the benchmark's own: started, known to be ready, and ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

PROJECT = Path(__file__).resolve().parents[1]

_STOP_SECONDS = 30.0


class Server:
    """A process that says ``listening on URL`` on standard error when it is ready.

    Attributes:
        pid: of the process, the root of its tree.
        address: the URL's host and port.
        seconds: from its start to that line.
    """

    def __init__(
        self,
        arguments: list[str],
        environment: dict[str, str] | None = None,
        checkout: Path = PROJECT,
    ) -> None:
        """
        Args:
            checkout: whose code it runs, with this process's interpreter and libraries.

        Raises:
            RuntimeError: it ended instead; the text is what it said.
        """
        started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=checkout,  # the first place where modules are looked for
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C is ours: every server is stopped then
        )
        self.pid = self._process.pid
        self._said: list[str] = []
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)
            if line.startswith("listening on "):
                break
        else:
            raise RuntimeError(f"{' '.join(arguments)}:\n{''.join(self._said)}")
        self.seconds = time.monotonic() - started
        url = urlsplit(line.split()[-1])
        self.address = url.hostname or "", url.port or 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        self._said.extend(self._process.stderr)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """What it has written to standard error."""
        return "".join(self._said)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_STOP_SECONDS)
        assert self._process.stderr is not None
        self._process.stderr.close()


def daemon(
    state: Path, plugins: Path, *, tls: bool = False, more: str = "", checkout: Path = PROJECT
) -> Server:
    """The daemon with its defaults, on a port of the kernel's choice, its log in a file.

    Args:
        more: of scheduler.conf.
        checkout: of the version that is started.
    """
    state.mkdir(exist_ok=True)
    settings = state / "scheduler.conf"
    settings.write_text(
        "listening_port = 0\n"
        "listening_address = 127.0.0.1\n"
        f"ssl = {'true' if tls else 'false'}\n"
        f"log_file = {state / 'log'}\n"
        f"plugins_conf_path = {state}\n{more}\n",
        "utf-8",
    )
    return Server(
        ["-m", "ovirt_scheduler", "serve", "--config", str(settings), "--plugins", str(plugins)],
        {"STATE_DIRECTORY": str(state)},
        checkout,
    )


def certificate(state: Path) -> Path:
    return state / "certificate" / "certificate.pem"


def fresh(plugins: Path) -> Server:
    return Server(["-m", "bench.fresh", str(plugins)])


def noop() -> Server:
    return Server(["-m", "bench.front"])
