import os


def do_filter(hosts, vm, properties):
    os._exit(0)
