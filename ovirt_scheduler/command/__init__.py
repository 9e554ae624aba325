"""The command line, and what each command does. ``plugin_templates`` is what ``new`` writes.

Only ``__main__``, the console script and ``testing`` import it. It may import everything on the
daemon's side.
"""
