"""Finds what a plugin changed in loaded modules, and restores what the package's code needs.

Looking at twenty thousand values counts a reference to each, which copies most of the memory that a
process shares with the zygote. So the zygote notes the names (``note``), and a process only checks
whether each dict was changed: CPython keeps a number for that, the version of PEP 509. If there is
none, the values are compared.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, Optional, Union

# What runs between a plugin's function and the end of its comparison, besides this package.
_NEEDED = (
    "builtins", "ast", "contextlib", "ctypes", "gc", "importlib", "importlib._bootstrap", "io",
    "json", "json.encoder", "linecache", "logging", "math", "os", "re", "resource", "signal",
    "socket", "time", "traceback",
)  # fmt: skip
# What is put back by another way.
_ELSEWHERE = {"os.environ", "time.tzname", "time.timezone", "time.altzone", "time.daylight"}
_PACKAGE = __name__.partition(".")[0]
_definition_of = ctypes.pythonapi.PyModule_GetDef  # null for a module that no C code made
_definition_of.argtypes, _definition_of.restype = [ctypes.py_object], ctypes.c_void_p
# Bound before a plugin could put others in their place.
_zip, _view, _len = zip, memoryview, len
_bytes_at, _size_of = ctypes.string_at, dict.__sizeof__
_WORD = ctypes.sizeof(ctypes.c_void_p)
# Modules that libraries compiled by Cython share: the first one makes them, any one adds to them.
_CYTHON = ("cython_runtime", "_cython_")
# Modules whose classes are looked at, too: entities and connections are made of them.
_SDK = ("ovirtsdk4", "ovirtsdk4.service", "ovirtsdk4.services", "ovirtsdk4.types")
# What Python itself adds to a class: copyreg, and whoever reads its annotations.
_OF_PYTHON = ("__slotnames__", "__annotations__", "__annotations_cache__")


_Versions = Union[bytes, list[list[object]]]


def _version(content: dict[Any, Any]) -> ctypes.c_uint64:
    """The version of a dict, where CPython 3.9 to 3.13 keep it."""
    return ctypes.c_uint64.from_address(id(content) + 3 * _WORD)


def _has_versions() -> bool:
    content: dict[str, object] = {"a": 1}
    version = _version(content)
    seen = [version.value]
    for value in (2, 3):
        content["a"] = value
        seen.append(version.value)
    return len({*seen}) == 3 and version.value == seen[-1]


_HAS_VERSIONS = _has_versions()


class _Globals(NamedTuple):
    """The names of one module or class, with their values."""

    words: str
    names: dict[str, object]
    content: dict[str, object]


class _Entries:
    """The keys and values that a dict has now, to be compared with those that it has later.

    Looking at the values one by one would copy the page of each. This compares the memory that has
    their addresses: the table to which a dict points, in CPython 3.9 to 3.13.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self._kept = [*content.items()]  # so that no other object gets one of their addresses
        content.clear()  # fills the gaps that others have left, as a larger table would
        content.update(self._kept)
        self._table = ctypes.c_size_t.from_address(id(content) + 4 * _WORD)
        (first, _), (_, last) = self._kept[0], self._kept[-1]
        whole = self._whole()
        self._begin = whole.find(id(first).to_bytes(_WORD, sys.byteorder))
        end = whole.rfind(id(last).to_bytes(_WORD, sys.byteorder)) + _WORD
        self._before = whole[self._begin : end]

    def _whole(self) -> bytes:
        self._size = _size_of(self.content)
        return _bytes_at(self._table.value, self._size - dict.__basicsize__)

    def are_there(self) -> bool:
        """Whether the dict surely begins with them."""
        if _size_of(self.content) != self._size:  # so much came and went that its table is another
            self._begin = self._whole().find(self._before)
        if self._begin < 0:
            return False
        return _bytes_at(self._table.value + self._begin, _len(self._before)) == self._before


