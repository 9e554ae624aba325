"""What a plugin's file is found to be, by a process of its own that loads it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ovirt_scheduler.model import manual
from ovirt_scheduler.model.analysis import Analysis
from ovirt_scheduler.model.units import Kind
from ovirt_scheduler.processes.loading import python2
from tests.support.waiting import LONG

GOOD = "def do_filter(hosts, vm, properties): return hosts\n"


def found(analysis: Analysis) -> list:
    assert analysis.fault is None
    return [(unit.name, unit.kind, unit.description, unit.line) for unit in analysis.units]


def test_each_function_of_a_file_is_a_unit_named_as_the_file(analyse):
    """The description is the function's docstring, else the module's (contract 5.2)."""
    text = (
        '"""About all."""\n'
        "def do_filter(hosts, vm, properties):\n"
        '    """About the filter.\n\n    More of it.\n    """\n'
        "def do_score(hosts, vm, properties): ...\n"
        "def do_balance(hosts, properties): ...\n"
    )
    assert found(analyse(text)) == [
        ("plugin", Kind.FILTER, "About the filter.\n\nMore of it.", 2),
        ("plugin", Kind.COST_FUNCTION, "About all.", 7),
        ("plugin", Kind.BALANCE, "About all.", 8),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "def do_filter(h, v, p): ...",
        "def do_filter(hosts, vm, properties, more=1, *rest, **named): ...",
        "def do_filter(*arguments): ...",
        "do_filter = lambda hosts, vm, properties: hosts",
        "from functools import partial\ndo_filter = partial(lambda a, b, c, d: b, 1)",
        "class F:\n    def __call__(self, hosts, vm, properties): ...\ndo_filter = F()",
        "if True:\n    def do_filter(hosts, vm, properties): ...",
        "from other import do_filter",
        "import other\ndo_filter = other.do_filter",
        "from other import keep as do_filter",
        "from functools import lru_cache\n@lru_cache()\ndef do_filter(hosts, vm, properties): ...",
    ],
)
def test_whatever_can_be_called_with_the_arguments_is_a_unit(analyse, text):
    """Names of parameters do not count, and it may come from a helper."""
    other = GOOD + "keep = do_filter\n"
    assert [unit.kind for unit in analyse(text, other=other).units] == [Kind.FILTER]


@pytest.mark.parametrize(
    "text",
    [
        "", "x = 1", "def filter(hosts): ...", "# def do_filter(hosts, vm, properties): ...",
        "print(do_filter)", "raise SystemExit('is never run')",
        "def do_filter(hosts, vm, properties): ...\ndel do_filter", "do_filter = None",
    ],
)  # fmt: skip
def test_a_file_without_a_unit_is_a_helper(analyse, text):
    """Neither units nor a fault; where the name is not there it is not run (contract 5.1)."""
    analysis = analyse(text)
    assert (analysis.units, analysis.fault) == ((), None)


@pytest.mark.parametrize(
    "text", ["from other import *", "import other\nclass plugin(other.Base): pass"]
)
def test_a_file_whose_unit_is_all_inherited_or_imported_is_a_plugin(analyse, text):
    """Though it binds no name of a unit's function itself (contract 5.3)."""
    other = f"{GOOD}class Base:\n    def do_filter(self, hosts_ids, vm_id, args_map): ...\n"
    assert [unit.name for unit in analyse(text, other=other).units] == ["plugin"]


def test_a_class_that_cannot_be_hashed_is_no_mistake(analyse):
    """One of a class of classes that compares them."""
    other = "class Meta(type):\n    def __eq__(self, other): return self is other\n"
    text = f"from other import Meta\nclass Compared(metaclass=Meta): ...\n{GOOD}"
    assert [unit.name for unit in analyse(text, other=other).units] == ["plugin"]


