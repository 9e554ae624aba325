"""Decides decoded requests: which units or driver are called, and what follows from their results.

``server`` and ``clusters`` import it. It imports ``catalogue``, ``engine`` and ``processes``.
"""
