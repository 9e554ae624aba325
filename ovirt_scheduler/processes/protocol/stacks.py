"""What a process prints when it is asked where it is: a stack, as faulthandler writes it.

::

    Stack (most recent call first):
      File "/plugins/Night.py", line 12 in wait
      File "/plugins/Night.py", line 3 in do_filter
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

_STACK = re.compile(rb"Stack \(most recent call first\):\n((?:  [^\n]*\n)*)")
_OURS = re.compile(rf'  File "(<string>|{re.escape(str(Path(__file__).parents[1]))}/)')
_PLACE = re.compile(r'File "(?P<file>[^"\n]*)", line (?P<line>\d+) in (?P<function>.*)')


def take_out(output: bytearray) -> str:
    """Take the first stack out of what was printed.

    Returns:
        It as a traceback that begins where the plugin's own lines do; empty if there is none.
    """
    stack = _STACK.search(output)
    if stack is None:
        return ""
    lines = stack[1].decode("utf-8", "replace").splitlines()
    del output[slice(*stack.span())]
    outer = itertools.dropwhile(_OURS.match, lines[::-1])
    return "\n".join(["Traceback (most recent call last):", *outer])


def place(traceback: str, plugin: str) -> str:
    """The innermost place of a traceback in the folder of a plugin's file; empty if none is."""
    for frame in reversed([*_PLACE.finditer(traceback)]):
        file = Path(frame["file"])
        if file.parent == Path(plugin).parent:
            return f"{frame['function']} ({file.name}:{frame['line']})"
    return ""
