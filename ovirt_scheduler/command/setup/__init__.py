"""``ovirt-scheduler setup``: the steps that make a machine ready for the daemon, and their undoing.

Only ``command`` imports it. It imports ``settings`` and ``security``.
"""
