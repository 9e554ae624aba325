"""Finds Python 2, and comparisons that can never be true, in a plugin's source; runs nothing."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from typing import Optional

from ovirtsdk4 import types

from ovirt_scheduler.model import manual

Remark = tuple[int, str]  # a line, and what is wrong there

PORT = f"port the file to Python 3 ({manual.page('migrating.md')})"

MODULES = {
    "BaseHTTPServer", "ConfigParser", "Cookie", "HTMLParser", "Queue", "SimpleXMLRPCServer",
    "SocketServer", "StringIO", "__builtin__", "cPickle", "cStringIO", "commands", "cookielib",
    "httplib", "thread", "urllib2", "urlparse", "xmlrpclib",
}  # fmt: skip
# Modules of Python 3 that later versions do not have, with the first of these.
_REMOVED = {
    "_dummy_thread": (3, 9), "dummy_threading": (3, 9),
    "formatter": (3, 10), "parser": (3, 10), "symbol": (3, 10),
    "binhex": (3, 11),
    "asynchat": (3, 12), "asyncore": (3, 12), "distutils": (3, 12), "imp": (3, 12),
    "smtpd": (3, 12),
    "aifc": (3, 13), "audioop": (3, 13), "cgi": (3, 13), "cgitb": (3, 13), "chunk": (3, 13),
    "crypt": (3, 13), "imghdr": (3, 13), "lib2to3": (3, 13), "mailcap": (3, 13),
    "msilib": (3, 13), "nis": (3, 13), "nntplib": (3, 13), "ossaudiodev": (3, 13),
    "pipes": (3, 13), "sndhdr": (3, 13), "spwd": (3, 13), "sunau": (3, 13),
    "telnetlib": (3, 13), "uu": (3, 13), "xdrlib": (3, 13),
}  # fmt: skip
NAMES = {
    "apply", "basestring", "buffer", "cmp", "coerce", "execfile", "file", "intern", "long",
    "raw_input", "reduce", "reload", "unichr", "unicode", "xrange",
}  # fmt: skip

_PRINTED_PAIR = (
    "print (a, b) is Python 2: it prints 'a b' now; write print((a, b)), or return the answer"
)
_NO_ANSWER = (
    "print(a, b) prints 'a b', which is no answer; write print((a, b)), or return the answer"
)

# Python 2 that Python 3 cannot parse: print and exec statements, a name after the comma in an
# except or a raise, <>, backquotes, octal and long numbers, ur"".
_STATEMENT = re.compile(
    r"""^\s*(print\s+[^(=\s]|exec\s+["'\w]|raise\s+[\w.]+\s*,|except\s.+,\s*\w+\s*:)"""
    r"""|<>|`|(?<![\w.])(0[0-7]+|\d+[lL])\b|\b[uU][rR]["']"""
)
_TEXT_OR_COMMENT = re.compile(r"""(['"]).*?(?<!\\)\1|#.*""")

_COMPARISONS = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
_STATUSES = frozenset(each.value for each in (*types.HostStatus, *types.VmStatus))


def absence(module: str) -> str:
    """Why this Python has no longer a module that earlier ones had; empty for other modules."""
    if module in MODULES:
        return f"a module of Python 2; {PORT}"
    first = _REMOVED.get(module.partition(".")[0])
    if first is None or sys.version_info < first:
        return ""
    return f"a module that Python {first[0]}.{first[1]} has no more; port the file to that"


def is_statement(line: str, parsers_message: str) -> bool:
    """Whether a line that cannot be parsed is one of Python 2."""
    code = _TEXT_OR_COMMENT.sub(r"\1\1", line)
    return bool(_STATEMENT.search(code)) or "Missing parentheses in call" in parsers_message


def print_to(tree: ast.Module) -> Optional[int]:
    """The line of a ``print >>file``, which Python 3 parses too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.RShift) and _is_print(node.left):
            return node.lineno
    return None


def prints(tree: ast.Module, text: bytes) -> Iterator[Remark]:
    """Find statements of ``print`` that mean something else under Python 3."""
    lines = text.splitlines()
    answers = {*_printed_pairs(tree)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Expr):
            continue
        shown = node.value
        if isinstance(shown, ast.Tuple) and shown.elts:  # print (a), b
            shown = shown.elts[0]
        if isinstance(shown, ast.Call) and _is_print(shown.func):
            several = len(shown.args) > 1 or shown is not node.value
            end = shown.func.end_col_offset or 0
            after = lines[shown.lineno - 1][end : end + 1]
            if several and after.isspace():  # print (a, b), as nobody writes a call
                yield node.lineno, _PRINTED_PAIR
            elif shown in answers:
                yield node.lineno, _NO_ANSWER
        # print; print [a]; print % a
        elif any(map(_is_print, (shown, getattr(shown, "value", 0), getattr(shown, "left", 0)))):
            yield node.lineno, f"this line is Python 2: it prints nothing now; {PORT}"


def _printed_pairs(tree: ast.Module) -> Iterator[ast.Call]:
    """The calls ``print(vm, hosts)`` in a class's balance that has no other answer."""
    for unit in ast.walk(tree):
        for method in unit.body if isinstance(unit, ast.ClassDef) else ():
            if getattr(method, "name", "") != "do_balance":
                continue
            nodes = [*ast.walk(method)]
            prints = [each for each in nodes if isinstance(each, ast.Call) and _is_print(each.func)]
            prints = [each for each in prints if not each.keywords]
            returns = (each.value for each in nodes if isinstance(each, ast.Return))
            if any(map(_is_value, returns)) or any(len(each.args) == 1 for each in prints):
                continue  # that is the answer
            for call in prints:
                if len(call.args) == 2 and not isinstance(
                    call.args[0], (ast.Constant, ast.JoinedStr)
                ):
                    yield call


def _is_value(node: Optional[ast.expr]) -> bool:
    return node is not None and not (isinstance(node, ast.Constant) and node.value is None)


def comparisons(tree: ast.Module) -> Iterator[Remark]:
    """Find comparisons of a status with a text: a status is an enumeration, so never equal."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], _COMPARISONS):
            continue
        sides = (node.left, node.comparators[0])
        status = next((side for side in sides if _is_status(side)), None)
        if status is not None and any(map(_is_status_text, sides)):
            name = ast.unparse(status)
            message = (
                f"{name} is an enumeration, and never equal to a text; write {name}.value "
                "there, or compare with one of ovirtsdk4.types.HostStatus or VmStatus"
            )
            yield node.lineno, message


def _is_print(node: object) -> bool:
    return isinstance(node, ast.Name) and node.id == "print"


def _is_status(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "status"


def _is_status_text(node: ast.AST) -> bool:
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(map(_is_status_text, node.elts))
    return isinstance(node, ast.Constant) and node.value in _STATUSES
