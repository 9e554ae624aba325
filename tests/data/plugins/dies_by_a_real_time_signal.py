import os


def do_filter(hosts, vm, properties):
    os.kill(os.getpid(), 40)
