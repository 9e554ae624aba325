"""scheduler.conf and the plugins' conf files: one table of settings, read and checked.

The daemon's side imports it. It imports ``security``, ``model`` and ``errors``.
"""
