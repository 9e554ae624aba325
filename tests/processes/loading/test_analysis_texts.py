"""Texts of a plugin's file that no answer could carry: descriptions, names, properties."""

from __future__ import annotations

import pytest


def test_what_xml_cannot_write_is_replaced_in_a_description(analyse):
    """Half of a surrogate pair among it, which no other process could be told."""
    text = (  # Python 3.13 compiles no docstring with half a pair in it
        '__doc__ = "\\ud83d of \\0 the module"\n'
        "from ovirt_scheduler.plugin import Driver\n"
        "def do_balance(hosts, properties): ...\n"
        "class Old:\n"
        "    def do_filter(self, hosts, vm, properties): ...\n"
        '    do_filter.__doc__ = "Half \\ude00 of it"\n'
        "class New(Driver):\n"
        '    topic = "news"\n'
        "    def tell(self): ...\n"
        '    tell.__doc__ = "\\udfff"\n'
    )
    analysis = analyse(text)
    assert [unit.description for unit in analysis.units] == [
        "\ufffd of \ufffd the module",
        "Half \ufffd of it",
    ]
    (driver,) = analysis.drivers
    assert (driver.description, driver.methods[0].help) == ("\ufffd of \ufffd the module", "\ufffd")


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (
            "class Old:\n    properties_validation = 'a=\\ud83d'\n    do_filter = max\n",
            1,
            "Old: properties_validation",
        ),
        (
            "from ovirt_scheduler.plugin import Driver as D\nclass New(D): topic, go = '\\ud83d', lambda self: 1\n",
            2,
            "New: topic",
        ),
    ],
)
def test_what_xml_cannot_write_is_refused_elsewhere(analyse, text, line, what):
    """Callers would get another text than the plugin has."""
    fault = analyse(text).fault
    assert fault.message.startswith(f"{what} has a character that XML cannot write; ")
    assert fault.line == line


@pytest.mark.parametrize("raised", ["Meta('E', (Exception,), {})()", "SystemExit(Loud())"])
def test_an_exception_that_cannot_be_shown_is_the_fault_of_its_file(analyse, raised):
    """Its class and its ``repr`` are the plugin's, and may raise in turn."""
    fault = analyse(
        "class Meta(type):\n"
        "    __name__ = property(lambda found: 1 / 0)\n"
        "class Loud:\n"
        "    def __repr__(self): raise ValueError\n"
        f"raise {raised}\n"
        "def do_filter(hosts, vm, properties): ...\n"
    ).fault
    assert fault.file.endswith("/plugin.py")
    assert fault.message == "loading it raised an exception that cannot be shown; mend the file"
