"""The terms of the field as immutable values: units, drivers, requests, tasks, decisions.

Everybody may import it; it imports ``errors`` alone.
"""