def test_a_class_with_the_methods_is_a_unit_named_as_the_class(analyse):
    """As plugins of the released proxy have them (contract 5.3)."""
    text = (
        "class max_vms:\n"
        '    properties_validation = "count=[0-9]*"\n'
        "    def do_filter(self, hosts_ids, vm_id, args_map):\n"
        '        """shown"""\n'
        "class even:\n"
        "    @staticmethod\n"
        "    def do_balance(hosts_ids, args_map): ...\n"
    )
    analysis = analyse(text)
    assert found(analysis) == [("max_vms", Kind.FILTER, "shown", 3), ("even", Kind.BALANCE, "", 6)]
    assert [(unit.class_name, unit.properties) for unit in analysis.units] == [
        ("max_vms", "count=[0-9]*"),
        ("even", ""),
    ]


def test_a_wrong_property_of_a_class_unit_is_told_on_its_own_line(analyse):
    text = "class unit:\n    def do_filter(self, hosts_ids, vm_id, args_map): ...\n"
    fault = analyse(f"{text}    properties_validation = 'count'\n").fault
    assert (fault.line, fault.message[:15]) == (3, "property 'count")


@pytest.mark.parametrize(
    ("signature", "arguments", "right"),
    [
        ("do_filter(hosts, vm)", 3, "do_filter(hosts, vm, properties)"),
        ("do_score(hosts, vm, properties, weight)", 3, "do_score(hosts, vm, properties)"),
        ("do_balance(hosts, vm, properties)", 2, "do_balance(hosts, properties)"),
    ],
)
def test_a_wrong_signature_is_told_with_the_right_one(analyse, signature, arguments, right):
    """On the line of the function."""
    fault = analyse(f"\ndef {signature}: ...").fault
    assert (Path(fault.file).name, fault.line, fault.message) == (
        "plugin.py",
        2,
        f"{signature} cannot be called with {arguments} arguments; define {right}",
    )


def test_a_method_without_self_is_told_with_self(analyse):
    """In a class unit."""
    fault = analyse("class old:\n    def do_filter(hosts_ids, vm_id, args_map): ...").fault
    assert fault.line == 2
    assert fault.message.endswith("define do_filter(self, hosts_ids, vm_id, args_map)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("do_filter = 7", "do_filter is not a function; define do_filter(hosts, vm, properties)"),
        ("async def do_filter(h, v, p): ...", "do_filter is async; take the async away"),
    ],
)
def test_what_cannot_be_called_plainly_is_no_unit(analyse, text, message):
    """And is told as a fault, since the name says what it should be."""
    fault = analyse(text).fault
    assert (fault.line, fault.message) == (1, message)


def test_a_wrong_function_of_a_helper_is_not_said_to_be_on_a_line_of_the_plugin(analyse):
    """The line would be the helper's."""
    fault = analyse("from other import do_filter", other="\n\n\ndef do_filter(hosts): ...").fault
    assert (Path(fault.file).name, fault.line) == ("plugin.py", 1)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (2, 'def do_filter(hosts, vm, properties):\n    print "x"\n'),
        (2, "def do_filter(hosts, vm, properties):\n    print hosts, vm\n"),
        (3, 'import sys\ndef do_filter(hosts, vm, properties):\n    print >>sys.stderr, "x"\n'),
        (2, 'def do_filter(hosts, vm, properties):\n    if vm: print "%s" % vm\n'),
        (4, "def do_filter(hosts, vm, properties):\n  try: pass\n\n  except Error, e: pass\n"),
        (3, "def do_filter(hosts, vm, properties):\n  try: pass\n  except (A, B), e: pass\n"),
        (1, 'raise ValueError, "x"\ndef do_filter(hosts, vm, properties): pass\n'),
        (1, 'exec "x = 1"\ndef do_filter(hosts, vm, properties): pass\n'),
        (1, "exec code in {}\ndef do_filter(hosts, vm, properties): pass\n"),
        (1, "same = 1 <> 2\ndef do_filter(hosts, vm, properties): pass\n"),
        (1, "text = `1`\ndef do_filter(hosts, vm, properties): pass\n"),
        (1, "mode = 0755\ndef do_filter(hosts, vm, properties): pass\n"),
        (1, "big = 10L\ndef do_filter(hosts, vm, properties): pass\n"),
        (1, 'text = ur"x"\ndef do_filter(hosts, vm, properties): pass\n'),
    ],
)
def test_python_2_source_is_called_that(analyse, line, text):
    """With the line, as it stands there, and what to do (contract 5.5)."""
    fault = analyse(text).fault
    stripped = text.splitlines()[line - 1].strip()
    assert (fault.line, fault.message) == (
        line,
        f"this line is Python 2: {stripped!r}; port the file to Python 3 ({manual.page('migrating.md')})",
    )


