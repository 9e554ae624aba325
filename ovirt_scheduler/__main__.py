"""The program ``ovirt-scheduler``, also ``python -m ovirt_scheduler``."""

import importlib
import signal
import sys


def main() -> int:
    """Run the command line; gives the exit status.

    While its modules load, Ctrl-C ends the process at once, and not with Python's traceback.
    ``cli.main`` has it raise KeyboardInterrupt again.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as by nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return int(importlib.import_module("ovirt_scheduler.command.cli").main())


if __name__ == "__main__":
    sys.exit(main())
