"""Hosts and VMs from the engine's REST API.

``decisions`` and what lies above import it. It knows no plugin and no process.
"""
