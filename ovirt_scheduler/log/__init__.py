"""The lines of the log: their fields, their two forms, and where they go.

The daemon's side imports it. It imports ``errors`` alone.
"""
