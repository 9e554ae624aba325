"""Keeps the catalogue of policy units and drivers up to date with the plugins' folders.

A scan of the folders shows which files have changed; only those are loaded again. A change that
does not load leaves the version before it in use, also across a restart. Readers take the
whole catalogue at once, so one request never sees half a change (contract 4.6).
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import (
    Callable,
    Optional,
)

from ovirt_scheduler.catalogue import changes
from ovirt_scheduler.catalogue.files import PluginFile, Stamps
from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import FolderScan, LoadedPlugin, Loader
from ovirt_scheduler.catalogue.snapshot import Catalogue, Key, Outdated
from ovirt_scheduler.errors import ExecutorUnavailable, PluginError
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.plugins import Limits, PluginCode
from ovirt_scheduler.model.units import Kind, OnFailure, PolicyUnit

_log = logging.getLogger(__name__)

_LOADS_AT_ONCE = 4
_REFRESH_EVERY = 1.0  # seconds between refreshes by the run calls
_RETRY_EVERY = 30.0  # seconds: what did not load may have lacked memory, or have been killed
_WAIT_FOR_REFRESH = 1.0  # seconds from its start that run calls wait for a refresh

# An edit passes through an empty file, or through none where an editor moves the old one away
# first. What takes units away counts only when it has stood for so many seconds.
_SETTLE = 0.5
_SETTLE_AT_MOST = 2.0  # seconds that a refresh waits for that, should it go on

_REJECTS = "its filter accepts no host (on_failure = reject)"

Claim = tuple[str, str]  # what one plugin alone may have: a kind, "driver" or "topic"; a name


@dataclass(frozen=True)
class _State:
    """The state of one plugin's file: its last good version, and what is wrong with it now."""

    depends: Stamps  # of the files that its loading depended on
    good: Optional[LoadedPlugin]
    fault: Optional[PluginError] = None
    fault_since: float = 0.0  # seconds since 1970
    missed: tuple[str, ...] = ()  # filters that should be there, and accept no host as they are not
    unsettled: bool = False  # its file has just gone, or lost units: scan again soon
    made_at: float = field(default_factory=time.monotonic)
    good_since: float = 0.0  # seconds since 1970

    def stale(self, scan: FolderScan) -> bool:
        if self.fault is not None and time.monotonic() > self.made_at + _RETRY_EVERY:
            return True
        return self.unsettled or any(
            scan.stamps.get(path) != stamp for path, stamp in self.depends.items()
        )


