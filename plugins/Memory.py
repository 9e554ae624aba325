"""The configured sample of the design page: memory as filter, cost and balance in one file.

``threshold`` is the share of a host's memory, in percent, that VMs may have taken.
``server_ip`` names the machine that measures heat in the design page's story; nothing is
asked of it here.
"""

GIB = 2**30


def do_filter(hosts, vm, properties):
    """Keep the hosts whose memory is taken no further than the threshold."""
    threshold = int(properties.get("threshold", 70))
    return [host for host in hosts if taken_percent(host) <= threshold]


def do_score(hosts, vm, properties):
    """Cost: the percentage of the host's memory that is taken; lower is better."""
    return [(host, round(taken_percent(host))) for host in hosts]


def do_balance(hosts, properties):
    """Name the hosts beyond the threshold; which VMs they run, their documents do not tell."""
    threshold = int(properties.get("threshold", 70))
    for host in hosts:
        if taken_percent(host) > threshold:
            print(f"{host.name or host.id} is beyond {threshold} %; its VMs are not known here")


def taken_percent(host):
    """Memory that can be given to no further VM, in percent; 0 where it is not known."""
    if not host.memory or host.max_scheduling_memory is None:
        return 0
    return 100 * (host.memory - host.max_scheduling_memory) / host.memory
