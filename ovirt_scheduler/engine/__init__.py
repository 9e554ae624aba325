"""What the engine's REST API tells of hosts and VMs.

``decisions`` and what lies above import it. It knows no plugin and no process.
"""