class Registry:
    """Holds the catalogue, and keeps it up with the folders. Safe to use from many threads.

    Args:
        loader: finds and loads the plugins.
        store: keeps the last good version of each over a restart.
        use: called with the plugins that there are, when they have changed.
        keep: called with what happens to a file, for the history.
    """

    def __init__(
        self,
        loader: Loader,
        store: LastGood,
        use: Callable[[Sequence[tuple[PluginCode, Limits]]], None] = lambda _: None,
        keep: changes.KeepEvent = lambda _: None,
    ) -> None:
        self._loader = loader
        self._stopped = False
        self._renewed: Optional[Loader] = None  # the loader from the next scan on
        self._store = store
        self._use = use
        self._keep = keep
        self.catalogue = Catalogue()  # what there was at the latest refresh
        self._states: dict[Path, _State] = {}
        self._orphaned: dict[Path, _State] = {}  # conf files without a plugin
        self._refreshing = threading.Lock()
        self._lock = threading.Lock()
        self._background: Optional[threading.Thread] = None
        self._wait_until = 0.0  # until when run calls wait for it, on the monotonic clock
        self._refresh_at = 0.0  # on the monotonic clock
        self._refreshed_at = 0.0  # when the last ``refresh`` began, on the same clock

    def renew(self, loader: Loader) -> None:
        """Load everything anew with another loader, at the next refresh; waits for nobody.

        What does not load then leaves the version before it in use, as an edit does.
        """
        with self._lock:
            self._renewed = loader
            self._refresh_at = 0.0

    def stop(self) -> None:
        """Take no further scan in: its loads are about to be cut off. The catalogue stays."""
        self._stopped = True

    def refresh(self) -> Catalogue:
        """Load what has changed, and again what did not load before; waits for all of it.

        Many callers at once share one refresh that begins after they asked.

        Raises:
            ExecutorUnavailable: no process can be had to analyse a plugin in.
        """
        asked = time.monotonic()
        with self._refreshing:
            if self._refreshed_at > asked:
                return self.catalogue
            began = time.monotonic()
            self._update(retry_faults=True)
            give_up = time.monotonic() + _SETTLE_AT_MOST
            while self._unsettled() and time.monotonic() < give_up:
                time.sleep(_SETTLE / 5)
                self._update()
            self._refreshed_at = began
        return self.catalogue

    def current(self) -> Catalogue:
        """The catalogue, at most a second old; a slow import makes it older, not the call slow."""
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
        try:
            with self._refreshing:
                self._update()
        except ExecutorUnavailable as error:
            _log.error(
                "no plugin can be loaded now: %(reason)s; what was loaded stays",
                {"reason": str(error)},
            )
        except Exception:  # noqa: BLE001  nobody else would tell
            _log.exception("the plugins' folders could not be looked at; what was loaded stays")
        with self._lock:
            self._refresh_at = time.monotonic() + (_SETTLE if self._unsettled() else _REFRESH_EVERY)

    def _unsettled(self) -> bool:
        return any(state.unsettled for state in self._states.values())

    def _take_renewed(self) -> None:
        """Use the loader that ``renew`` has put there."""
        with self._lock:
            loader, self._renewed = self._renewed, None
        if loader is not None:
            self._loader = loader
            self._states = {
                path: replace(state, unsettled=True)
                for path, state in self._states.items()
                if path.parent in loader.folders
            }
            self._orphaned = {}

    def _update(self, retry_faults: bool = False) -> None:
        self._take_renewed()
        scan = self._loader.scan()
        self._store.catch_up()
        before = self._states
        states: dict[Path, _State] = {}
        due: list[PluginFile] = []
        for file in scan.files:
            if file.helper:
                continue
            state = before.get(file.path)
            if state is None or state.stale(scan) or (retry_faults and state.fault):
                due.append(file)
            else:
                states[file.path] = state
        states.update(self._load_all(due, scan))
        if self._stopped:
            return
        for path, state in before.items():
            if path in states:
                continue
            if path.parent in scan.unreadable:
                states[path] = state  # it may well be there still
            elif _just_written(path.parent, scan):
                states[path] = replace(state, unsettled=True)
            else:
                alone = self._loader.conf_path(path.stem) in scan.orphaned
                self._store.drop(path, state.good.filters if alone and state.good else ())
        orphaned = self._orphaned_confs(scan)
        # A folder that cannot be listed keeps its rank, and its plugins the names they have.
        order = sorted(states, key=lambda path: (scan.folders.index(path.parent), path.name))
        states = {path: states[path] for path in order}
        catalogue = _catalogue(states, orphaned, scan.problems)
        changes.log(
            {path: state.good for path, state in before.items()},
            {path: state.good for path, state in states.items()},
            self.catalogue,
            catalogue,
            self._keep,
        )
        self._states, self._orphaned, self.catalogue = states, orphaned, catalogue
        if due or before.keys() != states.keys():
            self._use(catalogue.plugins)

    def _orphaned_confs(self, scan: FolderScan) -> dict[Path, _State]:
        """The conf files whose plugin is gone: it may have had a filter that then rejects."""
        if scan.unreadable:
            return self._orphaned
        orphaned: dict[Path, _State] = {}
        for conf in scan.orphaned:
            state = self._orphaned.get(conf)
            if state is None or state.stale(scan):
                plugins = [folder / f"{conf.stem}.py" for folder in scan.folders]
                names = itertools.chain([conf.stem], *map(self._store.filters, plugins))
                state = _State(_stamps(scan, [conf]), None)
                if self._loader.rejects(conf):
                    fault = PluginError(
                        f"{conf.stem}.py is in no folder of plugins_path; {_REJECTS}; put the "
                        "plugin back, or take this file away",
                        str(conf),
                    )
                    state = replace(state, fault=fault, missed=tuple(dict.fromkeys(names)))
            orphaned[conf] = state
        there = {file.name for file in scan.files}
        for conf in self._orphaned.keys() - orphaned.keys():
            if conf.stem not in there:
                for folder in scan.folders:
                    self._store.drop(folder / f"{conf.stem}.py")
        return orphaned

    def _load_all(self, files: Sequence[PluginFile], scan: FolderScan) -> dict[Path, _State]:
        """Load some files at a time, so that one whose import hangs does not hold up the others."""

        def load(file: PluginFile) -> Optional[_State]:
            return self._load(file, scan, self._states.get(file.path))

        try:
            with ThreadPoolExecutor(_LOADS_AT_ONCE, "load") as pool:
                loaded = list(pool.map(load, files))
        except RuntimeError:  # no thread is to be had
            loaded = [load(file) for file in files]
        return {file.path: state for file, state in zip(files, loaded) if state is not None}

    def _load(
        self, file: PluginFile, scan: FolderScan, before: Optional[_State]
    ) -> Optional[_State]:
        conf = self._loader.conf_path(file.name)
        try:
            loaded = self._loader.load(file, scan)
        except FileNotFoundError:  # since the scan
            return before
        except PluginError as fault:
            good = before.good if before else self._store.restore(file.path, self._loader)
            since = before.fault_since if before and before.fault else time.time()
            # Folders too: the helper that it lacks may yet come.
            depends = _stamps(scan, [conf, file.path, scan.all_in(file.folder)])
            if not changes.holds(good) and self._loader.rejects(conf):
                missed = tuple(dict.fromkeys((file.name, *self._store.filters(file.path))))
                fault = PluginError(
                    f"{fault.message}; until then {_REJECTS}", fault.file, fault.line
                )
                return _State(depends, good, fault, since, missed)
            loaded_at = self._good_since(file, good, before)
            return _State(depends, good, fault, since, good_since=loaded_at)
        depends = _stamps(scan, [conf, *(Path(source.path) for source in loaded.sources)])
        good = before.good if before else None
        lost = good is not None and _claims(good).keys() - _claims(loaded).keys()
        if good is not None and lost and _just_written(file.path, scan):
            loaded_at = self._good_since(file, good, before)
            return _State(depends, good, unsettled=True, good_since=loaded_at)
        if good is None or good.checksum != loaded.checksum:
            self._store.save(loaded)
        return _State(depends, loaded, good_since=self._good_since(file, loaded, before))

    def _good_since(
        self, file: PluginFile, good: Optional[LoadedPlugin], before: Optional[_State]
    ) -> float:
        former = before.good if before else None
        if before and former and good and former.checksum == good.checksum:
            return before.good_since
        return self._store.kept_since(file.path) or time.time()


