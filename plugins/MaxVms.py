"""Filter by VM count: keeps the hosts that run few enough VMs."""


def do_filter(hosts, vm, properties):
    """Keep the hosts with fewer VMs than the property max_vms (10 unless given)."""
    most = int(properties.get("max_vms", 10))
    return [host for host in hosts if vm_count(host) < most]


def vm_count(host):
    """VMs that the host runs or is receiving; none where the engine told nothing."""
    summary = host.summary
    if summary is None:
        return 0
    return (summary.active or 0) + (summary.migrating or 0)
