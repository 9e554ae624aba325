"""Hosts of which something is known. A file whose name starts with _ is a helper."""

from ovirt_scheduler.plugin import reason


def known(hosts, value, what):
    """Pairs of a host and its value; a host without one is left out, with a reason.

    A host that is being installed has none, and the others are to be judged all the same. If no
    host has one, nothing can be judged: that is a failure.
    """
    pairs = [(host, value(host)) for host in hosts]
    if all(of_host is None for _, of_host in pairs):
        raise LookupError(f"{what} is not known of any host: the engine did not tell")
    for host, of_host in pairs:
        if of_host is None:
            reason(host, f"{what} is not known")
    return [(host, of_host) for host, of_host in pairs if of_host is not None]
