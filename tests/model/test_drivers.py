"""The table of the interfaces' methods, held to the classes that plugins derive from."""

from __future__ import annotations

import inspect

from ovirt_scheduler.model.drivers import INTERFACE_METHODS, INTERFACES
from ovirt_scheduler.plugin import interfaces


def test_the_table_has_every_public_method_of_the_five_interfaces():
    """With the names of its parameters, in their order."""
    parts = [
        part
        for part in interfaces.Scheduler.__mro__
        if issubclass(part, interfaces.Driver) and part is not interfaces.Scheduler
    ]
    defined = {
        name: (part.__name__, tuple(inspect.signature(function).parameters)[1:])
        for part in parts
        for name, function in vars(part).items()
        if inspect.isfunction(function)
    }
    told = {name: (each.interface, each.parameters) for name, each in INTERFACE_METHODS.items()}
    assert told == defined
    assert tuple(base.__name__ for base in interfaces.Scheduler.__bases__) == INTERFACES
