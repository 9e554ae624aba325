"""Accepts, scores and moves whatever it is given."""


def do_filter(hosts, vm, properties):
    """Keep every host."""
    return hosts


def do_score(hosts, vm, properties):
    """Cost: the host's position."""
    return {host.id: position for position, host in enumerate(hosts)}


def do_balance(hosts, properties):
    """Move the VM named by the property vm to any of the hosts."""
    return properties["vm"], hosts
