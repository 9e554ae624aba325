"""Finds plugins' files, and makes policy units and drivers from them without importing them.

The same bytes are analysed, run and checksummed. An edit during that time counts at the next scan.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Callable, NamedTuple, Optional, Union

from ovirt_scheduler.catalogue import plugin_files
from ovirt_scheduler.catalogue.driver_units import check_drivers, is_name, make_driver, too_new
from ovirt_scheduler.catalogue.plugin_files import PluginFile, Sources, Stamp
from ovirt_scheduler.errors import PluginError
from ovirt_scheduler.model.analysis import Analysis, FoundDriver, FoundUnit
from ovirt_scheduler.model.drivers import DriverUnit
from ovirt_scheduler.model.plugins import (
    Candidate,
    DeclaredProperties,
    Limits,
    PluginCode,
    PropertySet,
    Source,
)
from ovirt_scheduler.model.units import LONGEST_NAME, Kind, OnFailure, PolicyUnit
from ovirt_scheduler.model.values import properties, spelling
from ovirt_scheduler.settings import plugin_conf
from ovirt_scheduler.settings.conf_file import content
from ovirt_scheduler.settings.table import PluginConf, Settings

# Schedulers that come with the package.
SHIPPED = Path(__file__).resolve().parents[1] / "plugin" / "schedulers"


@dataclass
class FolderScan:
    """The files in the plugins' folders at one moment."""

    folders: tuple[Path, ...]  # all that are scanned, in their order
    # In the order of the folders, then by name.
    files: list[PluginFile] = field(default_factory=list)
    # Of the files, of the folders and of every conf file.
    stamps: dict[Path, Optional[Stamp]] = field(default_factory=dict)
    problems: list[PluginError] = field(default_factory=list)
    # Folders that are there, and cannot be listed or trusted.
    unreadable: list[Path] = field(default_factory=list)
    confs: list[Path] = field(default_factory=list)  # all conf files that plugins may have
    sources: Sources = field(init=False)  # of the files


ConfData = Union[bytes, PluginError, None]  # a plugin's conf file, None if there is none


class PluginText(NamedTuple):
    """The files that a plugin is made from, as they were read; a fault where one cannot be."""

    file: PluginFile
    candidate: Union[Candidate, PluginError]
    conf: ConfData
    unread_conf: bool = False  # one lies beside the plugin, and another place counts

    @property
    def paths(self) -> Iterator[Path]:
        """The plugin's file, and those that it may import."""
        yield self.file.path
        if isinstance(self.candidate, Candidate):
            yield from (Path(source.path) for source in self.candidate.neighbours)


class LoadedPlugin(NamedTuple):
    """A plugin that works, with the data to make it again."""

    name: str
    path: Path
    units: tuple[PolicyUnit, ...]  # without units and drivers it is a helper module
    sources: tuple[Source, ...]  # the plugin first, then the helpers that it imports
    conf: Optional[bytes]  # its conf file, None if there is none
    checksum: str  # empty where its conf file says enabled = false
    drivers: tuple[DriverUnit, ...] = ()
    warnings: tuple[PluginError, ...] = ()  # what is to be looked at

    @property
    def enabled(self) -> bool:
        """Whether its conf file lets it be used."""
        return bool(self.checksum)

    @property
    def can_be_called(self) -> bool:
        """Whether it has units or drivers."""
        return bool(self.units or self.drivers)

    @property
    def filters(self) -> tuple[str, ...]:
        """The names of its filters."""
        return tuple(unit.name for unit in self.units if unit.kind is Kind.FILTER)


