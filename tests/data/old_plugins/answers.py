"""The ways in which plugins of the released proxy answer (contract 5.3)."""

import os
import sys

from _old_helper import first, from_helper

from ovirt_scheduler.plugin import reason


class prints_a_literal:
    """Described by the class."""

    properties_validation = "maximum_vm_count=[0-9]*;mode=a|b"

    def do_filter(self, hosts_ids, vm_id, args_map):
        print(hosts_ids[:1])

    def do_score(self, hosts_ids, vm_id, args_map):
        print([(host, 10 * place) for place, host in enumerate(hosts_ids)])

    def do_balance(self, hosts_ids, args_map):
        """Described by the method."""
        print([args_map["vm"], hosts_ids])


class returns:
    def do_filter(self, hosts_ids, vm_id, args_map):
        return hosts_ids[:1]


class returns_and_prints:
    def do_filter(self, hosts_ids, vm_id, args_map):
        print(hosts_ids)
        return hosts_ids[:1]


class prints_twice:
    def do_filter(self, hosts_ids, vm_id, args_map):
        print("looking at", len(hosts_ids), "hosts")
        print(hosts_ids[:1])


class prints_to_stderr_too:
    def do_filter(self, hosts_ids, vm_id, args_map):
        print("a warning of some library", file=sys.stderr)
        print(hosts_ids[:1])


class prints_and_exits:
    def do_filter(self, hosts_ids, vm_id, args_map):
        print(hosts_ids[:1])
        sys.exit(0)


class prints_nothing:
    def do_filter(self, hosts_ids, vm_id, args_map):
        pass

    def do_score(self, hosts_ids, vm_id, args_map):
        pass

    def do_balance(self, hosts_ids, args_map):
        pass


class prints_no_literal:
    def do_filter(self, hosts_ids, vm_id, args_map):
        print("no host fits,", vm_id)


class complains:
    def do_filter(self, hosts_ids, vm_id, args_map):
        print("the engine\ndoes not answer", file=sys.stderr)

    def do_balance(self, hosts_ids, args_map):
        print("the engine\ndoes not answer", file=sys.stderr)


class fails:
    def do_filter(self, hosts_ids, vm_id, args_map):
        raise KeyError("cluster")


class exits_with_3:
    def do_filter(self, hosts_ids, vm_id, args_map):
        print(hosts_ids[:1])
        sys.exit(3)


class prints_the_old_nothing:
    def do_balance(self, hosts_ids, args_map):
        print(["", []])


class uses_a_helper:
    def do_filter(self, hosts_ids, vm_id, args_map):
        print(first(hosts_ids))


class inherits(from_helper):
    def do_score(self, hosts_ids, vm_id, args_map):
        return {hosts_ids[0]: self.weight}


class tells_what_it_got:
    def do_filter(self, hosts_ids, vm_id, args_map):
        assert [type(host) for host in hosts_ids] == [str] * len(hosts_ids)
        assert type(vm_id) is str
        assert all(type(value) is str for value in args_map.values())
        return [host for host in hosts_ids if host.endswith(args_map.get("last", "1"))]


class returns_names:
    def do_filter(self, hosts_ids, vm_id, args_map):
        return ["puma"]


class has_names_printed:
    def do_filter(self, hosts_ids, vm_id, args_map):
        os.system("echo \"['puma']\"")


class prints_much:
    def do_filter(self, hosts_ids, vm_id, args_map):
        print("x" * (1 << 21))
        reason("a stranger", "is not here")
        return hosts_ids
