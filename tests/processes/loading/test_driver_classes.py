"""Which drivers a plugin's file has, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ovirt_scheduler.model.analysis import Analysis, PublishedMethod
from ovirt_scheduler.model.plugins import Candidate, Source

HEAD = "from ovirt_scheduler.plugin import *\n"  # line 1
TWO = """
    def on_timer_invoked(self, hosts, vms, properties): ...
    def on_host_status_changed(self, a, b, c, d, e, f): ...
"""
ABSTRACT = """
import abc
class A(LoadBalancer, abc.ABC):
    @abc.abstractmethod
    def load_balance(self, hosts, vms, properties): ...
"""
SELECTS = "    def candidates(self, hosts, vm, properties): ...\n"


@pytest.fixture
def analyse(executor, tmp_path: Path):
    """Analyses a text after HEAD, beside a helper module."""

    def run(text: str, helper: str = "") -> Analysis:
        sources = [
            Source(name, str(tmp_path / f"{name}.py"), (HEAD + source).encode())
            for name, source in (("plugin", text), ("_helper", helper))
        ]
        return executor.analyse(Candidate(sources[0], str(tmp_path), tuple(sources[1:])))

    return run


def only(analysis):
    assert analysis.fault is None
    (driver,) = analysis.drivers
    return driver


def test_a_driver_is_read_as_its_class_says_it(analyse):
    """Attributes, description, line, and methods with help and signature."""
    driver = only(
        analyse(
            "class Night(Driver):\n"
            '    """What it is\n    for.\n    """\n\n'
            "    name, topic, version, written_for = 'n i', 't', 'v', '4.5'\n"
            "    policies = ['p', 'q']\n"
            "    properties_validation, default_values = 'k=v', 'v'\n"
            "    def when(self, hours, *, days=[1]):\n"
            "        'Help.'\n"
        )
    )
    assert (driver.class_name, driver.name, driver.line) == ("Night", "n i", 2)
    assert driver.description == "What it is\nfor."
    assert (driver.topic, driver.version, driver.written_for) == ("t", "v", "4.5")
    assert (driver.policies, driver.interfaces) == (("p", "q"), ())
    assert (driver.properties, driver.default_values) == ("k=v", "v")
    assert driver.methods == (
        PublishedMethod("when", "Help.", "(hours, days=[1])", ("hours",), ("days",)),
    )


def test_what_is_not_said_has_a_default(analyse):
    """The class's name, the topic of schedulers, the module's description."""
    driver = only(analyse(f"'''Of all.'''\nclass A(HostSelector):\n{SELECTS}"))
    assert (driver.name, driver.topic, driver.description) == ("A", "compute", "")
    assert (driver.version, driver.written_for, driver.policies) == (None, None, ())


@pytest.mark.parametrize(
    ("bases", "body", "interfaces"),
    [
        ("HostSelector", SELECTS, ["HostSelector"]),
        ("HostSelector", SELECTS.replace("candidates", "select_host"), ["HostSelector"]),
        ("Scheduler", "    def load_balance(self, *a): ...\n", None),
        ("Scheduler", "    def load_balance(self, h, v, p=1): ...\n", ["LoadBalancer"]),
        ("Scheduler", "    load_balance = staticmethod(lambda h, v, p: {})\n", ["LoadBalancer"]),
        ("HostStatusChanged, TimerInvokedScheduler", TWO, ["TimerInvokedScheduler", "HostStatusChanged"]),
    ],
)  # fmt: skip
def test_an_interface_counts_where_a_method_of_it_is_defined(analyse, bases, body, interfaces):
    """Names of parameters do not: the arguments come by position."""
    driver = only(analyse(f"class A({bases}):\n{body}"))
    assert list(driver.interfaces) == (interfaces or ["LoadBalancer"])


def test_methods_come_from_drivers_among_the_bases_alone(analyse):
    """Also from a helper module; what a class takes back is not published."""
    helper = "class Base(Driver):\n    def one(self): ...\n    def two(self): ...\n"
    driver = only(
        analyse(
            "from _helper import Base\n"
            "class Other:\n    def other(self): ...\n"
            "class Night(Base, Other, dict):\n    topic = 't'\n    two = None\n    def _a(self): ...",
            helper,
        )
    )
    assert [method.name for method in driver.methods] == ["one"]


def test_a_plain_driver_may_use_the_names_of_the_interfaces(analyse):
    """There they are methods like others."""
    text = "class A(Driver):\n    topic = 't'\n    def load_balance(self, disks): ...\n"
    driver = only(analyse(text))
    assert (driver.interfaces, driver.methods[0].signature) == ((), "(disks)")


def test_bases_and_imported_drivers_do_not_count(analyse):
    """A name with _ is for others to derive from; what is imported is another file's."""
    analysis = analyse(f"from _helper import B\nclass _A(HostSelector):\n{SELECTS}", (
        f"class B(HostSelector):\n{SELECTS}"
    ))  # fmt: skip
    assert (analysis.drivers, analysis.fault) == ((), None)


PROPERTIES = (
    "class A(Driver):\n    topic = 't'\n    def m(self): ...\n"
    "    properties_validation = '{}'\n    default_values: str = '{}'"
)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("class A(Scheduler): ...", 2, "A: defines no method that could be called; define one, or "),
        ("class A(Driver):\n    def m(self): ...", 2, "A: has no topic to publish its methods under"),
        ("class A(Driver):\n    topic = 1\n    def m(self): ...", 2, "A: topic is not a string"),
        (
            f"class A(HostSelector):\n    policies = 'ab'\n{SELECTS}",
            2,
            "A: policies is not a tuple of strings",
        ),
        (
            "class A(HostSelector):\n    def has_any_hosts(self, h, v, p): ...",
            2,
            "A: define candidates or select_host too: the others ask it",
        ),
        (
            "class A(HostSelector):\n    x = 1\n    def candidates(self, hosts): ...",
            4,
            "A: candidates cannot be called with 3 arguments; define candidates(self, hosts, vm, ",
        ),
        (
            "class A(LoadBalancer):\n    load_balance = 7",
            2,
            "A: load_balance is not a method; define load_balance(self, hosts, vms, properties)",
        ),
        (
            "class A(LoadBalancer):\n    async def load_balance(self, h, v, p): ...",
            3,
            "A: load_balance is async; take the async away",
        ),
        (
            f"class A(HostSelector):\n{SELECTS}    def load_balance(self, h, v, p): ...",
            2,
            "A: has load_balance, but is no LoadBalancer; derive it from that too",
        ),
        (
            "class A(Driver):\n    topic = 't'\n    def m(self, **more): ...",
            4,
            "A: m takes **more; its arguments come by name: list them",
        ),
        ("class A(Driver):\n    topic = 't'\n    def m(self, a, /): ...", 4, "A: m takes a, /; "),
        ("class A(Driver):\n    topic = 't'\n    def m(self, *a): ...", 4, "A: m takes *a; "),
        (
            f"class A(HostSelector):\n    def __init__(self, a): ...\n{SELECTS}",
            2,
            "A: cannot be made without arguments; give them defaults",
        ),
        (
            ABSTRACT,
            4,
            "A: is abstract; define what it lacks, or begin its name with _ if it is a base",
        ),
        (PROPERTIES.format("k=[", "v"), 5, "property k: '[': not a regex: "),
        (PROPERTIES.format("k=v", "w"), 6, "property k: as its default 'w' is not allowed"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_driver_is_told_with_its_line(analyse, text, line, message):
    """And what to do."""
    fault = analyse(text).fault
    assert fault.message.startswith(message)
    assert fault.line == line
