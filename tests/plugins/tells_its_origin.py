"""Prints which process read the entities: its parent's pid, and the hosts that it made itself."""

import gc
import os

from ovirtsdk4 import types


def do_filter(hosts, vm, properties):
    made_here = sum(isinstance(thing, types.Host) for thing in gc.get_objects())
    print(os.getppid(), made_here)
    return hosts
