"""Who may change a file, and who may call: owners and modes, files written whole, certificates.

The daemon's side imports it. It imports ``errors`` alone.
"""
