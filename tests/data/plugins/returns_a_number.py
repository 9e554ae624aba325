def do_filter(hosts, vm, properties):
    return 7


def do_score(hosts, vm, properties):
    return {hosts[0]: "cheap"}


def do_balance(hosts, properties):
    return "vm", "hosts", "and more"
