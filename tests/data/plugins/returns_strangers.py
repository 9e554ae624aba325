def do_filter(hosts, vm, properties):
    return ["stranger", *hosts, hosts[0], "stranger"]


def do_score(hosts, vm, properties):
    return [("stranger", 1)] + [(host, 5) for host in hosts]


def do_balance(hosts, properties):
    return "vm-1", ["stranger"]
