"""Keeps the catalogue of policy units and drivers up to date with the plugins' folders.

A scan of the folders shows which files have changed; only those are loaded again. A change that
does not load leaves the version before it in use, also across a restart. Readers take the
whole catalogue at once, so one request never sees half a change (contract 4.6).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Callable, Optional

from ovirt_scheduler.catalogue.files import PluginFile
from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import FolderScan, Loader
from ovirt_scheduler.catalogue.plugin_states import REJECTS, FileState, merged
from ovirt_scheduler.catalogue.snapshot import Catalogue
from ovirt_scheduler.errors import ExecutorUnavailable, PluginError
from ovirt_scheduler.log.trouble import Trouble
from ovirt_scheduler.model.plugins import Limits, PluginCode
from ovirt_scheduler.model.values.text import one_line

_log = logging.getLogger(__name__)

_LOADS_AT_ONCE = 4
_REFRESH_EVERY = 1.0  # seconds between refreshes by the run calls
_WAIT_FOR_REFRESH = 1.0  # seconds from its start that run calls wait for a refresh

_NAMES_UNKNOWN = (
    "; if it has filters that are classes, their names are not known, and calls of them are left "
    "out: the state folder has no version of it that loads"
)

_SLOW = 5.0  # seconds; what takes longer to fail is not tried again for each discover

# An edit passes through half a file, or through none if an editor moves the old one away first.
# A new version of a plugin that works counts only when it has not changed for so many seconds.
_SETTLE = 0.5
_SETTLE_AT_MOST = 2.0  # seconds that a refresh waits for that, at most
_UNSETTLED_AT_MOST = 10.0  # seconds after which a file that changes all the time counts as it is


class Registry:
    """Holds the catalogue, and updates it from the folders. Safe to use from many threads.

    Args:
        loader: finds and loads the plugins.
        store: keeps the last good version of each over a restart.
        use: called with all plugins, when they have changed.
        keep: called with each event of a file, for the history.

    Attributes:
        trouble: the failures of looks that nobody waits for.
    """

    def __init__(
        self,
        loader: Loader,
        store: LastGood,
        use: Optional[Callable[[Sequence[tuple[PluginCode, Limits]]], None]] = None,
        keep: Callable[[Mapping[str, object]], None] = lambda _: None,
    ) -> None:
        self._loader = loader
        self.trouble = Trouble("looking at the plugins' folders")
        self._stopped = False
        self._renewed: Optional[Loader] = None  # the loader from the next scan on
        self._store = store
        self._use = use
        self._keep = keep
        self.catalogue = Catalogue()  # what there was at the latest refresh
        self._states: dict[Path, FileState] = {}
        self._refreshing = threading.Lock()
        self._lock = threading.Lock()
        self._background: Optional[threading.Thread] = None
        self._wait_until = 0.0  # run calls wait for the refresh until then, on the monotonic clock
        self._refresh_at = 0.0  # on the monotonic clock
        self._refreshed_at = 0.0  # when the last ``refresh`` began, on the same clock

    def renew(self, loader: Loader) -> None:
        """Load everything anew with another loader, at the next refresh; does not wait.

        If a file does not load then, the version before it stays in use, as after an edit.
        """
        with self._lock:
            self._renewed = loader
            self._refresh_at = 0.0

    def stop(self) -> None:
        """Accept no further scan: its loads are about to be cut off. The catalogue stays."""
        self._stopped = True

    def refresh(self) -> Catalogue:
        """Load the files that have changed or did not load before, and wait for that.

        A file that took long to fail is only loaded again if it has changed, or after a while.
        Many callers at once share one refresh that begins after they asked.

        Raises:
            ExecutorUnavailable: no process is available to analyse a plugin in.
        """
        asked = time.monotonic()
        with self._refreshing:
            if self._refreshed_at > asked:
                return self.catalogue
            began = time.monotonic()
            self._update(retry_faults=True)
            give_up = time.monotonic() + _SETTLE_AT_MOST
            while self._unsettled() and time.monotonic() < give_up:
                time.sleep(_SETTLE / 2)
                self._update()
            self._refreshed_at = began
        return self.catalogue

    def current(self) -> Catalogue:
        """The catalogue, at most a second old; a slow import makes it older, and delays no call."""
        with self._lock:
            if time.monotonic() < self._refresh_at:
                return self.catalogue
            thread = self._background
            if thread is None or not thread.is_alive():
                thread = threading.Thread(target=self._refresh_quietly, name="plugins", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    _log.error(
                        "the plugins' folders cannot be looked at now: %(reason)s",
                        {"reason": str(error)},
                    )
                    self._refresh_at = time.monotonic() + _REFRESH_EVERY
                    return self.catalogue
                self._background = thread
                self._wait_until = time.monotonic() + _WAIT_FOR_REFRESH
            patience = self._wait_until - time.monotonic()
        thread.join(max(0.0, patience))
        return self.catalogue

    def _refresh_quietly(self) -> None:
        pause = 0.0
        try:
            with self._refreshing:
                self._update()
            self.trouble.clear()
        except ExecutorUnavailable as error:
            _log.error(
                "no plugin can be loaded now: %(reason)s; what was loaded stays",
                {"reason": str(error)},
            )
        except Exception as error:  # noqa: BLE001  what was loaded stays
            pause = self.trouble.note(error)
        with self._lock:
            rest = _SETTLE if self._unsettled() else _REFRESH_EVERY
            self._refresh_at = time.monotonic() + max(pause, rest)

    def _unsettled(self) -> bool:
        return any(state.unsettled_since for state in self._states.values())

    def _take_renewed(self) -> None:
        """Use the loader that ``renew`` has put there."""
        with self._lock:
            loader, self._renewed = self._renewed, None
        if loader is not None:
            self._loader = loader
            self._states = {
                path: replace(state, unsettled_since=time.monotonic())
                for path, state in self._states.items()
                if path.parent in loader.folders
            }

    def _update(self, retry_faults: bool = False) -> None:
        self._take_renewed()
        scan = self._loader.scan()
        self._store.catch_up()
        before = self._states
        plugins = [file for file in scan.files if not file.helper]
        states = {file.path: before[file.path] for file in plugins if file.path in before}
        due = [
            file
            for file in plugins
            if file.path not in states or states[file.path].stale(scan, retry_faults)
        ]
        states.update(self._load_all(due, scan))
        if self._stopped:
            return
        for path, state in before.items():
            if path in states:
                continue
            if path.parent in scan.unreadable:
                states[path] = state  # its file may still be there
            elif waiting := _waiting(state, [path, path.parent], scan):
                states[path] = waiting
            else:
                alone = self._loader.conf_path(path.stem) in scan.confs
                self._store.drop(path, state.good.filters if alone and state.good else ())
        # A folder that cannot be listed keeps its rank, and its plugins the names they have.
        order = sorted(states, key=lambda path: (scan.folders.index(path.parent), path.name))
        states = {path: states[path] for path in order}
        catalogue = merged(states, self._orphaned(states, scan), scan.problems)
        self._log_changes(states, catalogue)
        self._states, self.catalogue = states, catalogue
        if self._use is not None and (due or before.keys() != states.keys()):
            self._use(catalogue.plugins)

    def _log_changes(self, states: Mapping[Path, FileState], now: Catalogue) -> None:
        """Log what is another than before, and keep it for the history."""
        logged = set(map(str, (*self.catalogue.faults, *self.catalogue.warnings)))
        for fault in now.faults:
            if str(fault) not in logged:
                _log.error("a plugin cannot be loaded: %(reason)s", _fields(fault))
                place = {"file": fault.file, "line": fault.line, "message": fault.message}
                known = {key: each for key, each in place.items() if each}
                self._keep({"event": "not loaded", **known})
        for warning in now.warnings:
            if str(warning) not in logged:
                _log.warning("a plugin should be looked at: %(reason)s", _fields(warning))
        over = {each.file for each in self.catalogue.faults} - {each.file for each in now.faults}
        for path in sorted(self._states.keys() | states.keys()):
            old, new = (
                in_use[path].good if path in in_use else None for in_use in (self._states, states)
            )
            contents = new.contents if new else []
            if new is not None and contents and (old is None or old.checksum != new.checksum):
                _log.info(
                    "loaded %(file)s (%(kind)s), %(checksum)s",
                    {"file": str(path), "kind": ", ".join(contents), "checksum": new.checksum},
                )
                event = {"event": "loaded", "file": str(path), "checksum": new.checksum}
                if old is not None:
                    event = {**event, "event": "edited", "former": old.checksum}
                self._keep(event)
            elif old is not None and old.contents and not contents:
                how = "has nothing to call any more" if path in states else "is gone"
                _log.info("unloaded %(file)s: it %(reason)s", {"file": str(path), "reason": how})
                self._keep({"event": "unloaded", "file": str(path)})
            else:
                continue
            over.discard(str(path))  # that line says it
        _log_over(sorted(filter(None, over)))

    def _orphaned(
        self, states: Mapping[Path, FileState], scan: FolderScan
    ) -> dict[Path, FileState]:
        """The conf files whose plugin is gone, and had or may have had a filter that rejects."""
        there = {file.name for file in scan.files} | {path.stem for path in states}
        orphaned: dict[Path, FileState] = {}
        for conf in scan.confs:
            if conf.stem not in there and self._loader.rejects(conf):
                plugins = [folder / f"{conf.stem}.py" for folder in scan.folders]
                names = [each for each in map(self._store.filters, plugins) if each is not None]
                fault = PluginError(
                    f"{conf.stem}.py is found in no folder of plugins_path; {REJECTS}"
                    f"{'' if names else _NAMES_UNKNOWN}; put the plugin back, or take this file "
                    "away",
                    str(conf),
                )
                missed = dict.fromkeys(itertools.chain([conf.stem], *names))
                orphaned[conf] = FileState({}, None, fault, missed=tuple(missed))
        return orphaned

    def _load_all(self, files: Sequence[PluginFile], scan: FolderScan) -> dict[Path, FileState]:
        """Load several files at a time, so that one that hangs does not hold up the others.

        Raises:
            ExecutorUnavailable: no process is available to analyse a file in.
        """

        def load(file: PluginFile) -> Optional[FileState]:
            before = self._states.get(file.path)
            began = time.monotonic()
            try:
                return self._load(file, scan, before)
            except FileNotFoundError:  # since the scan
                return None
            except ExecutorUnavailable:
                raise
            except PluginError as error:
                fault = error
            except Exception as error:  # noqa: BLE001  one file's is not that of all
                fault = _bug(file, error)
            return self._failed(file, scan, before, fault, time.monotonic() - began > _SLOW)

        loads: list[Future[Optional[FileState]]] = []
        # Where no further thread can be started, the other files are loaded here, after those.
        with contextlib.suppress(RuntimeError), ThreadPoolExecutor(_LOADS_AT_ONCE, "load") as pool:
            for file in files:
                loads.append(pool.submit(load, file))  # noqa: PERF401  one of these may fail
        loaded = [*(each.result() for each in loads), *map(load, files[len(loads) :])]
        return {file.path: state for file, state in zip(files, loaded) if state is not None}

    def _load(self, file: PluginFile, scan: FolderScan, before: Optional[FileState]) -> FileState:
        """The state of a file that loads.

        Raises:
            FileNotFoundError: it has gone since the scan.
            PluginError: it does not load.
            ExecutorUnavailable: no process is available to analyse it in.
        """
        loaded = self._loader.load(file, scan)
        needed = [
            self._loader.conf_path(file.name),
            *(Path(source.path) for source in loaded.sources),
        ]
        depends = {path: scan.stamps.get(path) for path in needed}
        if before is None or before.good is None or before.good.checksum != loaded.checksum:
            if before and before.good and (waiting := _waiting(before, depends, scan)):
                return waiting
            self._store.save(loaded)
        return FileState(depends, loaded)

    def _failed(
        self,
        file: PluginFile,
        scan: FolderScan,
        before: Optional[FileState],
        fault: PluginError,
        slow: bool,
    ) -> FileState:
        """The state of a file that does not load: the version before it may stay in use.

        Raises:
            ExecutorUnavailable: no process is available to analyse that version in.
        """
        if before is None:
            good = self._store.restore(file.path, self._loader)
        else:  # the settings may be others than when it was loaded
            good = before.good and self._loader.renewed(before.good)
        if before is not None and before.fault:
            since, good_since = before.fault_since, before.good_since
        else:
            since, good_since = time.time(), self._store.kept_since(file.path) or time.time()
        missed: tuple[str, ...] = ()
        conf = self._loader.conf_path(file.name)
        if not (good and good.contents) and self._loader.rejects(conf):
            names = self._store.filters(file.path)
            if fault.file == str(conf):  # so the plugin itself may load
                names = self._loader.filter_names(file, scan) or names
            missed = tuple(dict.fromkeys((file.name, *(names or ()))))
            unknown = _NAMES_UNKNOWN if names is None else ""
            problem = f"{fault.message}; until then {REJECTS}{unknown}"
            fault = PluginError(problem, fault.file, fault.line)
        # On all that was found: the helper that it lacks may yet come.
        return FileState(scan.stamps, good, fault, since, missed, good_since=good_since, slow=slow)


def _bug(file: PluginFile, error: Exception) -> PluginError:
    """The fault of a file that the daemon cannot cope with."""
    *_, last = traceback.extract_tb(error.__traceback__)
    place = f"{Path(last.filename).name}:{last.lineno}"
    what = one_line(f"{type(error).__name__}: {error}")
    return PluginError(
        f"cannot be looked at, which is a bug of the daemon ({what}, in {place}); report it, and "
        "take the file away until then",
        str(file.path),
    )


def _waiting(state: FileState, paths: Iterable[Path], scan: FolderScan) -> Optional[FileState]:
    """The state to keep while what changed may not be all; None where the change counts."""
    since = state.unsettled_since or time.monotonic()
    late = time.monotonic() > since + _UNSETTLED_AT_MOST
    if late or not any(_just_written(path, scan) for path in paths):
        return None
    return replace(state, unsettled_since=since)


def _just_written(path: Path, scan: FolderScan) -> bool:
    """Whether a file, or the folder that lacks it, has changed so late that it may not be all.

    Asks the disk once more: it may have changed after the scan, and before it was read.
    """
    for changed in (path, path.parent):
        with contextlib.suppress(OSError):
            return scan.started - _SETTLE < changed.stat().st_mtime <= time.time()
    return False


def _log_over(files: Iterable[str]) -> None:
    """Log that files have no mistake any more."""
    for file in files:
        if Path(file).exists():
            _log.info("%(file)s is in order again", {"file": file})
        else:
            _log.info("%(file)s is gone", {"file": file})


def _fields(problem: PluginError) -> dict[str, object]:
    return {"reason": str(problem), "file": problem.file, "line": problem.line}
