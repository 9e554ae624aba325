"""Even VM distribution: the more VMs a host runs, the more it costs."""

from _vms import vm_count


def do_score(hosts, vm, properties):
    """Cost: how many VMs the host runs; 0 is best."""
    return [(host, vm_count(host)) for host in hosts]
