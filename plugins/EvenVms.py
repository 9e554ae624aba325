"""Even VM distribution: the more VMs a host has, the more it costs."""


def do_score(hosts, vm, properties):
    """Cost: the VMs on the host, counted; 0 is best."""
    return [(host, vm_count(host)) for host in hosts]


def vm_count(host):
    """VMs that the host runs or is receiving; none where the engine told nothing."""
    summary = host.summary
    if summary is None:
        return 0
    return (summary.active or 0) + (summary.migrating or 0)
