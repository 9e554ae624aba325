"""Does what its property says, in each of the five interfaces."""

import os
import signal

from ovirt_scheduler.plugin import Scheduler


class Misbehaves(Scheduler):
    topic = None
    properties_validation = "how=[a-z_0-9]*"

    def candidates(self, hosts, vm, properties):
        return misbehave(properties["how"], hosts, [vm])

    def has_any_hosts(self, hosts, vm, properties):
        return misbehave(properties["how"], hosts, [vm])

    def load_balance(self, hosts, vms, properties):
        return misbehave(properties["how"], hosts, vms)

    on_timer_invoked = load_balance

    def on_vm_status_changed(self, vm, old_status, new_status, hosts, vms, properties):
        return misbehave(properties["how"], hosts, vms)

    def on_host_status_changed(self, host, old_status, new_status, hosts, vms, properties):
        return misbehave(properties["how"], hosts, vms)


def misbehave(how, hosts, vms):
    if how == "raises":
        raise ValueError("no\nsuch luck")
    if how == "recurses":
        return misbehave(how, hosts, vms)
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exits":
        os._exit(0)
    if how == "stops_the_answer":
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b"?" + b"\0" * 15 + b"\x05junk!")
            except OSError:
                pass
        os._exit(0)
    vm = vms[0]
    return {
        "number": 7,
        "text": "yes",
        "strange_host": ["a stranger", hosts[0]],
        "strange_vm": {"a stranger": hosts, vm: hosts},
        "host_of_none": {vm: ["a stranger"]},
        "any_host": {vm: []},
        "no_hosts": {vm: None},
        "one_host": {vm: hosts[0].id},
        "twice": {vm: hosts, vm.id: hosts},
        "none_id": [object()],
        "nothing": None,
    }[how]
