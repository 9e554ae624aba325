"""The benchmark: what the daemon takes, beside the bare limits and a fresh process per call.

::

    run ──► scenarios ──► client ──raw sockets──► servers: the daemon, fresh, front (no-op)
                │                                     ▲
                ├──► limits (bare costs)              └── usage (processor, memory)
                └──► measurement ──► goals, report, plot

``make bench`` runs it. Nothing here is installed.
"""
