"""The documents of hosts and VMs, read into entities of the SDK, and packed for other processes.

``worker`` imports it. It imports ``model`` alone.
"""
