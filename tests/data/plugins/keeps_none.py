def do_filter(hosts, vm, properties):
    return []