def _catalogue(
    states: Mapping[Path, _State],
    orphaned: Mapping[Path, _State],
    problems: Iterable[PluginError],
) -> Catalogue:
    units: list[PolicyUnit] = []
    drivers: dict[str, DriverUnit] = {}
    topics: dict[str, DriverUnit] = {}
    faults: list[PluginError] = list(problems)
    warnings: list[PluginError] = []
    missed: dict[str, str] = {}
    not_loaded: dict[str, str] = {}
    outdated = {
        str(path): Outdated(
            state.good_since,
            state.fault_since,
            _place_and_message(path, state.fault),
            _kept(state.fault, state.good),
        )
        for path, state in states.items()
        if state.fault is not None and changes.holds(state.good)
    }
    owners: dict[Claim, str] = dict(_reserved(states))  # who has what, in words
    for path, state in (*states.items(), *orphaned.items()):
        if state.fault is not None:
            fault = outdated[str(path)].fault if str(path) in outdated else state.fault
            faults.append(fault)
            missed.update(dict.fromkeys(state.missed, str(fault)))
            if path in states:
                not_loaded.setdefault(path.stem, _why_not_loaded(path, fault))
        if state.good is None:
            continue
        claims = _unit_claims(state.good)
        taken = _taken(claims, owners)
        if taken:
            faults.append(PluginError(taken, str(path)))
            rejecting = [u for u in state.good.units if u.on_failure is OnFailure.REJECT]
            names = [unit.name for unit in rejecting if unit.kind is Kind.FILTER]
            missed.update(dict.fromkeys(names, f"{faults[-1]}; {_REJECTS}"))
            why = _why_not_loaded(path, faults[-1])
            not_loaded.update((unit.name, why) for unit in state.good.units)
            continue
        warnings += state.good.warnings
        units += state.good.units
        owners.update(dict.fromkeys(claims, str(path)))
        for driver in state.good.drivers:
            if driver.shipped and driver.name in drivers:
                continue
            claims = _driver_claims(driver)
            taken = _taken(claims, owners)
            if taken:  # it alone is left out (contract 7.2)
                problem = f"the {driver.words} {driver.name} is left out: {taken}"
                faults.append(PluginError(problem, str(path), driver.line))
                continue
            owners.update(dict.fromkeys(claims, f"{driver.class_name} in {path}"))
            drivers[driver.name] = driver
            if driver.topic is not None:
                topics.setdefault(driver.topic, driver)
    return Catalogue(
        _by_key(units, False), tuple(faults), drivers, topics, tuple(warnings),
        tuple(_unused(states)), missed, not_loaded, outdated, _by_key(units, True),
    )  # fmt: skip


