import sys


def do_filter(hosts, vm, properties):
    for _ in range(160):
        sys.stdout.write("x" * 65536)
    return hosts
