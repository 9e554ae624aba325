"""``ovirt-scheduler setup``: the steps that make a machine ready for the daemon, and their undoing.

``cli`` adds the command; ``certificate`` uses the classes of the machine and the engine's Java.
"""
