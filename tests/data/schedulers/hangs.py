"""Takes longer than its conf file allows."""

import time

from ovirt_scheduler.plugin import LoadBalancer


class Hangs(LoadBalancer):
    topic = "hanging"

    def load_balance(self, hosts, vms, properties):
        time.sleep(600)
