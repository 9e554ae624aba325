"""The commands that call methods, and ``try``: arguments become a call, its answer a table.

``daemon_client`` has the calls themselves, to a running daemon or to plugins in this process.
"""
