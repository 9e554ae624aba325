"""``ovirt-scheduler setup``: the steps that make a machine ready for the daemon, and their undoing.

``cli`` adds the command; ``certificate`` uses what it knows of the machine.
"""
