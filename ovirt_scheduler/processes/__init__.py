"""Everything that runs below the daemon. The modules here are the daemon's side.

``decisions`` and what lies above import them. The other side is ``worker``, ``loading`` and
``documents``; what both know is ``protocol`` and ``kernel``. The two sides never import each other.
"""
