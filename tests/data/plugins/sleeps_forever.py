import time


def do_filter(hosts, vm, properties):
    time.sleep(3600)
