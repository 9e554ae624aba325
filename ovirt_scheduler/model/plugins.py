"""What a plugin is: its code, its limits, its user, its properties, and its way to the engine."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional, Union


@dataclass(frozen=True)
class Limits:
    """What one plugin call may use."""

    timeout: float  # seconds of wall clock
    memory: int  # bytes of RLIMIT_DATA above what the process has when the call begins
    cpu: int  # seconds of processor time
    open_files: int
    calls_per_process: int = 1000  # then its process is replaced; 1: a process for each call
    timeout_key: str = ""  # where the timeout is set, for a message: `` (plugin_timeout)``


@dataclass(frozen=True)
class PluginUser:
    """The user of plugins' processes, if that is not the daemon's own user."""

    name: str
    uid: int
    gid: int
    # As they were when the daemon started.
    groups: tuple[int, ...] = field(compare=False)
    home: str = field(compare=False)


@dataclass(frozen=True)
class Module:
    """One source file as the registry holds it: text and compiled, never a module object."""

    name: str
    path: str
    source: bytes
    code: bytes  # marshalled; opened only in a process of a plugin call


@dataclass(frozen=True)
class PluginCode:
    """A plugin with the helper modules it imports, as they were when it last loaded."""

    name: str
    folder: str
    modules: tuple[Module, ...]  # the plugin itself first
    wants_engine: bool = False  # it names plugin.engine_connection
    wants_statistics: bool = False  # those of the hosts and VMs that it is given

    @functools.cached_property
    def version(self) -> str:
        """A digest of all code that the process runs."""
        digest = hashlib.sha256(f"{self.folder}\0{self.name}".encode())
        for module in self.modules:
            digest.update(f"\0{module.name}\0{module.path}\0".encode() + module.code)
        return digest.hexdigest()

    def mentions(self, word: str) -> bool:
        """Whether one of its files has a word, maybe in a comment."""
        pattern = re.compile(rb"\b%s\b" % re.escape(word.encode("utf-8", "replace")))
        return any(pattern.search(module.source) for module in self.modules)


class ProcessKey(NamedTuple):
    """A version of a plugin, and its limits: a process serves calls of one key only."""

    version: str
    memory: int
    cpu: int
    open_files: int
    calls_per_process: int

    @classmethod
    def of(cls, plugin: PluginCode, limits: Limits) -> ProcessKey:
        """The key of a plugin's processes."""
        return cls(
            plugin.version, limits.memory, limits.cpu, limits.open_files, limits.calls_per_process
        )

    @property
    def serves_one_call(self) -> bool:
        """Whether each call gets a process of its own."""
        return self.calls_per_process == 1


class Property(NamedTuple):
    """One custom property of a unit; ``default`` is None if there is none."""

    name: str
    pattern: str  # a regular expression for the whole value, or {low-high}
    default: Optional[str] = None
    checked: bool = True  # False: the pattern is for Java alone, and any value is taken here


class PropertySet(NamedTuple):
    """The custom properties of a unit or a driver."""

    name: str
    properties: tuple[Property, ...]
    text: Optional[str] = None  # as the engine gets it; None: made of the properties


@dataclass(frozen=True)
class Source:
    """One source file as it was read from a folder of plugins."""

    name: str  # of the module
    path: str
    text: bytes


class DeclaredProperties(NamedTuple):
    """The custom properties in a plugin's conf file, as they stand there."""

    file: str  # the conf file
    line: Optional[int]  # of the patterns
    defaults_line: Optional[int]
    name: str  # of the set
    patterns: str
    defaults: str


class Candidate(NamedTuple):
    """A file that may be a plugin, with all that it may import from its folder."""

    source: Source
    folder: str
    neighbours: tuple[Source, ...]
    refused: tuple[tuple[str, str], ...] = ()  # modules there that are not to be run, and why
    declared: Optional[DeclaredProperties] = None  # instead of those that the file itself declares


class EngineAccess(NamedTuple):
    """The values for a plugin's connection to the engine: a token, never the password."""

    url: str  # of the REST API
    ca_file: Optional[str]  # None: the system's authorities
    token: str
    is_fake: bool = False  # it stands in for any engine that a plugin names
    proxy: str = ""  # its URL; empty: the engine is reached without one


def set_proxy(curl: Any, proxy: str) -> None:
    """Have a handle of libcurl use this proxy or, for an empty text, none.

    Without this, libcurl follows ``http_proxy`` and others of the environment: whoever is named
    there would be sent passwords and tokens.
    """
    curl.setopt(curl.PROXY, proxy)
    curl.setopt(curl.NOPROXY, "")  # not the environment's exceptions either
    curl.setopt(curl.NETRC, curl.NETRC_IGNORED)


class NoEngine(NamedTuple):
    """Why a plugin gets no connection to the engine."""

    reason: str
    token: str = ""


Engine = Union[EngineAccess, NoEngine]


NO_ENGINE = NoEngine("scheduler.conf has no [engine] section")


# Where nobody asked the engine for a token, as none seemed to be needed.
NOT_NAMED = NoEngine("neither the plugin's file nor its helpers name engine_connection; import it")
