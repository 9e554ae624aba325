"""The benchmark: what the daemon takes, beside the bare limits and a fresh process per call.

::

    run ──► scenarios ──► client ──raw sockets──► servers: the daemon, the version before,
                │                                     ▲    fresh, front (no-op); made_engine
                ├──► limits (bare costs)              └── usage (processor, memory)
                ├──► measurement ──► goals, report, plot
                └──► stages (of one call)

``make bench`` runs it. Nothing here is installed.
"""
