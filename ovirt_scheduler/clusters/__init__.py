"""The clusters that the daemon looks after by itself: hooks, timers, balancing, migrations.

``daemon`` and ``command`` import it. It imports ``decisions`` and what lies below that.
"""