class Loader:
    """Scans the folders of ``plugins_path``, and loads the plugins that are there.

    Args:
        settings: where plugins and conf files are, and the limits of calls.
        analyse: analyses one file in a process of its own.
        shipped: the folder of the package's own plugins; all others take precedence. None: no such
            folder.
    """

    def __init__(
        self,
        settings: Settings,
        analyse: Callable[[Candidate], Analysis],
        shipped: Optional[Path] = None,
    ) -> None:
        self._settings = settings
        self._analyse = analyse
        self._shipped = shipped

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders of plugins in their order, that of the package last."""
        shipped = () if self._shipped is None else (self._shipped,)
        return (*self._settings.plugins_path, *shipped)

    def scan(self) -> FolderScan:
        """List the folders; reads no file."""
        scan = FolderScan(self.folders)
        for folder in scan.folders:
            # Before it is listed: a later change gives another stamp.
            scan.stamps[folder] = plugin_files.stamp(folder)
            try:
                files, stamps = plugin_files.listing(folder)
            except FileNotFoundError:
                if folder not in (*self._settings.plugins_path_optional, self._shipped):
                    missing = "there is no such folder; make it, or mend plugins_path"
                    scan.problems.append(PluginError(missing, str(folder)))
            except PluginError as error:
                scan.unreadable.append(folder)
                scan.problems.append(error)
            else:
                scan.files += files
                scan.stamps.update(stamps)
        confs: dict[str, Path] = {}  # by name
        for folder in reversed(self._conf_folders(self._settings.plugins_path)):
            with contextlib.suppress(OSError):  # there need be no such folder
                confs.update((conf.name, conf) for conf in folder.glob("*.conf"))
        scan.confs = sorted(conf for conf in confs.values() if conf != self._settings.file)
        for file in scan.files:
            for folder in () if file.helper else self._conf_folders([file.folder]):
                conf = folder / f"{file.name}.conf"
                scan.stamps[conf] = plugin_files.stamp(conf)
        scan.sources = Sources(scan.files)
        return scan

    def rejects(self, conf: Path) -> bool:
        """Whether a filter that is not loaded accepts no host (contract 4.2).

        Args:
            conf: its conf file, which need not be there.
        """
        default = self._settings.on_failure
        try:
            return plugin_conf.rejects(content(conf, PluginError), conf, default)
        except FileNotFoundError:
            return default is OnFailure.REJECT
        except PluginError:  # nobody knows what it says
            return True

    def filter_names(self, text: PluginText) -> Optional[tuple[str, ...]]:
        """The names of a file's filters, whatever its conf file says; None: it does not load."""
        if isinstance(text.candidate, PluginError):
            return None
        try:
            units = self._analysed(text.candidate)[0].units
        except PluginError:
            return None
        return tuple(unit.name for unit in units if unit.kind is Kind.FILTER)

    def conf_path(self, plugin: Path) -> Path:
        """Where the conf file of a plugin's file is, if there is one."""
        confs = [folder / f"{plugin.stem}.conf" for folder in self._conf_folders([plugin.parent])]
        return next(filter(os.path.lexists, confs), confs[-1])

    def _conf_folders(self, plugin_folders: Sequence[Path]) -> list[Path]:
        """Where conf files of plugins in these folders may be: the first place counts."""
        beside = plugin_folders if self._settings.conf_beside else ()
        return [*beside, self._settings.plugins_conf_path]

    def read(self, file: PluginFile, scan: FolderScan) -> PluginText:
        """Read a plugin's file, what it may import, and its conf file.

        Raises:
            FileNotFoundError: it has gone since the scan.
        """
        candidate: Union[Candidate, PluginError]
        conf: ConfData = None
        conf_path, beside = self.conf_path(file.path), file.path.with_suffix(".conf")
        try:
            candidate = scan.sources.candidate(file)
        except PluginError as fault:
            candidate = fault
        with contextlib.suppress(FileNotFoundError):
            try:
                conf = content(conf_path, PluginError, trusted=True)
            except PluginError as fault:
                conf = fault
        return PluginText(file, candidate, conf, beside != conf_path and beside.exists())

    def load(self, file: PluginFile, scan: FolderScan) -> LoadedPlugin:
        """Read a plugin, and make it. Raises what ``read`` and ``make`` raise."""
        return self.make(self.read(file, scan))

    def make(self, text: PluginText) -> LoadedPlugin:
        """Make a plugin from the text of its files.

        Raises:
            PluginError: it cannot be loaded; where, why and what to do.
        """
        file, candidate, conf_data, unread_conf = text
        if "." in file.name or not file.name.isprintable():
            raise PluginError(
                f"rename {file.path.name!r}: no dot and no control character may be in the name "
                "of a plugin",
                str(file.path.parent),
            )
        if isinstance(conf_data, PluginError):
            raise conf_data
        conf = plugin_conf.parse(conf_data or b"", self.conf_path(file.path))
        if not conf.enabled:
            return LoadedPlugin(file.name, file.path, (), (), conf_data, "")
        if isinstance(candidate, PluginError):
            raise candidate
        candidate = candidate._replace(declared=self._declared(candidate.source, conf))
        analysis, used = self._analysed(candidate)
        checksum = _checksum(used, conf_data)
        code = PluginCode(
            file.name,
            candidate.folder,
            analysis.modules,
            analysis.wants_engine,
            analysis.wants_statistics,
        )
        units = tuple(self._unit(found, code, conf, checksum) for found in analysis.units)
        check_drivers(analysis.drivers, candidate.source.path)
        all_drivers = [self._driver(found, code, conf, checksum) for found in analysis.drivers]
        left_out = {
            driver.name: why for driver in all_drivers if (why := self._why_left_out(driver, conf))
        }
        drivers = tuple(driver for driver in all_drivers if driver.name not in left_out)
        path = str(file.path)
        warnings = (
            *plugin_files.named_like_python(used),
            *_unchecked_properties(units, path),
            *(PluginError(message, path) for message in left_out.values()),
            *_misspelt(candidate.source),
            *([self._unread_conf(file)] if unread_conf else ()),
            *(PluginError(each.message, path, each.line) for each in analysis.doubts),
        )
        return LoadedPlugin(
            file.name, file.path, units, used, conf_data, checksum, drivers, warnings
        )

    def renewed(
        self, plugin: LoadedPlugin, conf_data: ConfData, former_conf: Optional[bytes]
    ) -> LoadedPlugin:
        """A version of a plugin, with all but its properties as its conf file says now.

        Args:
            conf_data: the conf file now.
            former_conf: the one to use if that has a mistake.
        """
        path = self.conf_path(plugin.path)
        try:
            if isinstance(conf_data, PluginError):
                raise conf_data
            conf = plugin_conf.parse(conf_data or b"", path)
        except PluginError:
            conf_data = former_conf
            conf = plugin_conf.parse(conf_data or b"", path)
        if not conf.enabled:
            return LoadedPlugin(plugin.name, plugin.path, (), (), conf_data, "")
        limits, on_failure = self._limits_of(plugin.name, conf), self._on_failure_of(conf)
        return plugin._replace(
            conf=conf_data,
            units=tuple(
                replace(unit, limits=limits, on_failure=on_failure, shadow=conf.shadow)
                for unit in plugin.units
            ),
            drivers=tuple(
                driver._replace(limits=limits)
                for driver in plugin.drivers
                if not self._why_left_out(driver, conf)
            ),
        )

    def _declared(self, source: Source, conf: PluginConf) -> Optional[DeclaredProperties]:
        """The properties in a plugin's conf file; None if it has none."""
        if not conf.custom_properties:
            return None
        path, lines = self.conf_path(Path(source.path)), (conf.properties_line, conf.defaults_line)
        texts = (conf.custom_properties, conf.default_values)
        return DeclaredProperties(str(path), *lines, conf.name, *texts)

    def _analysed(self, candidate: Candidate) -> tuple[Analysis, tuple[Source, ...]]:
        """Analyse a file.

        Returns:
            The analysis, and those of the candidate's files that the plugin consists of.

        Raises:
            PluginError: it has a fault.
        """
        analysis = self._analyse(candidate)
        path, own = candidate.source.path, (candidate.source, *candidate.neighbours)
        fault = analysis.fault
        if fault is not None:
            files = {each.path for each in own}
            if candidate.declared is not None:
                files.add(candidate.declared.file)
            file = fault.file if fault.file in files else path
            others = "".join(f"; {each}" for each in plugin_files.named_like_python(own))
            raise PluginError(f"{fault.message}{others}", file, fault.line)
        used = tuple(Source(module.name, module.path, module.source) for module in analysis.modules)
        used = used or (candidate.source,)  # a helper is not run, and so has no code
        if used[0] != candidate.source or not {*used} <= {*own} or len({*used}) < len(used):
            # It ran in the process that tells: its checksum, and what is kept, are the file's own.
            raise PluginError("its analysis named files that are not its own; remove it", path)
        return analysis, used

    def _unit(
        self, unit: FoundUnit, code: PluginCode, conf: PluginConf, checksum: str
    ) -> PolicyUnit:
        if not is_name(unit.name):
            expected = f"expected at most {LONGEST_NAME} printable characters; rename it"
            problem = f"{unit.name!r:.160} cannot be the name of a unit: {expected}"
            raise PluginError(problem, code.modules[0].path, unit.line)
        return PolicyUnit(
            name=unit.name,
            kind=unit.kind,
            description=unit.description,
            plugin=code,
            checksum=checksum,
            limits=self._limits_of(code.name, conf),
            properties=self._properties(unit, code, conf),
            on_failure=self._on_failure_of(conf),
            class_name=unit.class_name,
            shadow=conf.shadow,
        )

    def _driver(
        self, analysed: FoundDriver, code: PluginCode, conf: PluginConf, checksum: str
    ) -> DriverUnit:
        with self._naming_file(analysed, code, conf):
            driver = make_driver(analysed, code, conf, checksum, self._limits_of(code.name, conf))
        return driver._replace(shipped=Path(code.folder) == self._shipped)

    def _why_left_out(self, driver: DriverUnit, conf: PluginConf) -> str:
        version = self._settings.engine_version
        why = ""
        if too_new(driver, version):
            why = f"it was written for oVirt {driver.written_for}, and engine_version is {version}"
        elif conf.shadow:
            why = "its conf file says shadow = true, which is for policy units alone"
        return why and f"the {driver.label} {driver.name} is left out: {why}"

    def _on_failure_of(self, conf: PluginConf) -> OnFailure:
        return OnFailure.IGNORE if conf.shadow else conf.on_failure or self._settings.on_failure

    def _limits_of(self, plugin: str, conf: PluginConf) -> Limits:
        settings = self._settings
        return Limits(
            timeout=conf.timeout or settings.plugin_timeout,
            memory=conf.memory_limit or settings.memory_limit,
            cpu=settings.cpu_limit,
            open_files=settings.files_limit,
            calls_per_process=conf.calls_per_process or settings.calls_per_process,
            timeout_key=f" (timeout in {plugin}.conf)" if conf.timeout else " (plugin_timeout)",
        )

    def _properties(
        self, unit: FoundUnit, code: PluginCode, conf: PluginConf
    ) -> Optional[PropertySet]:
        """The conf file's properties, or else those that a class unit declares itself."""
        with self._naming_file(unit, code, conf):
            if not conf.custom_properties:
                declared = unit.properties
                if not declared:
                    return None
                return properties.parse_for_java(unit.name, declared, unit.unchecked)
            if unit.kind in conf.kinds:
                return properties.parse(conf.name, conf.custom_properties, conf.default_values)
        return None

    @contextlib.contextmanager
    def _naming_file(
        self, analysed: Union[FoundUnit, FoundDriver], code: PluginCode, conf: PluginConf
    ) -> Iterator[None]:
        """Name the file whose properties are wrong: the conf file, or else the plugin's."""
        path = code.modules[0].path
        try:
            yield
        except PluginError as error:
            if conf.custom_properties:
                conf_path, line = str(self.conf_path(Path(path))), conf.properties_line
                raise PluginError(error.message, conf_path, line) from None
            raise PluginError(error.message, path, analysed.line) from None

    def _unread_conf(self, file: PluginFile) -> PluginError:
        beside, place = file.path.with_suffix(".conf"), self._settings.plugins_conf_path
        return PluginError(f"is not read: move it to {place} (plugins_conf_path)", str(beside))


def _unchecked_properties(units: Sequence[PolicyUnit], path: str) -> list[PluginError]:
    """Once for all units of a class."""
    sets = [unit.properties for unit in units if unit.properties is not None]
    messages = dict.fromkeys(message for each in sets for message in properties.unchecked(each))
    return [PluginError(message, path) for message in messages]


def _misspelt(source: Source) -> Iterator[PluginError]:
    for line, name, meant in spelling.misspelt(source.text, (kind.function for kind in Kind)):
        yield PluginError(f"{name} is never called; did you mean {meant}?", source.path, line)


def _checksum(sources: Sequence[Source], conf: Optional[bytes]) -> str:
    """Over the plugin, its conf file and its helpers by name (contract 2.1, 5.1)."""
    digest = hashlib.sha256(sources[0].text)
    digest.update(conf or b"")
    for source in sorted(sources[1:], key=lambda source: source.name):
        digest.update(source.text)
    return f"sha256:{digest.hexdigest()}"
