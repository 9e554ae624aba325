"""Keeps the catalogue of policy units and drivers up to date with the plugins' folders.

A scan of the folders shows which files have changed. A plugin is loaded again if its own text, its
conf file's, or that of a file that it may import is another. A change that does not load leaves
the version before it in use, also across a restart. Readers take the whole catalogue at once, so
one request never sees half a change.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Callable, Optional

from ovirt_scheduler.catalogue.catalogue import Catalogue, FileInUse
from ovirt_scheduler.catalogue.edits import LOOK_TIMES, Edits, LookTimes, Reading
from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import FolderScan, Loader
from ovirt_scheduler.catalogue.plugin_states import REJECTS, FileState, bug, merged
from ovirt_scheduler.errors import ExecutorUnavailable, PluginError
from ovirt_scheduler.log.trouble import Trouble
from ovirt_scheduler.model.plugins import Limits, PluginCode

_log = logging.getLogger(__name__)

_LOADS_AT_ONCE = 4

_NAMES_UNKNOWN = (
    "; if it has filters that are classes, their names are not known, and calls of them are left "
    "out: the state folder has no version of it that loads"
)

_SETTLE_AT_MOST = 2.0  # seconds that a refresh waits for edits to count


class Registry:
    """Holds the catalogue, and updates it from the folders. Safe to use from many threads.

    Args:
        loader: finds and loads the plugins.
        store: keeps the last good version of each over a restart.
        use: called with all plugins, when they have changed.
        keep: called with each event of a file, for the history.
        times: of the looks at the folders.

    Attributes:
        trouble: the failures of looks that nobody waits for.
    """

    def __init__(
        self,
        loader: Loader,
        store: LastGood,
        use: Optional[Callable[[Sequence[tuple[PluginCode, Limits]]], None]] = None,
        keep: Callable[[Mapping[str, object]], None] = lambda _: None,
        times: LookTimes = LOOK_TIMES,
    ) -> None:
        self.times = times
        self._loader = loader
        self.trouble = Trouble("looking at the plugins' folders")
        self._renewed = loader  # the loader from the next look on
        self._store = store
        self._use = use
        self._keep = keep
        self.catalogue = Catalogue()  # what there was at the latest look
        self._states: dict[Path, FileState] = {}
        self._orphans: Mapping[Path, FileState] = {}  # by the conf file
        self._edits = Edits()
        self._refreshing = threading.Lock()
        self._refreshed_at = 0.0  # when the last ``refresh`` began, on the monotonic clock
        self._watching: Optional[threading.Thread] = None
        self._stopped = threading.Event()

    def renew(self, loader: Loader) -> None:
        """Load everything anew with another loader, at the next look; does not wait.

        If a file does not load then, the version before it stays in use, as after an edit.
        """
        self._renewed = loader

    def watch(self) -> None:
        """Look at the folders from now on, in a thread, which is started unless it runs.

        Raises:
            RuntimeError: no thread can be started.
        """
        if self._watching is None:
            thread = threading.Thread(target=self._look_on, name="plugins", daemon=True)
            thread.start()
            self._watching = thread

    def stop(self) -> None:
        """Accept no further scan: its loads are about to be cut off. The catalogue stays."""
        self._stopped.set()

    def refresh(self) -> Catalogue:
        """Load the files that have changed or did not load before, and wait for that.

        A file that took long to fail is only loaded again if it has changed, or after a while.
        Many callers at once share one refresh that begins after they asked.

        Raises:
            ExecutorUnavailable: no process is available to analyse a plugin in.
        """
        called_at = time.monotonic()
        with self._refreshing:
            if self._refreshed_at > called_at:
                return self.catalogue
            began = time.monotonic()
            self._update(retry_faults=True)
            give_up = time.monotonic() + _SETTLE_AT_MOST
            while self._edits.pending and time.monotonic() < give_up:
                time.sleep(self.times.settle)
                self._update()
            self._refreshed_at = began
        return self.catalogue

    def current(self) -> Catalogue:
        """The catalogue, at most half a second old; a slow import makes it older."""
        return self.catalogue

    def _look_on(self) -> None:
        """Look at the folders until the end."""
        pause, lacks = self.times.every, ""
        while not self._stopped.wait(pause):
            pause, former, lacks = self.times.every, lacks, ""
            try:
                with self._refreshing:
                    self._update()
                self.trouble.clear()
            except ExecutorUnavailable as error:
                lacks = str(error)
                if lacks != former:
                    _log.error(
                        "no plugin can be loaded now: %(reason)s; what was loaded stays",
                        {"reason": lacks},
                    )
            except Exception as error:  # noqa: BLE001  what was loaded stays
                pause = max(pause, self.trouble.note(error))

    def _use_renewed(self) -> None:
        """Use the loader that ``renew`` has put there."""
        if self._loader is not self._renewed:
            self._loader = self._renewed
            self._states = {
                path: replace(state, text=None)
                for path, state in self._states.items()
                if path.parent in self._loader.folders
            }

    def _update(self, retry_faults: bool = False) -> None:
        self._use_renewed()
        scan = self._loader.scan()
        self._edits.begin(scan, self.times)
        self._store.catch_up()
        before = self._states
        states, readings = self._read_changed(scan, retry_faults)
        states.update(self._load_all(readings))
        if self._stopped.is_set():
            return
        for path in before.keys() - states.keys():
            if path.parent in scan.unreadable or not self._edits.gone(path):
                states[path] = before[path]  # its file may still be there, or come back
        # A folder that cannot be listed keeps its rank, and its plugins the names they have.
        order = sorted(states, key=lambda path: (scan.folders.index(path.parent), path.name))
        states = {path: states[path] for path in order}
        self._orphans = self._orphaned(states, scan)
        catalogue = merged(states, self._orphans, scan.problems)
        self._log_changes(states, catalogue)
        self._states, self.catalogue = states, catalogue
        if not scan.unreadable:
            gone = (path for conf in scan.confs for path in _places(conf, scan))
            self._store.keep_only(states, [path for path in gone if path not in states])
        self._edits.end()
        if self._use is not None and (readings or before.keys() != states.keys()):
            self._use(catalogue.plugins)

    def _read_changed(
        self, scan: FolderScan, retry_faults: bool
    ) -> tuple[dict[Path, FileState], list[Reading]]:
        """Read what may have changed.

        Returns:
            The states of files that stay in use meanwhile; and the texts that are to be loaded.
        """
        states: dict[Path, FileState] = {}
        readings: list[Reading] = []
        for file in scan.files:
            if file.helper:
                continue
            state = self._states.get(file.path)
            if state is not None:
                states[file.path] = state
            retries = state is not None and state.retries(retry_faults, self.times.retry)
            conf = self._loader.conf_path(file.path)
            if not (retries or self._edits.concern(file, state, conf)):
                continue
            reading = self._edits.read(file, state, self._loader)
            if reading is None:
                continue
            same = state is not None and state.text == reading.text
            if state is not None and same and not retries:
                states[file.path] = replace(state, steady=reading.steady)
            elif same or self._edits.count(file.path, reading.steady):
                readings.append(reading)
        return states, readings

    def _log_changes(self, states: Mapping[Path, FileState], now: Catalogue) -> None:
        """Log what is another than before, and keep it for the history."""
        logged = set(map(str, (*self.catalogue.faults, *self.catalogue.warnings)))
        old_files, new_files = self.catalogue.files, now.files
        for fault in now.faults:
            if str(fault) not in logged:
                if fault.file in new_files and fault.file not in now.outdated:
                    _log.error("part of a plugin cannot be loaded: %(reason)s", _fields(fault))
                else:
                    _log.error("a plugin cannot be loaded: %(reason)s", _fields(fault))
                place = {"file": fault.file, "line": fault.line, "message": fault.message}
                fields = {key: each for key, each in place.items() if each}
                self._keep({"event": "not loaded", **fields})
        for warning in now.warnings:
            if str(warning) not in logged:
                _log.warning("a plugin should be looked at: %(reason)s", _fields(warning))
        over = {each.file for each in self.catalogue.faults} - {each.file for each in now.faults}
        for path in sorted({*old_files, *new_files}):
            old, new = old_files.get(path), new_files.get(path)
            if old == new:
                continue
            over.discard(path)  # that line says it
            if new is not None:
                self._log_use(path, old, new, path in now.outdated)
                continue
            state = states.get(Path(path))
            how = "is gone" if state is None else "has nothing to call any more"
            if state is not None and state.good is not None and state.good.can_be_called:
                how = "is left out"
            _log.info("unloaded %(file)s: it %(reason)s", {"file": path, "reason": how})
            self._keep({"event": "unloaded", "file": path})
        _log_over(sorted(filter(None, over)))

    def _log_use(
        self, path: str, old: Optional[FileInUse], new: FileInUse, is_outdated: bool
    ) -> None:
        """Log that a version of a file is in use from now on."""
        fields = {"file": path, "kind": ", ".join(new.contents), "checksum": new.checksum}
        if is_outdated:
            _log.info("the former %(file)s is in use (%(kind)s), %(checksum)s", fields)
        else:
            _log.info("loaded %(file)s (%(kind)s), %(checksum)s", fields)
        event = {"event": "loaded", "file": path, "checksum": new.checksum}
        if old is not None:
            event = {**event, "event": "edited", "former": old.checksum}
        if old is None or old.checksum != new.checksum:
            self._keep(event)

    def _orphaned(
        self, states: Mapping[Path, FileState], scan: FolderScan
    ) -> dict[Path, FileState]:
        """The conf files whose plugin is gone, and had or may have had a filter that rejects."""
        there = {path.stem for path in states}
        # What has just come back counts in a moment; until then it is as gone as before.
        there |= {file.name for file in scan.files} - {conf.stem for conf in self._orphans}
        orphaned: dict[Path, FileState] = {}
        for conf in scan.confs:
            if conf.stem not in there and self._loader.rejects(conf):
                plugins = _places(conf, scan)
                names = [each for each in map(self._store.filters, plugins) if each is not None]
                fault = PluginError(
                    f"{conf.stem}.py is found in no folder of plugins_path; {REJECTS}"
                    f"{'' if names else _NAMES_UNKNOWN}; put the plugin back, or take this file "
                    "away",
                    str(conf),
                )
                missed = dict.fromkeys(itertools.chain([conf.stem], *names))
                orphaned[conf] = FileState(None, True, None, fault=fault, missed=tuple(missed))
        return orphaned

    def _load_all(self, readings: Sequence[Reading]) -> dict[Path, FileState]:
        """Load several plugins at a time, so that one that hangs does not hold up the others.

        Raises:
            ExecutorUnavailable: no process is available to analyse a file in.
        """

        def load(reading: Reading) -> FileState:
            before = self._states.get(reading.text.file.path)
            began = time.monotonic()
            try:
                return self._load(reading, before)
            except ExecutorUnavailable:
                raise
            except PluginError as error:
                fault = error
            except Exception as error:  # noqa: BLE001  one file's is not that of all
                fault = bug(reading.text.file.path, error)
            return self._failed(reading, before, fault, time.monotonic() - began > self.times.slow)

        loads: list[Future[FileState]] = []
        # Where no further thread can be started, the other files are loaded here, after those.
        with contextlib.suppress(RuntimeError), ThreadPoolExecutor(_LOADS_AT_ONCE, "load") as pool:
            for reading in readings:
                loads.append(pool.submit(load, reading))  # noqa: PERF401  one of these may fail
        loaded = [*(load.result() for load in loads), *map(load, readings[len(loads) :])]
        return {reading.text.file.path: state for reading, state in zip(readings, loaded)}

    def _load(self, reading: Reading, before: Optional[FileState]) -> FileState:
        """The state of a file that loads.

        Raises:
            PluginError: it does not load.
            ExecutorUnavailable: no process is available to analyse it in.
        """
        loaded = self._loader.make(reading.text)
        latest = before.latest if before else None
        if loaded.enabled:
            if latest is None or latest.checksum != loaded.checksum:
                self._store.save(loaded)
            latest = loaded
        return FileState(*reading, good=loaded, latest=latest)

    def _failed(
        self, reading: Reading, before: Optional[FileState], fault: PluginError, slow: bool
    ) -> FileState:
        """The state of a file that does not load: the latest version that did stays in use.

        Raises:
            ExecutorUnavailable: no process is available to analyse that version in.
        """
        file = reading.text.file
        good, latest = (before.good, before.latest) if before else (None, None)
        # Not once more for a version that did not load either.
        if latest is None and (before is None or (good and not good.enabled)):
            latest = self._store.restore(file.path, self._loader)
        if latest is not None:
            good = self._loader.renewed(latest, reading.text.conf, (good or latest).conf)
        if before is not None and before.fault:
            since, good_since = before.fault_since, before.good_since
        else:
            since, good_since = time.time(), self._store.kept_since(file.path) or time.time()
        missed: tuple[str, ...] = ()
        conf = self._loader.conf_path(file.path)
        if not (good and good.can_be_called) and self._loader.rejects(conf):
            names = self._store.filters(file.path)
            if fault.file == str(conf):  # so the plugin itself may load
                names = self._loader.filter_names(reading.text) or names
            missed = tuple(dict.fromkeys((file.name, *(names or ()))))
            unknown = _NAMES_UNKNOWN if names is None else ""
            problem = f"{fault.message}; until then {REJECTS}{unknown}"
            fault = PluginError(problem, fault.file, fault.line)
        return FileState(
            *reading, good, latest, fault, since, missed, good_since=good_since, slow=slow
        )


def _places(conf: Path, scan: FolderScan) -> list[Path]:
    """Where the plugin of a conf file may be, or have been."""
    return [folder / f"{conf.stem}.py" for folder in scan.folders]


def _log_over(files: Iterable[str]) -> None:
    """Log that files have no mistake any more."""
    for file in files:
        if Path(file).exists():
            _log.info("%(file)s is in order again", {"file": file})
        else:
            _log.info("%(file)s is gone", {"file": file})


def _fields(problem: PluginError) -> dict[str, object]:
    return {"reason": str(problem), "file": problem.file, "line": problem.line}
