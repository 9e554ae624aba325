"""``python -m ovirt_scheduler`` is ``ovirt-scheduler``."""

import sys

from ovirt_scheduler.command.cli import main

if __name__ == "__main__":
    sys.exit(main())
