"""Takes longer than its conf file allows."""

import threading

from ovirt_scheduler.plugin import LoadBalancer


class Hangs(LoadBalancer):
    topic = "hanging"

    def load_balance(self, hosts, vms, properties):
        threading.Event().wait()