def _by_key(units: Sequence[PolicyUnit], shadow: bool) -> dict[Key, PolicyUnit]:
    return {(unit.kind, unit.name): unit for unit in units if unit.shadow is shadow}


def _why_not_loaded(path: Path, fault: PluginError) -> str:
    """Why a unit is not there, for whoever asks for it: the fault in its plugin's file."""
    return f"its file {path.name} does not load: {_place_and_message(path, fault)}"


def _place_and_message(path: Path, fault: PluginError) -> str:
    """Files are named without their folders, which are no caller's business."""
    other = Path(fault.file).name if fault.file and fault.file != str(path) else ""
    line = f"line {fault.line}" if fault.line else ""
    where = ", ".join(filter(None, (other, line)))
    return f"{where}{': ' if where else ''}{fault.message}"


def _reserved(states: Mapping[Path, _State]) -> Iterator[tuple[Claim, str]]:
    """The names of drivers that come with the package and are called by the daemon alone."""
    for state in states.values():
        for driver in () if state.good is None else state.good.drivers:
            if driver.only_ours:
                yield ("driver", driver.name), "the daemon's own driver"


def _unused(states: Mapping[Path, _State]) -> Iterator[Path]:
    """Files with nothing to call that no plugin imports, and that are not named as helpers."""
    plugins = {path: state.good for path, state in states.items() if state.good is not None}
    called = {path: good for path, good in plugins.items() if good.units or good.drivers}
    imported = {Path(source.path) for good in called.values() for source in good.sources}
    for path, good in plugins.items():
        if good.enabled and path not in imported and not path.name.startswith("_"):
            yield path


def _taken(claims: Mapping[Claim, str], owners: Mapping[Claim, str]) -> str:
    """Who has one of these already, and what to do; empty where nobody has."""
    return next((f"{owners[each]} {claims[each]}" for each in claims if each in owners), "")


def _claims(plugin: LoadedPlugin) -> dict[Claim, str]:
    """What no other plugin may have, with the words that say so after the one that has it."""
    claims = _unit_claims(plugin)
    for driver in plugin.drivers:
        claims.update(_driver_claims(driver))
    return claims


def _unit_claims(plugin: LoadedPlugin) -> dict[Claim, str]:
    return {
        (unit.kind.value, unit.name): f"has a {unit.kind.words} {unit.name} already; "
        "rename one of them"
        for unit in plugin.units
    }


def _driver_claims(driver: DriverUnit) -> dict[Claim, str]:
    """A driver's name and topic; a driver that comes with the package gives way."""
    if driver.shipped:
        return {}
    claims = {("driver", driver.name): "has that name already; set another name in one of them"}
    if driver.topic is not None:
        claims["topic", driver.topic] = (
            f"has the topic {driver.topic} already; set another topic in one of them"
        )
    return claims


def _kept(fault: PluginError, good: Optional[LoadedPlugin]) -> PluginError:
    """The fault, with a note that the last good version stays in use, where there is one."""
    if not changes.holds(good) or good is None:
        return fault
    message = f"{fault.message}; the last version that loaded stays in use ({good.checksum:.19})"
    return PluginError(message, fault.file, fault.line)


def _just_written(path: Path, scan: FolderScan) -> bool:
    """Whether a file or a folder has changed so late that the change may not be all.

    Asks the disk once more: it may have changed after the scan, and before it was read.
    """
    try:
        return scan.started - _SETTLE < path.stat().st_mtime <= time.time()
    except OSError:
        return False


def _stamps(scan: FolderScan, paths: Iterable[Path]) -> Stamps:
    return {path: scan.stamps.get(path) for path in paths}
