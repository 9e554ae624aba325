"""Which changes of plugins' files count, from one look at the folders to the next.

An edit passes through half a file, or through none if an editor moves the old one away first. So a
change counts when looks half a second apart have shown the same. The times of a file do not say
how old a change is: a clock elsewhere may have set them, as on NFS. And two writes close together
may leave the same times, so each file is read when it has been the same for half a second.

What is in a folder that was not looked at before counts at once: at a start nothing else is there.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import NamedTuple, Optional

from ovirt_scheduler.catalogue import plugin_files
from ovirt_scheduler.catalogue.loader import FolderScan, Loader, PluginText
from ovirt_scheduler.catalogue.plugin_files import PluginFile, Stamp
from ovirt_scheduler.catalogue.plugin_states import FileState, bug


class LookTimes(NamedTuple):
    """Seconds of the looks at plugins' folders."""

    every: float = 0.5  # between two looks
    settle: float = 0.5  # that a file is to be the same
    unsettled: float = 10.0  # after which a file that changes all the time counts as it is
    retry: float = 30.0  # what did not load may have lacked memory, or have been killed
    slow: float = 5.0  # what takes longer to fail is not tried again for each discover


LOOK_TIMES = LookTimes()


class Reading(NamedTuple):
    """A plugin's text, as a look at the folders has read it."""

    text: PluginText
    steady: bool  # whether its files had been the same for a while


class _Sight(NamedTuple):
    stamp: Optional[Stamp]
    since: float  # when a look first showed that stamp, on the monotonic clock


class Edits:
    """Compares each look with those before. A look is between ``begin`` and ``end``."""

    def __init__(self) -> None:
        self._scan = FolderScan(())  # of this look
        self._times = LOOK_TIMES
        self._sights: dict[Path, _Sight] = {}
        # Files that have changed since the last look that came to its end, and all folders above.
        self._changed: set[Path] = set()
        self._folders: tuple[Path, ...] = ()  # of that look
        # Plugins whose change does not count yet, and since when, on the monotonic clock.
        self._waiting: dict[Path, float] = {}
        self._waited: dict[Path, float] = {}  # those of the look before

    @property
    def pending(self) -> bool:
        """Whether something has changed that does not count yet."""
        return bool(self._waiting)

    def begin(self, scan: FolderScan, times: LookTimes) -> None:
        """Begin a look: compare what the folders hold now with what they held."""
        now, self._times = time.monotonic(), times
        self._scan, self._waited, self._waiting = scan, self._waiting, {}
        for path in self._sights.keys() | scan.stamps.keys():
            stamp = scan.stamps.get(path)
            if path not in self._sights or self._sights[path].stamp != stamp:
                self._sights[path] = _Sight(stamp, now)
                self._changed.update((path, *path.parents))
            elif path not in scan.stamps and self._lasts(path):
                del self._sights[path]

    def end(self) -> None:
        """End a look: what it was about to load is loaded."""
        self._changed.clear()
        self._folders = self._scan.folders

    def concern(self, file: PluginFile, state: Optional[FileState], conf: Path) -> bool:
        """Whether a plugin is to be read: for a change in its folder, or as it was not steady."""
        if state is None or state.text is None or not state.steady or file.path in self._waited:
            return True
        return file.folder in self._changed or conf in self._changed

    def read(
        self, file: PluginFile, state: Optional[FileState], loader: Loader
    ) -> Optional[Reading]:
        """Read a plugin. None: it has gone since the scan."""
        try:
            text = loader.read(file, self._scan)
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001  one file's is not that of all
            text = PluginText(file, bug(file.path, error), None)
        former = state.text.paths if state and state.text else ()
        paths = {*text.paths, *former, loader.conf_path(file.path)}
        # The disk is asked once more: it may have changed after the scan, and before it was read.
        steady = all(
            self._lasts(path) and plugin_files.stamp(path) == self._scan.stamps.get(path)
            for path in paths
        )
        return Reading(text, steady)

    def count(self, path: Path, steady: bool) -> bool:
        """Whether the change of a plugin counts now; if not, it is ``pending``."""
        since = self._waited.get(path, time.monotonic())
        late = time.monotonic() > since + self._times.unsettled
        if steady or late or path.parent not in self._folders:
            return True
        self._waiting[path] = since
        return False

    def gone(self, path: Path) -> bool:
        """Whether a plugin's file counts as gone that this look did not show."""
        return self.count(path, self._lasts(path))

    def _lasts(self, path: Path) -> bool:
        """Whether a file has been as it is, or missing, for a while."""
        since = self._sights[path].since if path in self._sights else -math.inf
        return time.monotonic() - since >= self._times.settle
