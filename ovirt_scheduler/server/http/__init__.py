"""Sockets, TLS and HTTP: connections that are bounded in number, size and time.

``daemon`` and ``command`` import it. It hands each body to ``server.dispatch`` and knows no method.
"""
