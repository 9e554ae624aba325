"""The command line, and what each command does.

Only ``__main__`` and the console script import it. It may import everything on the daemon's side.
"""
