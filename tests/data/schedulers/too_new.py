"""Written for an oVirt that is not there yet."""

from ovirt_scheduler.plugin import LoadBalancer


class TooNew(LoadBalancer):
    topic = "new"
    written_for = "99.1"

    def load_balance(self, hosts, vms, properties):
        return {}
