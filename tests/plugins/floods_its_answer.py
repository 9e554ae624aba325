"""Announces an endless answer on every pipe that it can find, and sends what it can of it."""

import os
import struct


def do_filter(hosts, vm, properties):
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            if descriptor > 2 and os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
                os.write(descriptor, struct.pack("!Q", 1 << 62))
                for _ in range(200):
                    os.write(descriptor, b"x" * (1 << 20))
        except OSError:
            pass
    os._exit(0)
