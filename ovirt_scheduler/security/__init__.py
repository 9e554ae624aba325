"""Who may change a file, and who may call: owners and modes, files written whole, certificates,
and which addresses are this machine's own.

The daemon's side imports it. It imports ``errors`` alone.
"""
