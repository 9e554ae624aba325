"""The part of SDK version 3 that plugins of ovirt-scheduler-proxy use, built on version 4.

::

    API(url, username, password)          ovirtsdk4.Connection
     +-- hosts, vms, ...  _Collection      a service of the system
          +-- list, get   _EngineEntity          ovirtsdk4.types: get_...(), set_...(), words for
               +-- statistics  _Parts       enumerations, links that are followed when asked for

Only the process of a plugin imports it, if the plugin imports ``ovirtsdk`` and no package of that
name is installed (``processes.loading.modules`` has the names of its modules). All other parts of
version 3 raise ``NotHere`` when they are used; its text names the call of version 4.
"""

from __future__ import annotations

import builtins
import contextlib
import enum
import functools
import http.client
import re
from collections.abc import Collection, Iterator
from typing import Any, Callable, NoReturn, Optional
from urllib.parse import urlsplit

import ovirtsdk4

from ovirt_scheduler import plugin
from ovirt_scheduler.model.plugins import NO_ENGINE, EngineAccess

_PATH = "/ovirt-engine/api"  # which callers of version 3 could leave out
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")  # in plugins that ran beside their engine
_TIMEOUT = 20  # seconds for one answer
_IDS = 100  # of one search: the web server before the engine takes 8 kB of URL
_ID_SEARCH = re.compile(r"\s*id\s*=\s*[^\s()=]+(?:\s+or\s+id\s*=\s*[^\s()=]+)*\s*", re.IGNORECASE)
_OR = re.compile(r"\s+or\s+", re.IGNORECASE)

_SDK4 = "ovirt_scheduler.plugin.engine_connection()"  # how the calls of version 4 begin


class NotHere(AttributeError):
    """A part of version 3 that plugins do not get."""


class RequestError(ovirtsdk4.Error):  # type: ignore[misc]  # the SDK has no type hints
    """An answer of the engine that is not what was asked for.

    Attributes:
        status, reason: of HTTP; None where the SDK does not say them.
        detail: the engine's own words, or what the SDK says.
    """

    def __init__(self, error: ovirtsdk4.Error) -> None:
        self.status: Optional[int] = error.code
        self.reason = http.client.responses.get(self.status) if self.status else None
        fault = error.fault
        parts = () if fault is None else filter(None, (fault.reason, fault.detail))
        self.detail = ": ".join(parts) or str(error)
        begin = f"HTTP {self.status} {self.reason or ''}".rstrip() + ": " if self.status else ""
        super().__init__(f"{begin}{self.detail}", self.status, fault)


@contextlib.contextmanager
def _errors_of_version_3() -> Iterator[None]:
    """Raise the SDK's errors as version 3 does."""
    try:
        yield
    except (ovirtsdk4.ConnectionError, RequestError):
        raise
    except ovirtsdk4.TimeoutError as error:
        raise ovirtsdk4.ConnectionError(str(error)) from None
    except ovirtsdk4.Error as error:
        raise RequestError(error) from error


class API:
    """The engine's REST API, with the daemon's login if it is the engine of ``[engine]``.

    Args:
        url: of the engine; its path may be missing.
        username, password: used only if scheduler.conf has no ``[engine]`` section.
        ca_file, insecure: likewise; all others are ignored.

    Raises:
        EngineUnavailable: scheduler.conf names another engine, or its engine gives no answer.
        RequestError, ovirtsdk4.ConnectionError: the engine does not let this user in, or does not
            answer.
    """

    def __init__(
        self,
        url: str,
        username: Optional[str] = None,
        password: Optional[str] = None,
        *,
        ca_file: Optional[str] = None,
        insecure: bool = False,
        **_others: object,
    ) -> None:
        engine = plugin.provided()
        if engine == NO_ENGINE:
            self._connection = ovirtsdk4.Connection(
                url=_whole(url),
                username=username,
                password=password,
                ca_file=ca_file,
                insecure=insecure,
                timeout=_TIMEOUT,
            )
            _name_status(self._connection)
            with _errors_of_version_3():
                self._connection.test(raise_exception=True)
            return
        if isinstance(engine, EngineAccess) and not (
            engine.is_fake or _same_engine(url, engine.url)
        ):
            raise plugin.EngineUnavailable(
                f"API(url={url!r:.100}) is another engine than that of [engine] in scheduler.conf, "
                f"{engine.url}: write that one here, or ovirt_scheduler.plugin.engine_connection()"
            )
        self._connection = plugin.engine_connection()
        _name_status(self._connection)

    def disconnect(self) -> None:
        """Close the connection to the engine."""
        self._connection.close()

    def test(self, throw_exception: bool = False) -> bool:
        """Whether the engine answers; with ``throw_exception``, raise what is wrong."""
        with _errors_of_version_3():
            return bool(self._connection.test(raise_exception=throw_exception))

    def __getattr__(self, name: str) -> _Collection:
        _refuse_private(name)
        system = self._connection.system_service()
        service = getattr(system, f"{name}_service", None)
        if service is None or not hasattr(service(), "list"):
            raise NotHere(
                f"API.{name} of SDK 3 is not here; with SDK 4: a service of "
                f"{_SDK4}.system_service()"
            )
        return _Collection(self._connection, name, service())


