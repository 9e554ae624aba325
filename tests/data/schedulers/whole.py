"""Does all that a scheduler can, so that each answer tells what it was called with."""

from ovirt_scheduler.plugin import Scheduler


class Whole(Scheduler):
    """Takes the host with the lowest cost, else the first by name."""

    topic = "compute"
    policies = ("spread", "pack")
    properties_validation = "limit={1-99};mode=fast|slow"
    default_values = "7"
    written_for = "4.4"

    def candidates(self, hosts, vm, properties):
        """The hosts by cost, then by name."""
        if properties["policy"] == "pack":
            hosts = hosts[:1]
        return sorted(hosts, key=lambda host: (self.costs.get(host.id, 0), host.name or host.id))

    def load_balance(self, hosts, vms, properties):
        """Every VM away from the host that it is on."""
        return {
            vm: [host for host in hosts if vm.host is None or host.id != vm.host.id] for vm in vms
        }

    def on_timer_invoked(self, hosts, vms, properties):
        return {vms[0]: hosts[: int(properties["limit"])]} if vms else None

    def on_vm_status_changed(self, vm, old_status, new_status, hosts, vms, properties):
        return {vm: hosts} if (old_status, new_status) == ("up", "paused") else {}

    def on_host_status_changed(self, host, old_status, new_status, hosts, vms, properties):
        """Empties a host that goes into maintenance."""
        others = [other.id for other in hosts if other.id != host.id]
        leaves = new_status == "maintenance" and old_status == "up"
        return {vm.id: others for vm in vms if leaves and vm.host.id == host.id}

    def explain(self, host_id, detail="short"):
        """A method of its own, with plain values."""
        return {"host": host_id, "detail": detail, "selected": list(self.selected)}
