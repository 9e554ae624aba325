import os


def do_filter(hosts, vm, properties):
    for _ in range(160):
        os.write(2, b"x" * 65536)
    return hosts
