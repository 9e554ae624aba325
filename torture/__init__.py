"""Torture: a real daemon among clients, plugins and administrators that all do their worst.

``python -m torture.run`` starts it; docs/testing.md tells what is done and what is demanded.

::

    run ─► subject   the daemon, its plugins, its settings
        ─► clients   good ones, whose every answer is checked      ─┐
        ─► readers   who scrapes the metrics and loads pages        │
        ─► attacks   what comes over the network from others        ├─► tally ─► report
        ─► harm      kills, edits of the plugins' folder, SIGHUPs  ─┘
        ─► footing   descriptors, processes and memory, before and after
"""
