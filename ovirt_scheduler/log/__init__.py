"""The lines of the log: their fields, their forms, and the handlers that write them.

The daemon's side imports it. It imports ``errors`` and ``model`` alone.
"""
