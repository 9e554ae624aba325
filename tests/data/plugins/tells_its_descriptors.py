"""Prints what each of its descriptors leads to."""

import os


def do_filter(hosts, vm, properties):
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            target = os.readlink(f"/proc/self/fd/{name}").partition(":")[0]
            print(name, "/proc" if target.startswith("/proc/") else target)
        except FileNotFoundError:
            pass  # the one that listed the folder
    return hosts
