def do_filter(hosts, vm, properties):
    return [*hosts, "h\nWARNING all is lost"]
