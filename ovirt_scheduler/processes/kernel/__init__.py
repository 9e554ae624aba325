"""Calls of the Linux kernel and the C library: limits, users, memory, titles of processes.

Both sides of ``processes`` import it. It imports ``model`` alone.
"""
