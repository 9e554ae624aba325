def do_filter(hosts, vm, properties):
    while True:
        pass
