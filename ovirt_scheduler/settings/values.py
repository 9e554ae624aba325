"""How the values of a conf file are written, each kind with its reader (contract 6).

A reader takes the text without its quotes and gives the typed value, or raises ValueError.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Optional, Tuple
from urllib.parse import urlsplit

try:
    from configobj.validate import VdtValueError
except ImportError:  # configobj 5.0.6, where it is a module of its own
    from validate import VdtValueError

PYTHON_PATH = "$PYTHONPATH"  # stands for each entry of the variable in plugins_path


_MOST_UNITS = 256  # that one call names (contract 4.2a)

# Listening addresses to which localhost leads.
_LOCALHOST = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::")  # noqa: S104  nothing is bound here


@dataclass(frozen=True)
class Check:
    """One way to write a value; ``words`` say it as part of a sentence."""

    words: str
    read: Callable[[str], object]


def _whole(text: str) -> int:
    return int(_match(r"([0-9]{1,15})", text)[1])


def _seconds(text: str) -> float:
    return float(_match(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?s?", text)[1])


def _minutes(text: str) -> float:
    return float(_match(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)", text)[1])


def _whole_seconds(text: str) -> int:
    return int(_match(r"([0-9]{1,9}) ?s?", text)[1])


_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def _size(text: str) -> int:
    found = _match(r"([0-9]{1,15}) ?(B|KiB|MiB|GiB|)", text)
    return int(found[1]) * _UNITS[found[2]]


_TRUTH = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise ValueError(text)
    return _TRUTH[text.lower()]


def _text(text: str) -> str:
    return _match(r"(?s).+", text)[0]


def _path(text: str) -> Path:
    if not text.startswith("/"):
        raise ValueError(text)
    return Path(text)


def _folders(text: str) -> Tuple[str, ...]:
    folders = tuple(text.split(":"))
    for folder in folders:
        if not folder.startswith("/") and folder.split("/")[0] != PYTHON_PATH:
            raise ValueError(folder)
    return folders


def _subjects(text: str) -> Tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(";"))
    for name in names:
        # A distinguished name holds commas; between plain names one was meant as a separator.
        if not name or ("," in name and "=" not in name):
            raise ValueError(name)
    return names


def _assignments(text: str) -> Dict[str, str]:
    """``key=value;key2=value2``; a value holds no ``;``."""
    pairs = [item.strip().partition("=") for item in text.split(";")]
    found = {key.strip(): value.strip() for key, _, value in pairs}
    if len(found) < len(pairs) or not all(key and equals for key, equals, _ in pairs):
        raise ValueError(text)
    return found


def _names(text: str) -> Tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(";"))
    if not all(names) or not len(names) == len(set(names)) <= _MOST_UNITS:
        raise ValueError(text)
    return names


def _factors(text: str) -> Tuple[Tuple[str, int], ...]:
    """``name=factor;name2=factor2``; a factor that is not said is 1."""
    pairs = [
        _match(r"([^=]+?)(?:\s*=\s*(-?[0-9]{1,10}))?", item.strip()) for item in text.split(";")
    ]
    found = {pair[1]: int(pair[2] or 1) for pair in pairs}
    in_range = all(-(2**31) <= factor < 2**31 for factor in found.values())
    if len(found) < len(pairs) or len(found) > _MOST_UNITS or not in_range:
        raise ValueError(text)
    return tuple(found.items())


def _kinds(text: str) -> Tuple[str, ...]:
    kinds = tuple(kind.strip() for kind in text.split(","))
    if not set(kinds) <= {"filter", "cost_function", "balance"}:
        raise ValueError(text)
    return kinds


def _version(text: str) -> str:
    return _match(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}", text)[0]


def _address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # A last label of digits would be an IPv4 address that is none.
        label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
        _match(rf"(?:{label}\.){{0,30}}(?![0-9]+$){label}", text)
    return text


def _url(text: str) -> str:
    parts = urlsplit(text)
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not safe or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(text)
    parts.port  # noqa: B018 -- raises ValueError where it is no port
    return text.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether a listening address stays on this machine; names but localhost are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_host(address: str) -> str:
    """The host in a URL that leads from this machine to a listening address."""
    if address in _LOCALHOST:
        return "localhost"
    return f"[{address}]" if ":" in address else address


def _match(pattern: str, text: str) -> re.Match[str]:
    found = re.fullmatch(pattern, text)
    if not found:
        raise ValueError(text)
    return found


CHECKS: Dict[str, Check] = {
    "whole": Check("a whole number", _whole),
    "seconds": Check("seconds, such as 30 or 0.5", _seconds),
    "whole_seconds": Check("whole seconds", _whole_seconds),
    "size": Check("bytes, such as 65536 or 64 KiB, MiB, GiB", _size),
    "truth": Check("true or false", _truth),
    "choice": Check("one of", str),
    "text": Check("text", _text),
    "user": Check("the name of a user", _text),
    "path": Check("a path that begins with /", _path),
    "folders": Check("paths that begin with / or $PYTHONPATH, with : between", _folders),
    "subjects": Check("names with ; between", _subjects),
    "minutes": Check("minutes, such as 5 or 0.5", _minutes),
    "assignments": Check("key=value, with ; between", _assignments),
    "names": Check("names, each once, with ; between", _names),
    "factors": Check("names, each once and with an int as =factor, with ; between", _factors),
    "kinds": Check("one or more, with commas between, of", _kinds),
    "version": Check("a version, such as 4.5", _version),
    "address": Check("a host name or an IP address (0.0.0.0 or :: for every interface)", _address),
    "url": Check("an https:// URL without user name or query", _url),
}


def check_functions() -> Dict[str, Callable[..., object]]:
    """The checks as the functions that configobj's validator calls."""
    return {name: _bounded(check) for name, check in CHECKS.items()}


def _bounded(check: Check) -> Callable[..., object]:
    def function(
        text: str, *choices: str, least: Optional[str] = None, most: Optional[str] = None
    ) -> object:
        try:
            value = check.read(text)
        except ValueError as error:
            raise VdtValueError(text) from error
        too_small = least is not None and value < check.read(least)  # type: ignore[operator]
        too_large = most is not None and value > check.read(most)  # type: ignore[operator]
        if too_small or too_large or (check is CHECKS["choice"] and text not in choices):
            raise VdtValueError(text)
        return value

    return function
