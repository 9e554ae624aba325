"""What an administrator or an author of plugins tries things out with, away from the daemon.

``command`` and ``testing`` import it. It imports ``daemon`` and what lies below that: what it
runs is what serves.
"""
