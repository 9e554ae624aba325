import sys


class to_any_host:
    def do_balance(self, hosts_ids, args_map):
        return args_map["vm"], []


class no_vm_id:
    def do_balance(self, hosts_ids, args_map):
        return "vm-1", hosts_ids


class broken:
    def do_balance(self, hosts_ids, args_map):
        raise RuntimeError("no balance")


class prints_as_python_2:
    def do_balance(self, hosts_ids, args_map):
        print (args_map["vm"], hosts_ids)  # fmt: skip


class prints_none_as_python_2:
    def do_balance(self, hosts_ids, args_map):
        print (None, hosts_ids)  # fmt: skip


class prints_words:
    def do_balance(self, hosts_ids, args_map):
        print("looking at", len(hosts_ids), "hosts")


class prints_words_and_none:
    def do_balance(self, hosts_ids, args_map):
        print("looking at", len(hosts_ids), "hosts")
        print(None)


class prints_words_and_complains:
    def do_balance(self, hosts_ids, args_map):
        print("looking at", len(hosts_ids), "hosts")
        print("the engine does not answer", file=sys.stderr)
