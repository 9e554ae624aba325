"""The daemon: its parts put together from the settings, started, reloaded, watched and ended.

Only ``command`` imports it. It imports everything that lies below.
"""
