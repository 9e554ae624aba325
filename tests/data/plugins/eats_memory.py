def do_filter(hosts, vm, properties):
    return [bytearray(64 << 20) for _ in range(64)]