class _Collection:
    """Entities of the engine, such as ``api.hosts``."""

    def __init__(self, connection: Any, name: str, service: Any) -> None:
        self._connection = connection
        self._name = name
        self._service = service

    def list(
        self,
        query: Optional[str] = None,
        max: Optional[int] = None,  # noqa: A002  as version 3 calls it
    ) -> builtins.list[_EngineEntity]:
        """The entities that a search finds, in the engine's search language.

        A search for many ids is sent in pieces.
        """
        entities: builtins.list[Any] = []
        for search in _pieces(query):
            remaining = None if max is None else max - len(entities)
            if entities and remaining == 0:
                break
            with _errors_of_version_3():
                entities += self._service.list(search=search, max=remaining)
        return [_EngineEntity(self._connection, each) for each in entities]

    def get(self, name: Optional[str] = None, id: Optional[str] = None) -> Optional[_EngineEntity]:  # noqa: A002
        """The entity of that id, or of that name; None if there is none."""
        if id:
            with _errors_of_version_3():
                try:
                    return _EngineEntity(self._connection, self._service.service(id).get())
                except ovirtsdk4.NotFoundError:
                    return None
        if not name:
            raise TypeError(f"{self._name}.get: say id= or name=")
        return next((each for each in self.list(f"name={name}") if each.name == name), None)

    def __getattr__(self, name: str) -> NoReturn:
        _refuse_private(name)
        raise NotHere(
            f"{self._name}.{name} of SDK 3 is not here; with SDK 4: "
            f"{_SDK4}.system_service().{self._name}_service().{name}(...)"
        )


class _EngineEntity:
    """One of the engine's entities, with its attributes and their getters and setters."""

    def __init__(self, connection: Any, entity: Any) -> None:
        self.__dict__.update(_connection=connection, _entity=entity)

    def __getattr__(self, name: str) -> Any:
        _refuse_private(name)
        for prefix, access in (("get_", getattr), ("set_", setattr)):
            attribute = name[len(prefix) :]
            if name.startswith(prefix) and self._has(attribute):
                return functools.partial(access, self, attribute)
        if not self._has(name):
            kind = type(self._entity).__name__
            instead = _call(self._connection, self._entity, name) or f"see ovirtsdk4.types.{kind}"
            raise NotHere(f"{kind}.{name} of SDK 3 is not here; with SDK 4: {instead}")
        value = self._shown(name, getattr(self._entity, name.rstrip("_")))
        self.__dict__[name] = value  # asked for again, it is the same object
        return value

    def _has(self, name: str) -> bool:
        """Whether the entity has an attribute; version 3 put a ``_`` behind Python's keywords."""
        return hasattr(type(self._entity), name.rstrip("_"))

    def _shown(self, name: str, value: Any) -> Any:
        if isinstance(value, enum.Enum):
            return _StatusWord(value.value) if name == "status" else value.value
        if isinstance(value, list):
            return _Parts(self._connection, name, value)
        if isinstance(value, ovirtsdk4.Struct):
            return _EngineEntity(self._connection, value)
        return value


class _StatusWord(str):
    """A status: its word is the ``state``."""

    def get_state(self) -> str:
        return str(self)

    state = property(get_state)


