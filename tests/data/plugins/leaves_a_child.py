"""Leaves a process in its own session, and a grandchild in another, both with stdout open."""

import subprocess


def do_filter(hosts, vm, properties):
    sleep = ["sleep", properties["marker"]]
    subprocess.Popen(sleep)
    subprocess.Popen(sleep, start_new_session=True)
    subprocess.run(["sh", "-c", f"setsid sleep {properties['marker']} &"], check=True)
    return hosts


def do_score(hosts, vm, properties):
    do_filter(hosts, vm, properties)
    return {host: 1 for host in hosts}
