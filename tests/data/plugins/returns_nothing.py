def do_filter(hosts, vm, properties):
    pass


def do_score(hosts, vm, properties):
    pass


def do_balance(hosts, properties):
    pass
