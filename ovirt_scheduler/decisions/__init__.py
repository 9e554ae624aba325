"""What a decoded request comes to: which units or driver are called, and what their results make.

``server`` and ``clusters`` import it. It imports ``catalogue``, ``engine`` and ``processes``.
"""
