"""The daemon: put together from its settings, started, reloaded, watched and ended.

Only ``command`` imports it. It imports everything that lies below.
"""
