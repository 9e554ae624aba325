"""What the daemon tells about its methods, held to what it does."""

from __future__ import annotations

from xmlrpc.client import ServerProxy

import pytest
from conftest import PLUGINS

ARGUMENTS = {
    "array": ["a"],
    "string": "<hosts/>",
    "struct": {},
}


@pytest.fixture(scope="module")
def daemon(start_daemon):
    return start_daemon(plugins=PLUGINS, settings="ssl = false")


@pytest.mark.parametrize("path", ["/design", "/engine"])
def test_every_method_tells_truthfully_how_it_is_called_and_what_it_gives(daemon, path):
    """Each signature works, and the answer has the type that it says (contract 1.5)."""
    types = {str: "string", list: "array", dict: "struct"}
    with ServerProxy(daemon.url + path) as server:
        names = server.system.listMethods()
        assert {"Discover", "discover", "runCostFunctions", "runFilters", "runLoadBalancing"} < set(
            names
        )
        for name in names:
            assert server.system.methodHelp(name)
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
