"""What analysis finds in a plugin's file: units, drivers, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_scheduler.model.plugins import Module
from ovirt_scheduler.model.units import Kind


@dataclass(frozen=True)
class FoundUnit:
    """A policy unit that analysis found in a plugin's file."""

    name: str
    kind: Kind
    description: str
    line: int
    class_name: Optional[str] = None  # of a class unit
    properties: str = ""  # its own properties_validation, in the engine's syntax
    unchecked: tuple[str, ...] = ()  # of these, as only Java reads their patterns


@dataclass(frozen=True)
class PublishedMethod:
    """A method of a driver, with the names by which it takes its arguments."""

    name: str
    help: str
    signature: str  # as it is shown: (size, days=7)
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class FoundDriver:
    """A driver that analysis found in a plugin's file, as its class says it."""

    class_name: str
    line: int
    description: str
    name: str
    topic: Optional[str]  # None: it publishes nothing
    interfaces: tuple[str, ...] = ()  # of a scheduler: those that it defines, by their names
    methods: tuple[PublishedMethod, ...] = ()
    policies: tuple[str, ...] = ()
    version: Optional[str] = None
    written_for: Optional[str] = None
    properties: str = ""  # its properties_validation
    default_values: str = ""


@dataclass(frozen=True)
class FileFault:
    """Why a file cannot be loaded."""

    file: str
    line: Optional[int]
    message: str


@dataclass(frozen=True)
class Analysis:
    """What a separate process found in one file: units, drivers and code, or why not.

    A helper module has none of them, and no fault.
    """

    units: tuple[FoundUnit, ...] = ()
    modules: tuple[Module, ...] = ()
    wants_engine: bool = False
    wants_statistics: bool = False
    fault: Optional[FileFault] = None
    drivers: tuple[FoundDriver, ...] = ()
    doubts: tuple[FileFault, ...] = ()  # what loads, and may not have been meant