def test_the_sdk_of_version_3_is_named(analyse):
    """The module that the old proxy's plugins import; which to take instead is told."""
    fault = analyse(f"from ovirtsdk.utils import parsehelper\n{GOOD}").fault
    assert fault.message.startswith(
        "cannot import ovirtsdk.utils, which is not in the part of SDK 3 that is here; port the file"
    )
    assert fault.message.endswith("with ovirtsdk4")


@pytest.mark.parametrize("module", ["urllib2", "StringIO", "dummy_threading"])
def test_a_module_of_an_earlier_python_is_not_advised_to_be_installed(analyse, module):
    """There is none to install."""
    fault = analyse(f"import {module}\n{GOOD}").fault
    assert (fault.line, fault.message) == (1, f"cannot import {module}, {python2.absence(module)}")


@pytest.mark.parametrize(
    ("text", "line", "begins", "ends"),
    [
        ("def do_filter(:\n    pass\n", 1, "syntax error: ", "'def do_filter(:'; mend this line"),
        ('x = "a`b <> c" +\n' + GOOD, 1, "syntax error: ", "; mend this line"),
        ("\x0c\nx = )\n" + GOOD, 2, "syntax error: unmatched ')'", "in 'x = )'; mend this line"),
        ("if 1:\n\tx = 1\n        y = 2\n", 3, "syntax error: ", "in 'y = 2'; mend this line"),
        ("# coding: klingon\n" + GOOD, None, "syntax error: unknown encoding", "; mend the file"),
        ("do_filter = 1".encode("utf-16"), None, "has null bytes", "save it in UTF-8"),
        (b"do_filter = '\xff'", 1, "syntax error: (unicode error)", "; mend this line"),
    ],
)
def test_other_syntax_errors_are_told_with_their_line(analyse, text, line, begins, ends):
    """Lines are counted as Python does, and a text that looks like Python 2 is a text."""
    fault = analyse(text).fault
    assert (Path(fault.file).name, fault.line) == ("plugin.py", line)
    assert fault.message.startswith(begins)
    assert fault.message.endswith(ends)


@pytest.mark.parametrize(
    ("then", "message"),
    [
        ("time.sleep(0.05); os._exit(3)", "ended its process without an answer (exit status 3)"),
        ("time.sleep(3600)", "closed descriptor 3, which connects its process with the daemon"),
    ],
)
def test_a_file_that_cuts_the_connection_is_told_as_that(
    analyse, executor, monkeypatch, then, message
):
    """Not as killed: whoever reads that looks for a lack of memory."""
    last = LONG if "exit" in then else 0.1
    monkeypatch.setattr(executor._pool, "times", executor._pool.times._replace(last=last))
    fault = analyse(f"import os, time\nos.close(3); {then}\n{GOOD}").fault
    assert fault.message == f"loading it failed: {message}"


def test_a_missing_module_is_told_with_where_it_may_be_put(analyse, tmp_path):
    """Which of the two is right, the administrator knows."""
    fault = analyse(f"\nimport nowhere_at_all\n{GOOD}").fault
    assert fault.line == 2
    assert fault.message.startswith("cannot import nowhere_at_all: install it for the daemon's")
    assert fault.message.endswith(f"or write {tmp_path}/nowhere_at_all.py")


