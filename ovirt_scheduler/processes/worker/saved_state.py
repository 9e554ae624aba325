"""Restores what a plugin's file often changes when it is loaded.

The functions are bound here, before any plugin could put others in their place.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import locale
import logging
import os
import random
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Collection, Mapping
from typing import Any, Callable, Optional

_LIBC = ctypes.CDLL(None)
_clear_environment, _set_zone = _LIBC.clearenv, _LIBC.tzset
_putenv, _umask = os.putenv, os.umask
_set_locale = functools.partial(locale.setlocale, locale.LC_ALL)  # asks, where nothing is given
_seed, _urandom, _int_of, _tzset = random.seed, os.urandom, int.from_bytes, time.tzset
_SEED_BYTES = 16  # by itself random.seed() asks the kernel for 2,496
_set_wakeup = signal.set_wakeup_fd
_notice_filters = getattr(warnings, "_filters_mutated", lambda: None)


def _start_method() -> Any:
    """The one of multiprocessing, which can be set once; None if that is not loaded."""
    loaded = sys.modules.get("multiprocessing")
    return loaded and loaded.get_start_method(allow_none=True)


def _set_start_method(method: Optional[str]) -> None:
    sys.modules["multiprocessing"].set_start_method(method, force=True)


# What is asked, and set where it has changed.
_SETTINGS: list[tuple[Callable[[], Any], Callable[[Any], object]]] = [
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.getswitchinterval, sys.setswitchinterval),
    (sys.getdlopenflags, sys.setdlopenflags),
    (sys.get_coroutine_origin_tracking_depth, sys.set_coroutine_origin_tracking_depth),
    (sys.get_asyncgen_hooks, lambda hooks: sys.set_asyncgen_hooks(*hooks)),
    (socket.getdefaulttimeout, socket.setdefaulttimeout),
    (threading.stack_size, threading.stack_size),
    (gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable()),
    (gc.get_threshold, lambda threshold: gc.set_threshold(*threshold)),
    (_set_locale, _set_locale),
    (lambda: sys.dont_write_bytecode, functools.partial(setattr, sys, "dont_write_bytecode")),
    (lambda: logging.root.manager.disable, logging.disable),
    (_start_method, _set_start_method),
]
if sys.version_info >= (3, 11):
    _SETTINGS.append((sys.get_int_max_str_digits, sys.set_int_max_str_digits))


# The settings of a logger: level, handlers, filters, whether it propagates and is disabled.
_LoggerSettings = tuple[int, list[logging.Handler], list[Any], bool, bool]


class SavedState:
    """The state to restore, as it is when this is made: before the plugin is first loaded."""

    def __init__(self) -> None:
        self._environ = os.environ, {**vars(os.environ)}
        self._variables: dict[bytes, bytes] = {**vars(os.environ)["_data"]}
        self._mask = _umask(0o022)
        _umask(self._mask)
        self._settings = [(get, put, get()) for get, put in _SETTINGS]
        self._zone = _zone()
        self._lists = [_List(sys, "path"), _List(sys, "argv"), _List(warnings, "filters")]
        self._hooks = [_List(sys, "meta_path"), _List(sys, "path_hooks")]
        self._loggers = {name: _settings(logger) for name, logger in _loggers()}
        names: list[Any] = [logging._levelToName, logging._nameToLevel]  # noqa: SLF001
        self._levels = [(each, {**each}) for each in names]

    def keep_filters(self) -> None:
        """Take the present filters for warnings as those to restore: libraries have made some.

        A plugin that sets the same filters in each call changes nothing.
        """
        self._lists[-1] = _List(warnings, "filters")

    def release(self, new: Collection[str]) -> None:
        """Restore what may hold on to objects of the plugin.

        Args:
            new: names of libraries that were imported meanwhile; their import hooks stay.
        """
        for members in self._lists:
            members.restore(())
        for hooks in self._hooks:
            if hooks.restore(new):
                sys.path_importer_cache.clear()
        _notice_filters()  # also: what was warned of once is warned of again
        asyncio = sys.modules.get("asyncio.events")
        if asyncio is not None:  # it may be loaded at any time; its policy holds an event loop
            vars(asyncio)["_event_loop_policy"] = None
        for names, saved in self._levels:
            if names != saved:
                names.clear()
                names.update(saved)
        for name, logger in _loggers():
            now = _settings(logger)
            before = self._loggers.get(name) or _of_new(logger)
            if now != before:
                level, handlers, filters, logger.propagate, logger.disabled = before
                logger.setLevel(level)
                logger.handlers[:], logger.filters[:] = handlers, filters

    def restore(self) -> None:
        """Restore the rest."""
        _umask(self._mask)
        for get, put, value in self._settings:
            if get() != value:
                put(value)
        self._restore_environment()
        _set_wakeup(-1)
        _seed(_int_of(_urandom(_SEED_BYTES), "little"))

    def _restore_environment(self) -> None:
        os.environ, own = self._environ  # the same object again
        vars(os.environ).update(own)
        own["_data"].clear()
        own["_data"].update(self._variables)
        _clear_environment()  # ``os.putenv`` changes it unseen by ``os.environ``
        for name, value in self._variables.items():
            _putenv(name, value)
        _set_zone()  # another zone may have the same names and offsets, and other rules
        if _zone() != self._zone:
            _tzset()


def _zone() -> tuple[object, ...]:
    return time.timezone, time.altzone, time.daylight, time.tzname


class _List:
    """One of the interpreter's lists, which a plugin may change or replace."""

    def __init__(self, module: Any, name: str) -> None:
        self._module, self._name = module, name
        self._list: list[Any] = getattr(module, name)
        self._members = [*self._list]

    def restore(self, new: Collection[str]) -> bool:
        """Restore the list, except what modules of these names have put there.

        Returns:
            Whether there was anything to do.
        """
        now: list[Any] = getattr(self._module, self._name)
        if now is self._list and now == self._members:
            return False
        added = [
            member
            for member in now
            if member not in self._members and getattr(member, "__module__", None) in new
        ]
        if added:
            self._members = [each for each in now if each in self._members or each in added]
        setattr(self._module, self._name, self._list)
        self._list[:] = self._members
        return True


def _loggers() -> list[tuple[str, logging.Logger]]:
    by_name: Mapping[str, object] = logging.root.manager.loggerDict
    named = [(name, each) for name, each in by_name.items() if isinstance(each, logging.Logger)]
    return [("", logging.root), *named]


def _settings(logger: logging.Logger) -> _LoggerSettings:
    handlers, filters = [*logger.handlers], [*logger.filters]
    return logger.level, handlers, filters, logger.propagate, logger.disabled


def _of_new(logger: logging.Logger) -> _LoggerSettings:
    """The settings that a new logger has; a library's keeps the handler that does nothing."""
    quiet: list[logging.Handler] = [
        handler for handler in logger.handlers if type(handler) is logging.NullHandler
    ]
    return logging.NOTSET, quiet, [], True, False