class LoadedModules:
    """The modules that were loaded when this was made, before a plugin's."""

    def __init__(self) -> None:
        self._modules: dict[str, object] = {}
        self._entries: Optional[_Entries] = None  # of sys.modules; None where there is no version
        self._watched: list[_Globals] = []  # first those that our own code needs, builtins foremost
        self._needed = 0  # how many
        self._numbers: list[ctypes.c_uint64] = []  # the versions of what is watched
        self._seen: _Versions = b""  # the versions when they were last looked at
        self.take_in(self.new())

    def new(self) -> dict[str, object]:
        """The modules that have not been taken in; ``difference`` finds those that are gone."""
        if len(sys.modules) == len(self._modules):
            return {}
        now = sys.modules.items()
        return {name: module for name, module in now if name not in self._modules}

    def put_there(self, new: Mapping[str, object]) -> str:
        """The first of these modules that was not imported but put there; empty if none was.

        A second name of a module that was there before (``__mp_main__``) does not count. A second
        name of the plugin's own module counts, because that module has been forgotten. Compiled
        modules, and modules below a new package, do not count: libraries put them there.
        """
        for name, module in new.items():
            spec = getattr(module, "__spec__", None)
            known = self._modules.values()
            made = module not in known if spec is None else spec.name not in sys.modules
            of_library = name.startswith(_CYTHON) or name.rpartition(".")[0] in new
            if made and not of_library and not _is_compiled(module):
                return name
        return ""

    def take_in(self, new: Mapping[str, object]) -> None:
        """Take these modules, and the present state of the others, as the state to compare with."""
        self._renew()
        for name, module in new.items():
            # sys changes all the time; baseline compares what must stay.
            if isinstance(module, ModuleType) and module is not sys:
                self._watch(name, vars(module))
            if name in _SDK:
                for found in vars(module).values():
                    if isinstance(found, type) and found.__module__ == name:
                        (content,) = gc.get_referents(vars(found))  # of the proxy: the class's dict
                        self._watch(f"{name}.{found.__name__}", content)
        self._seen = self._versions()
        if new or not self._are_all_there():
            self._modules = {**sys.modules}
            self._entries = _Entries(sys.modules) if _HAS_VERSIONS else None

    def _are_all_there(self) -> bool:
        """Whether the modules are surely as they were taken."""
        entries = self._entries
        return entries is not None and sys.modules is entries.content and entries.are_there()

    def _watch(self, words: str, content: dict[str, object]) -> None:
        place = len(self._watched)
        if words in _NEEDED or words.partition(".")[0] == _PACKAGE:
            place = 0 if words == "builtins" else self._needed
            self._needed += 1
        self._watched.insert(place, _Globals(words, {**content}, content))
        if _HAS_VERSIONS:
            self._numbers.insert(place, _version(content))

    def restore_needed(self) -> str:
        """Restore what the package's code needs from here on, before it uses it.

        Returns:
            What had been changed, in a few words.
        """
        changed = ""
        for words, names, content in self._touched(self._needed):  # with nothing of builtins yet
            was = {**content}
            content.update(names)
            changed = changed or _changed(words, names, was)
        return changed

    def difference(self) -> str:
        """The first name that differs in the modules that were there; empty if none does."""
        if not self._are_all_there():
            for name, module in self._modules.items():
                if sys.modules.get(name) is not module:
                    return name
        touched = self._touched()
        for words, names, content in touched:
            changed = _changed(words, names, content)
            if changed:
                return changed
        if touched:
            self._renew()
        return ""

    def _versions(self, most: Optional[int] = None) -> _Versions:
        """The versions of what is watched, 8 bytes each; the values where there are none."""
        if not _HAS_VERSIONS:
            return [[*found.content.values()] for found in self._watched[:most]]
        # In one step, and without a copy of the list: this is done in each call.
        return b"".join(self._numbers if most is None else self._numbers[:most])

    def _touched(self, most: Optional[int] = None) -> list[_Globals]:
        """Those of the first so many that were changed since, even if they were changed back."""
        now = self._versions(most)
        seen = self._seen[: _len(now)]
        if now == seen:
            return []
        pairs = _zip(self._watched, _one_by_one(now), _one_by_one(seen))
        return [found for found, one, other in pairs if one != other]

    def _renew(self) -> None:
        """Take all that is watched as it is now."""
        for _, names, content in self._touched():
            names.clear()
            names.update(content)
        self._seen = self._versions()


def _one_by_one(versions: Any) -> Iterable[object]:
    return _view(versions).cast("Q") if _HAS_VERSIONS else versions


def _changed(words: str, before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """The first changed name that no library changes by itself; empty if there is none."""
    for name, value in now.items():
        if name not in before:
            by_itself = _may_add(words, name, before, value)
        else:
            was = before[name]
            by_itself = was is value or was == value or _may_change(words, name, was)
        if not by_itself and f"{words}.{name}" not in _ELSEWHERE:
            return f"{words}.{name}"
    return next((f"{words}.{name}" for name in before if name not in now), "")


def _may_add(words: str, name: str, before: Mapping[str, object], value: object) -> bool:
    """Whether a library may have a further name: a private one, a module of its package, or one
    that it makes when it is asked for it (PEP 562). In builtins everybody would see it.
    """
    if _is_class(words):
        return name in _OF_PYTHON
    if words != "builtins" and (name.startswith("_") or "__getattr__" in before):
        return True
    if words.startswith(_CYTHON):
        return True
    return sys.modules.get(f"{words}.{name}") is value


def _may_change(words: str, name: str, before: object) -> bool:
    """Whether a library may change a global by itself: from None, or one of its private ones."""
    if _is_class(words):
        return False
    return before is None or (name.startswith("_") and not callable(before))


def _is_class(words: str) -> bool:
    """Whether they name a class of the SDK: it changes none of their attributes by itself."""
    return words not in _SDK and words.rpartition(".")[0] in _SDK


def _is_compiled(module: object) -> bool:
    return isinstance(module, ModuleType) and _definition_of(module) is not None


_known: list[LoadedModules] = []  # one at most; so the names of this module stay as they are


def note() -> None:
    """Note the modules of this process, the zygote, for all processes that are forked from it."""
    _known[:] = [LoadedModules()]


def noted() -> LoadedModules:
    """The modules that the zygote noted; those of this process where it noted none."""
    return _known[0] if _known else LoadedModules()
