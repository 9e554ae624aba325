"""The standard library's XML-RPC server with threads: what the daemon is compared with.

As a program of its own it answers calls that do nothing: ``python -m bench.front``.
"""

from __future__ import annotations

import sys
from socketserver import ThreadingMixIn
from typing import Any, Callable
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer


class _KeptConnections(SimpleXMLRPCRequestHandler):
    protocol_version = "HTTP/1.1"  # else each call would pay for a connection
    rpc_paths = ("/design",)


class _Front(ThreadingMixIn, SimpleXMLRPCServer):
    request_queue_size = 1024
    daemon_threads = True


def serve(functions: dict[str, Callable[..., Any]]) -> None:
    """Serve them on a port of the kernel's choice, until killed."""
    with _Front(("127.0.0.1", 0), _KeptConnections, logRequests=False) as server:
        for name, function in functions.items():
            server.register_function(function, name)
        print(f"listening on http://127.0.0.1:{server.server_address[1]}", file=sys.stderr)
        server.serve_forever()


if __name__ == "__main__":
    serve({"noop": lambda: True, "runFilters": lambda _names, hosts, _vm, _properties: hosts})
