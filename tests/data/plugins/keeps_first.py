"""Shows that filters run one after another: each sees what the one before it left."""


def do_filter(hosts, vm, properties):
    """Keep all hosts but the last."""
    return [host.id for host in hosts][:-1]
