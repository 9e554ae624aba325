"""Changes everything it can reach; a later call must see none of it."""

import builtins
import os
import signal
import sys
import threading
import time

CALLS = []


def do_filter(hosts, vm, properties):
    CALLS.append(1)
    traces = [
        len(CALLS) > 1,
        hasattr(builtins, "trace"),
        "TRACE" in os.environ,
        os.getcwd() == "/tmp",
        "trace" in sys.modules,
        signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL,
        threading.active_count() > 1,
        bool(hosts[0].comment),
    ]
    builtins.trace = sys.modules["trace"] = True
    os.environ["TRACE"] = "1"
    os.chdir("/tmp")
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    threading.Thread(target=time.sleep, args=(3600,), daemon=False).start()
    for host in hosts:
        host.comment = "seen"
    return [] if any(traces) else hosts
