"""Policy units to run before a scheduler selects a host."""


class keeps_even:
    properties_validation = "kept=[0-9]+"

    def do_filter(self, hosts, vm, properties):
        return hosts[::2]


class by_place:
    def do_score(self, hosts, vm, properties):
        return [(host, -place) for place, host in enumerate(hosts)]


class fails:
    def do_filter(self, hosts, vm, properties):
        raise ValueError("broken")

    def do_score(self, hosts, vm, properties):
        raise ValueError("broken")


class keeps_nothing:
    def do_filter(self, hosts, vm, properties):
        return []


class by_place_as_well:
    def do_score(self, hosts, vm, properties):
        return [(host, -place) for place, host in enumerate(hosts)]
