"""What the daemon tells about its methods, held to what it does."""

from __future__ import annotations

import re
from xmlrpc.client import ServerProxy

import pytest

ARGUMENTS = {"array": ["a"], "string": "<hosts/>", "struct": {}}
FOUR = {"Discover", "discover", "runCostFunctions", "runFilters", "runLoadBalancing"}


@pytest.fixture(scope="module")
def daemon(start_daemon):
    return start_daemon(settings="ssl = false")


@pytest.mark.parametrize("path", ["/design", "/engine"])
def test_every_method_tells_truthfully_how_it_is_called_and_what_it_gives(daemon, path):
    """Each signature works, and the answer has the type that it says (contract 1.5)."""
    types = {str: "string", list: "array", dict: "struct"}
    with ServerProxy(daemon.url + path) as server:
        names = server.system.listMethods()
        assert set(names) > FOUR
        for name in FOUR | {each for each in names if each.startswith("system.")}:
            told = server.system.methodHelp(name)
            called = re.match(rf"{re.escape(name)}\((.*)\)\n\n\S", told)
            assert called, told
            for parameter in filter(None, called[1].split(", ")):
                assert re.search(rf"^{parameter} \((array|string|struct).*\): \S", told, re.M), told
            for result, *parameters in server.system.methodSignature(name):
                arguments = [ARGUMENTS[parameter] for parameter in parameters]
                if name == "runCostFunctions":
                    arguments[0] = {} if parameters[0] == "struct" else []
                elif name == "runFilters":
                    arguments[0] = []
                elif name == "runLoadBalancing":
                    arguments[0] = "keeps_all"
                    arguments[2] = {"vm": "33333333-3333-3333-3333-333333333333"}
                elif name.startswith("system.method"):
                    arguments = ["discover"]
                if len(arguments) == 4:
                    arguments[2] = "vm-1"
                answer = getattr(server, name)(*arguments)
                assert types[type(answer)] == result, name
