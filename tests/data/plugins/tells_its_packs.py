"""Prints which files in memory its entities are in."""

import os


def do_filter(hosts, vm, properties):
    packs = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:"):
                packs.append(str(os.stat(int(name)).st_ino))
        except OSError:
            pass
    print(",".join(sorted(packs)))
    return hosts
