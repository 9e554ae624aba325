"""The control socket: commands that only root and the daemon's own user may give (contract 9).

It is a Unix socket in the state folder, which nobody else can enter. The kernel says who the peer
is. One line of JSON comes in, ``{"command": …}``; one goes out, ``{"answer": …}`` or
``{"error": …}``, with the ``version`` of the daemon, because a command of another version may not
understand the answer.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable

from ovirt_scheduler import __version__
from ovirt_scheduler.errors import SchedulerError

_log = logging.getLogger(__name__)

FILE = "control"

Peer = int  # a user's number
Command = Callable[[Mapping[str, Any], Peer], object]

_LONGEST = 64 << 10  # bytes of what is asked
_SECONDS = 10.0  # for one question, and for its answer to be taken
_ACCEPT_PAUSE = 0.2  # seconds to wait where the system has no descriptor
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: SO_PEERCRED of unix(7)


class ControlSocket(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers on the socket, each question in a thread of its own.

    Args:
        path: of the socket.
        commands: by name; each gets the request, and the number of the user who sent it.
        seconds: for one question, and for its answer to be taken.

    Raises:
        OSError: the socket cannot be made.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # who comes beyond it is refused, and not kept waiting

    def __init__(
        self, path: Path, commands: Mapping[str, Command], seconds: float = _SECONDS
    ) -> None:
        self.commands = commands
        self.seconds = seconds
        self._path = path
        self._thread = threading.Thread(target=self.serve_forever, name="control", daemon=True)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        with short_name(path) as name:
            super().__init__(name, _Question)

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Answer no more, and remove the socket."""
        if self._thread.is_alive():
            self.shutdown()
        self.server_close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def server_bind(self) -> None:
        """Bind; Linux makes the file with the mode of the socket, so it is never open to others."""
        os.fchmod(self.fileno(), 0o600)
        super().server_bind()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a question; without a descriptor, pause before the next try."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(_ACCEPT_PAUSE)
            raise

    def handle_error(self, *_: object) -> None:
        """Log the error; the next question is answered."""
        _log.exception("a question on the control socket could not be answered, this is a bug")


@contextlib.contextmanager
def short_name(path: Path) -> Iterator[str]:
    """Another name of a file, within the 107 bytes that the name of a Unix socket may have."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class _Question(socketserver.BaseRequestHandler):
    server: ControlSocket
    request: socket.socket

    def handle(self) -> None:
        raw = self.request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, user, _ = _CREDENTIALS.unpack(raw)
        with contextlib.suppress(OSError):  # who asked is gone, or says nothing
            reply = {**self._answer(self._read_line(), user), "version": __version__}
            self.request.settimeout(self.server.seconds)
            self.request.sendall(f"{json.dumps(reply)}\n".encode())

    def _read_line(self) -> bytes:
        """What is asked, as far as it is not too long.

        Raises:
            OSError: it does not come in time.
        """
        line, until = b"", time.monotonic() + self.server.seconds
        while b"\n" not in line and len(line) < _LONGEST:
            # For all of it: who sends a byte now and then would keep the thread.
            self.request.settimeout(max(0.001, until - time.monotonic()))
            piece = self.request.recv(_LONGEST)
            if not piece:
                break
            line += piece
        return line

    def _answer(self, line: bytes, user: int) -> dict[str, object]:
        if user not in (0, os.geteuid()):
            return {"error": "only root and the daemon's user may ask here"}
        try:
            request = json.loads(line)
            command = self.server.commands[request["command"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            commands = ", ".join(sorted(self.server.commands))
            return {"error": f"expected a line of JSON with a command, one of {commands}"}
        try:
            return {"answer": command(request, user)}
        except SchedulerError as error:
            return {"error": str(error)}
        except Exception:  # noqa: BLE001  who asked is to hear of it, and not only the log
            self.server.handle_error()
            return {"error": "the daemon failed to answer; its log says why"}
