"""A topic that is not about VMs: gives back what it is asked for, good and bad."""

import datetime
import math

from ovirtsdk4 import types

from ovirt_scheduler.plugin import Driver


class _Base(Driver):
    """Not a driver of its own: its name begins with _."""

    def inherited(self):
        return "from the base"


class Mixin:
    def mixed_in(self):
        return "not of a driver"


class Values(_Base, Mixin, dict):
    """Values of every type."""

    name = "values of every type"
    topic = "values"
    attribute = "not a method"

    def __init__(self):
        super().__init__()
        self.made = lambda: "not of the class"

    class Nested:
        pass

    @property
    def computed(self):
        return "not a method"

    def echo(self, value, times=1):
        """What it got, in an array if more than once."""
        return value if times == 1 else [value] * times

    @staticmethod
    def static(a, *, b=2):
        return a + b

    @classmethod
    def of_the_class(cls):
        return cls.__name__

    def _private(self):
        return "private"

    def __call__(self):
        return "dunder"

    def good(self):
        return {
            "texts": ("a", "", "\N{SNOWMAN}"),
            "numbers": [0, -(2**31), 2**31 - 1, 1.5],
            "truth": True,
            "bytes": bytearray(b"\0\xff"),
            "date": datetime.datetime(2026, 1, 31, 12, 0, 1),
            "empty": {},
        }

    def bad(self, which):
        endless = []
        endless.append(endless)
        wide = ["x"] * 20
        for _ in range(12):
            wide = [wide] * 20
        return {
            "none": [None],
            "nan": math.nan,
            "infinite": {"at": -math.inf},
            "large": 2**31,
            "set": {1, 2},
            "entity": types.Host(id="h"),
            "key": {1: "x"},
            "half": "\ud800",
            "endless": endless,
            "wide": wide,
            "huge": "x" * (17 << 20),
            "generator": (x for x in ()),
            "raises": None,
        }[which]
