"""Describes the drivers of a plugin's file from their classes, in the process of an analysis."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Optional

from ovirt_scheduler.model.analysis import FoundDriver, PublishedMethod
from ovirt_scheduler.model.drivers import INTERFACE_METHODS, INTERFACES
from ovirt_scheduler.model.values.text import NOT_IN_XML, count_of, shortened, writable
from ovirt_scheduler.plugin import interfaces

_UNWRITABLE = "has a character that XML cannot write; remove it, or write it as an escape"

_SHOWN_DEFAULT = 40  # characters


class Misdefined(Exception):
    """A plugin's definition that cannot be used: in which line, why and what to do."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


def description_of(*described: object) -> str:
    """The first docstring of these objects, with U+FFFD for characters that XML cannot write."""
    return writable(next(filter(None, map(inspect.getdoc, described)), ""))


def text_of(owner: type, attribute: str, line: int) -> Optional[str]:
    """The text of a class's attribute; None if it has none.

    Raises:
        Misdefined: the value is no text, or cannot be written in XML.
    """
    value = getattr(owner, attribute, None)
    if value is not None and not isinstance(value, str):
        raise Misdefined(line, f"{owner.__name__}: {attribute} is not a string")
    if value is not None and NOT_IN_XML.search(value):
        raise Misdefined(line, f"{owner.__name__}: {attribute} {_UNWRITABLE}")
    return value


def is_driver(candidate: type) -> bool:
    """Whether a class is a driver to be loaded; a name with ``_`` is a base for others."""
    return issubclass(candidate, interfaces.Driver) and not candidate.__name__.startswith("_")