def test_a_folder_that_is_no_package_is_told_with_what_makes_it_one(analyse, tmp_path):
    """Only packages are held, and looked at for who may write in them."""
    (tmp_path / "loose").mkdir()
    fault = analyse(f"import loose\n{GOOD}").fault
    assert fault.message == f"cannot import loose: put an __init__.py into {tmp_path}/loose"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("1 / 0", 1, "loading it raised ZeroDivisionError: division by zero; mend this line"),
        (
            "\n\ndef f():\n    raise ValueError('one\\ntwo')\nf()",
            4,
            "loading it raised ValueError: one two; mend this line",
        ),
        ("raise KeyboardInterrupt", 1, "loading it raised KeyboardInterrupt; mend this line"),
        ("import sys; sys.exit()", 1, "loading it called sys.exit(None); mend this line"),
        ("import sys; sys.exit('no')", 1, "loading it called sys.exit('no'); mend this line"),
        ("raise ModuleNotFoundError('x')", 1,
         "loading it raised ModuleNotFoundError: x; mend this line"),
        ("from os import nonsense", 1, "loading it raised ImportError: cannot import name"),
        ("raise ValueError('\\ud800')", 1, "loading it raised ValueError: \ufffd; mend this line"),
        (
            "class E(Exception):\n    def __str__(self): raise self\nraise E",
            3,
            "loading it raised E; mend this line",
        ),
        ("import os; os._exit(0)", None,
         "loading it failed: ended its process without an answer (exit status 0)"),
        ("import os; os._exit(3)", None,
         "loading it failed: ended its process without an answer (exit status 3)"),
        ("import os; os.kill(os.getpid(), 11)", None, "loading it failed: died by SIGSEGV"),
        ("x = bytearray(1 << 40)", 1, "loading it raised MemoryError; mend this line"),
        (
            "from ovirt_scheduler.processes.loading import driver_classes; raise driver_classes.Misdefined(len, 'x')",
            1,
            "loading it raised Misdefined: x; mend this line",
        ),
    ],
)  # fmt: skip
def test_an_import_that_fails_is_told_on_the_plugins_own_line(analyse, text, line, message):
    """However it fails; the daemon and its other plugins do not notice."""
    fault = analyse(f"{text}\n{GOOD}").fault
    assert (Path(fault.file).name, fault.line) == ("plugin.py", line)
    assert fault.message.startswith(message)
    assert "\n" not in fault.message


@pytest.mark.parametrize("stream", [1, 2])
def test_an_import_that_floods_loads_all_the_same(analyse, stream):
    """What it prints is thrown away."""
    text = f"import os\nfor _ in range(100): os.write({stream}, b'x' * 100_000)\n{GOOD}"
    assert [unit.kind for unit in analyse(text).units] == [Kind.FILTER]


@pytest.mark.long
def test_an_import_that_sleeps_is_killed_and_holds_up_no_other(analyse):
    """In ten seconds, with what to know about it."""
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(analyse, f"import time\ntime.sleep(3600)\n{GOOD}")
        assert [unit.kind for unit in analyse(GOOD).units] == [Kind.FILTER]
        assert not slow.done()
        fault = slow.result(LONG).fault
    assert fault.message.startswith("loading it failed: was killed after 10.")
    assert fault.message.endswith(" s, in <module> (plugin.py:2); its timeout is 10 s")


def test_an_import_leaves_nothing_for_the_next_one(analyse, tmp_path):
    """Each file has a process of its own, in the plugin's folder."""
    text = (
        "import os, sys\n"
        "assert 'mark' not in os.environ and 'mark' not in sys.modules\n"
        f"assert os.getcwd() == sys.path[0] == {str(tmp_path)!r}\n"
        "os.environ['mark'] = '1'\n"
        "sys.modules['mark'] = sys\n"
        "os.chdir('/')\n"
    )
    for _ in range(2):
        assert analyse(text + GOOD).fault is None
