"""The texts of plugins that several tests write."""

from __future__ import annotations

GOOD = 'def do_filter(hosts, vm, properties):\n    """Keep all."""\n    return hosts\n'
