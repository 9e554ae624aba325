import os
import signal


def do_filter(hosts, vm, properties):
    os.kill(os.getpid(), signal.SIGSEGV)
