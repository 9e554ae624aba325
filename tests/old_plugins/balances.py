class to_any_host:
    def do_balance(self, hosts_ids, args_map):
        return args_map["vm"], []


class no_vm_id:
    def do_balance(self, hosts_ids, args_map):
        return "vm-1", hosts_ids


class broken:
    def do_balance(self, hosts_ids, args_map):
        raise RuntimeError("no balance")
