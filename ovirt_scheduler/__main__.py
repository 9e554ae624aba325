"""The program ``ovirt-scheduler``, also ``python -m ovirt_scheduler``."""

import importlib
import signal
import sys


def main() -> int:
    """Run the command line; gives the exit status.

    While its modules load, Ctrl-C ends the process at once, and not with Python's traceback.
    """
    by_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if by_default:  # and not ignored, as behind nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    cli = importlib.import_module("ovirt_scheduler.command.cli")
    if by_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return int(cli.main())


if __name__ == "__main__":
    sys.exit(main())
