"""The benchmark: what the daemon takes, beside the bare limits and a fresh process per call.

::

    run ──► scenarios ──► client ──raw sockets──► servers: the daemon, the version before,
                │                                     ▲    fresh, front (no-op); fake_engine
                ├──► effort (how much, how often)     │
                ├──► limits (bare costs)              └── usage (processor, memory)
                ├──► measurement ──► goals, report, plot
                └──► stages (of one call)

    look ──► the daemons of two checkouts, which look after a cluster of fake_engine

``make bench`` runs it, but for ``look`` (``python -m bench.look``). Nothing here is installed.
"""