def line_of(function: object, path: str, otherwise: int = 1) -> int:
    """The line where a file defines a function; ``otherwise`` if it is of another file."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return code.co_firstlineno if code is not None and code.co_filename == path else otherwise


def read(driver_class: type, description: str, path: str, line: int) -> FoundDriver:
    """Read a driver's class: its name, topic, interfaces, methods and properties.

    Args:
        description: used if the class has no docstring of its own.
        path: the plugin's file.
        line: of the class.

    Raises:
        Misdefined: it cannot be loaded like this.
    """
    reader = _ClassReader(driver_class, path, line)
    defined = reader.interfaces()
    methods = tuple(reader.methods(defined))
    text = functools.partial(text_of, driver_class, line=line)
    topic, docstring = text("topic"), driver_class.__doc__
    reader.check_whole(defined, topic, methods)
    return FoundDriver(
        class_name=driver_class.__name__,
        line=line,
        description=writable(inspect.cleandoc(docstring)) if docstring else description,
        name=text("name") or driver_class.__name__,
        topic=topic,
        interfaces=defined,
        methods=methods,
        policies=reader.policies(),
        version=text("version"),
        written_for=text("written_for"),
        properties=text("properties_validation") or "",
        default_values=text("default_values") or "",
    )


class _ClassReader:
    def __init__(self, driver_class: type, path: str, line: int) -> None:
        self._class = driver_class
        self._path = path
        self._own_line = line
        self._is_scheduler = issubclass(driver_class, interfaces.SchedulerPart)

    def _wrong(self, message: str, line: Optional[int] = None) -> Misdefined:
        return Misdefined(line or self._own_line, f"{self._class.__name__}: {message}")

    def policies(self) -> tuple[str, ...]:
        words = getattr(self._class, "policies", None)
        if not isinstance(words, (tuple, list)) or not all(isinstance(each, str) for each in words):
            raise self._wrong("policies is not a tuple of strings")
        return tuple(words)

    def interfaces(self) -> tuple[str, ...]:
        """The names of the interfaces of which the class defines a method."""
        own = {
            name: method.interface
            for name, method in INTERFACE_METHODS.items()
            if self._of_a_scheduler(name)
            and getattr(self._class, name) is not getattr(interfaces.Scheduler, name)
        }
        if "HostSelector" in own.values() and not {"candidates", "select_host"} & own.keys():
            raise self._wrong("define candidates or select_host too: the others ask it")
        for name, interface in own.items():
            if not issubclass(self._class, getattr(interfaces, interface)):
                raise self._wrong(f"has {name}, but is no {interface}; derive it from that too")
        return tuple(name for name in INTERFACES if name in own.values())

    def _of_a_scheduler(self, name: str) -> bool:
        """Whether the class is a scheduler, and the name that of a method of its interfaces."""
        return self._is_scheduler and name in INTERFACE_METHODS and hasattr(self._class, name)

    def methods(self, defined: tuple[str, ...]) -> Iterator[PublishedMethod]:
        """The interface methods that the class defines, then its own, sorted by name.

        Methods of a base are its own if the base is a driver, too.
        """
        for name, method in INTERFACE_METHODS.items():
            if method.interface in defined:
                yield self._interface_method(name, method.parameters)
        drivers = [each for each in self._class.__mro__ if issubclass(each, interfaces.Driver)]
        names = {name for each in drivers for name in vars(each) if not name.startswith("_")}
        for name in sorted(names):
            if self._is_method(name) and not self._of_a_scheduler(name):
                yield self._own_method(name)

    def _is_method(self, name: str) -> bool:
        own = inspect.getattr_static(self._class, name)
        function = own.__func__ if isinstance(own, (classmethod, staticmethod)) else own
        return inspect.isroutine(function) and callable(function)

    def _parameters(self, name: str) -> list[inspect.Parameter]:
        """The parameters of a method, without ``self`` or ``cls``."""
        function = getattr(self._class, name)
        if inspect.iscoroutinefunction(inspect.unwrap(function)):
            raise self._wrong(f"{name} is async; take the async away", self._line(name))
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except ValueError:  # a built-in that does not tell
            raise self._wrong(f"{name} does not tell its arguments; define it with def") from None
        own = inspect.getattr_static(self._class, name)
        return parameters if isinstance(own, (classmethod, staticmethod)) else parameters[1:]

    def _interface_method(self, name: str, parameters: tuple[str, ...]) -> PublishedMethod:
        definition = f"define {name}({', '.join(('self', *parameters))})"
        if not self._is_method(name):
            raise self._wrong(f"{name} is not a method; {definition}")
        try:
            inspect.Signature(self._parameters(name)).bind(*parameters)
        except TypeError:
            count = count_of(len(parameters), "argument")
            message = f"{name} cannot be called with {count}; {definition}"
            raise self._wrong(message, self._line(name)) from None
        required = tuple(each for each in parameters if each != "properties")
        optional = tuple(each for each in parameters if each == "properties")
        shown = ", ".join((*required, *(f"{each}={{}}" for each in optional)))
        shown_help = description_of(getattr(self._class, name))
        return PublishedMethod(name, shown_help, f"({shown})", required, optional)

    def _own_method(self, name: str) -> PublishedMethod:
        required, optional, shown = [], [], []
        for parameter in self._parameters(name):
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                empty = parameter.empty
                unnamed = str(parameter.replace(annotation=empty, default=empty))
                unnamed += ", /" if parameter.kind is parameter.POSITIONAL_ONLY else ""
                message = f"{name} takes {unnamed}; its arguments come by name: list them"
                raise self._wrong(message, self._line(name))
            if parameter.default is parameter.empty:
                required.append(parameter.name)
                shown.append(parameter.name)
            else:
                optional.append(parameter.name)
                shown.append(f"{parameter.name}={_shown(parameter.default)}")
        shown_help = description_of(getattr(self._class, name))
        return PublishedMethod(
            name, shown_help, f"({', '.join(shown)})", tuple(required), tuple(optional)
        )

    def _line(self, name: str) -> int:
        return line_of(getattr(self._class, name), self._path, self._own_line)

    def check_whole(
        self, defined: tuple[str, ...], topic: Optional[str], methods: tuple[PublishedMethod, ...]
    ) -> None:
        """Check that there is a method to call, that the class can be made, and that it is no base.

        Raises:
            Misdefined: nothing of it could ever be called.
        """
        base = "or begin its name with _ if it is a base for others"
        if inspect.isabstract(self._class):
            raise self._wrong(f"is abstract; define what it lacks, {base}")
        if not methods:
            raise self._wrong(f"defines no method that could be called; define one, {base}")
        if topic is None and not defined and "topic" not in vars(self._class):
            raise self._wrong(f"has no topic to publish its methods under; set topic, {base}")
        try:
            inspect.signature(self._class).bind()
        except TypeError:
            raise self._wrong("cannot be made without arguments; give them defaults") from None
        except ValueError:  # a built-in base that does not tell
            return


def _shown(default: object) -> str:
    return shortened(repr(default), _SHOWN_DEFAULT)
