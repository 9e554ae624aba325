"""Writes rubbish to every descriptor that it can find, its answer's pipe among them."""

import os


def do_filter(hosts, vm, properties):
    for descriptor in range(256):
        try:
            os.write(descriptor, b'{"type": "result"}')
        except OSError:
            pass
    return hosts