class _Parts:
    """A list in an entity: ``values.value``, or a link such as ``statistics``."""

    def __init__(self, connection: Any, name: str, listed: Any) -> None:
        self._connection = connection
        self._name = name
        self._listed = listed
        self._all: Optional[list[Any]] = None

    def list(self) -> builtins.list[Any]:
        """All parts of the list; the engine is asked if there is only a link."""
        if self._all is None:
            listed = self._listed
            if not listed and getattr(listed, "href", None):
                with _errors_of_version_3():
                    listed = self._connection.follow_link(listed)
            self._all = [
                _EngineEntity(self._connection, part)
                if isinstance(part, ovirtsdk4.Struct)
                else part
                for part in listed
            ]
        return self._all

    def get(self, name: Optional[str] = None, id: Optional[str] = None) -> Optional[_EngineEntity]:  # noqa: A002
        """The part of that name, or of that id; None if there is none."""
        for entity in self.list():
            if (entity.id == id) if id is not None else (entity.name == name):
                return entity  # type: ignore[no-any-return]
        return None

    def __iter__(self) -> Iterator[Any]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.list())

    def __getitem__(self, place: int) -> Any:
        return self.list()[place]

    def __getattr__(self, name: str) -> Any:
        _refuse_private(name)
        plain = name[len("get_") :] if name.startswith("get_") else name
        if self._name not in (f"{plain}s", f"{plain[:-1]}ies"):
            instead = _call(self._connection, self._listed, name) or "it is a list"
            raise NotHere(f"{self._name}.{name} of SDK 3 is not here; with SDK 4: {instead}")
        return self.list() if plain == name else self.list


def _refuse_private(name: str) -> None:
    """Raise for a name that Python itself looks for: it is no attribute of the engine's."""
    if name.startswith("_"):
        raise AttributeError(name)


def _call(connection: Any, entity: Any, name: str) -> Optional[str]:
    """The call of version 4 for a method of version 3; None if there is none."""
    href = getattr(entity, "href", None) or ""
    path = href[len(_PATH) + 1 :] if href.startswith(_PATH) else ""
    call = "remove" if name == "delete" else name
    if not path or not callable(getattr(connection.service(path), call, None)):
        return None
    return f"{_SDK4}.service({path!r}).{call}(...)"


def _whole(url: str) -> str:
    """A URL with the path that version 4 needs."""
    parts = urlsplit(url)
    return url if parts.path.startswith(_PATH) else f"{parts.scheme}://{parts.netloc}{_PATH}"


def _same_engine(one: str, other: str) -> bool:
    """Whether a URL names the machine of the other, or this one; the port does not count."""
    name, others = ((urlsplit(url).hostname or "").lower() for url in (one, other))
    return name == others or name in _THIS_MACHINE


def _pieces(query: Optional[str]) -> builtins.list[Optional[str]]:
    """A search in pieces, none of which has too many ids."""
    terms = _OR.split(query.strip()) if query and _ID_SEARCH.fullmatch(query) else []
    if len(terms) <= _IDS:
        return [query]
    return [" or ".join(terms[first : first + _IDS]) for first in range(0, len(terms), _IDS)]


def _name_status(connection: ovirtsdk4.Connection) -> None:
    """Have a connection say the HTTP status of an answer that is no XML, as the SDK does not."""
    check = connection.check_xml_content_type

    def check_and_name(response: Any) -> None:
        try:
            check(response)
        except ovirtsdk4.Error as error:
            raise ovirtsdk4.Error(str(error), response.code) from None

    connection.check_xml_content_type = check_and_name


class _NoObject(type):
    """The type of a name of version 3 that is not here.

    A plugin may import it, or name it behind ``except``; using it raises ``NotHere``.
    """

    _instead: str

    def __call__(cls, *_: object, **__: object) -> NoReturn:
        raise NotHere(cls._instead)

    def __getattr__(cls, name: str) -> NoReturn:
        _refuse_private(name)
        raise NotHere(cls._instead)


def absent_names(module: str, submodules: Collection[str] = ()) -> Callable[[str], type]:
    """The ``__getattr__`` of a module of version 3, for the names that are not in it."""
    own = module.rpartition(".")[2]

    def absent(name: str) -> type:
        _refuse_private(name)
        if name in submodules:  # the import system then imports it
            raise AttributeError(name)
        instead = {
            "params": f"ovirtsdk4.types.{'Vm' if name == 'VM' else name}",
            "errors": "ovirtsdk4.Error, or a class of it",
        }.get(own, _SDK4)
        text = f"{own}.{name} of SDK 3 is not here; with SDK 4: {instead}"
        return _NoObject(name, (Exception,), {"__module__": module, "_instead": text})

    return absent
