"""The words of the trade as frozen values: units, drivers, requests, tasks, decisions.

Everybody may import it; it imports ``errors`` alone.
"""
