"""``ovirt-scheduler setup``: the steps that make a machine ready for the daemon, and undo it.

Only ``command`` imports it. It imports ``settings`` and ``security``.
"""
