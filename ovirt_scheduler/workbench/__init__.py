"""Tools of administrators and authors of plugins to try things without the daemon.

``command`` and ``testing`` import it. It imports ``daemon`` and what lies below that, because it
runs the same code as the daemon.
"""
