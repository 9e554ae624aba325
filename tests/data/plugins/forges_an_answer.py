"""Writes an answer of its own making to the daemon's socket, with the nonce of its task."""

import os
import struct
import sys


def do_filter(hosts, vm, properties):
    frame = sys._getframe()
    while "nonce" not in frame.f_locals:
        frame = frame.f_back
    payload = properties["answer"].encode()
    nonce = frame.f_locals["nonce"] + int(properties.get("off", 0))
    kind = properties.get("kind", "a").encode()
    frame = struct.pack("!cQQ", kind, nonce, len(payload)) + payload
    os.write(3, frame * int(properties.get("times", 1)))
    if "goes on" in properties:
        return hosts
    os._exit(0)
