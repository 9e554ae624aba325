def do_filter(hosts, vm, properties):
    files = []
    while True:
        files.append(open("/dev/null"))
