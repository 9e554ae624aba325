"""Announces an endless answer to the daemon, and sends what it can of it."""

import os
import struct


def do_filter(hosts, vm, properties):
    os.write(3, struct.pack("!cQQ", b"a", 0, 1 << 62))
    for _ in range(200):
        os.write(3, b"x" * (1 << 20))
