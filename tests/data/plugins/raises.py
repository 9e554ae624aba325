def do_filter(hosts, vm, properties):
    return deeper(hosts)


def deeper(hosts):
    raise ValueError("no\nsuch <hosts>")


def do_score(hosts, vm, properties):
    raise ValueError("no score")


def do_balance(hosts, properties):
    raise ValueError("no balance")
