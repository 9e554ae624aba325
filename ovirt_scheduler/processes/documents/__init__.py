"""The documents of hosts and VMs, read into entities of the SDK, and packed for other processes.

``worker`` imports it, and calls what the tasks of readers name. It imports ``model`` alone.
"""
