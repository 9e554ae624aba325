"""``ovirt-scheduler new``: a plugin to start from, with its conf file and a test that passes."""

from __future__ import annotations

import keyword
import string
from pathlib import Path
from typing import Collection, Dict, Mapping, Tuple

from ovirt_scheduler.errors import BadUsage, NotOverwritten
from ovirt_scheduler.model.units import LONGEST_NAME, Kind

_HEAD = '''\
"""$name: says in its first line what the engine shows for it."""
$imports

def running(host):
    """VMs that run on the host; a document of few words may not tell."""
    return host.summary.active if host.summary else 0
'''

_FUNCTIONS: Mapping[Kind, str] = {
    Kind.FILTER: '''

def do_filter(hosts, vm, properties):
    """Keep the hosts that run at most `most` VMs."""
    most = int(properties.get("most", 20))
    return [host for host in hosts if running(host) <= most]
''',
    Kind.COST_FUNCTION: '''

def do_score(hosts, vm, properties):
    """Cost: the number of VMs beyond `most`; lower is better."""
    most = int(properties.get("most", 20))
    return [(host, max(0, running(host) - most)) for host in hosts]
''',
    Kind.BALANCE: '''

def do_balance(hosts, properties):
    """Move a VM from the fullest host to those that run fewer than `most`."""
    most = int(properties.get("most", 20))
    roomy = [host for host in hosts if running(host) < most]
    fullest = max(hosts, key=running)
    if running(fullest) <= most or not roomy:
        return None
    vms = vms_of(fullest)
    return (vms[0], roomy) if vms else None


def vms_of(host):
    """The host's VMs, asked of the engine: scheduler.conf needs an [engine] section."""
    service = engine_connection().system_service().vms_service()
    return service.list(search=f"host={host.name} and status=up")
''',
}

_CONF = """\
# What the engine asks the administrator for: key=regular expression, or {low-high}.
customProperties = "most={0-1000}"
defaultValues = "20"
# timeout = 5
# on_failure = reject
"""

_TEST_HEAD = '''\
"""Run it with: python3 $test"""

import sys
import unittest
from pathlib import Path

from ovirtsdk4 import types

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import $name

IDLE = types.Host(id="idle", summary=types.VmSummary(active=1))
BUSY = types.Host(id="busy", summary=types.VmSummary(active=30))
VM = types.Vm(id="vm")
PROPERTIES = {"most": "20"}


class $name${suffix}(unittest.TestCase):
'''

_TEST_METHODS: Mapping[Kind, str] = {
    Kind.FILTER: """\
    def test_a_busy_host_is_rejected(self):
        self.assertEqual($name.do_filter([IDLE, BUSY], VM, PROPERTIES), [IDLE])
""",
    Kind.COST_FUNCTION: """\
    def test_a_busy_host_costs_more(self):
        costs = $name.do_score([IDLE, BUSY], VM, PROPERTIES)
        self.assertEqual(costs, [(IDLE, 0), (BUSY, 10)])
""",
    Kind.BALANCE: """\
    def test_a_vm_of_a_busy_host_is_moved(self):
        with unittest.mock.patch.object($name, "vms_of", return_value=[VM]):
            self.assertEqual($name.do_balance([IDLE, BUSY], PROPERTIES), (VM, [IDLE]))

    def test_idle_hosts_are_left_alone(self):
        self.assertIsNone($name.do_balance([IDLE], PROPERTIES))
""",
}

_TEST_FOOT = """

if __name__ == "__main__":
    unittest.main()
"""


def write(folder: Path, name: str, kinds: Collection[Kind]) -> Tuple[Path, ...]:
    """Write NAME.py, NAME.conf and tests/test_NAME.py; all of them or none.

    The test is in a folder of its own: the daemon would load it as a plugin beside plugins.

    Returns:
        The three files.

    Raises:
        BadUsage: the name cannot be a plugin's.
        NotOverwritten: one of them is there, or cannot be written.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise BadUsage(f"{name!r} cannot be a plugin's name: take letters, digits and _")
    if len(name) > LONGEST_NAME:
        raise BadUsage(f"a name of {len(name)} characters; the engine takes {LONGEST_NAME}")
    files = {
        folder / f"{name}.py": _plugin(name, kinds),
        folder / f"{name}.conf": _CONF,
        folder / "tests" / f"test_{name}.py": _test(name, kinds),
    }
    for path in files:
        if path.exists():
            raise NotOverwritten(f"{path} is there already; choose another name or --folder")
    _write(files)
    return tuple(files)


def _plugin(name: str, kinds: Collection[Kind]) -> str:
    wants_engine = Kind.BALANCE in kinds
    imports = "\nfrom ovirt_scheduler.plugin import engine_connection\n" if wants_engine else ""
    functions = "".join(text for kind, text in _FUNCTIONS.items() if kind in kinds)
    return string.Template(_HEAD + functions).substitute(name=name, imports=imports)


def _test(name: str, kinds: Collection[Kind]) -> str:
    methods = "\n".join(text for kind, text in _TEST_METHODS.items() if kind in kinds)
    text = string.Template(_TEST_HEAD + methods + _TEST_FOOT)
    written = text.substitute(name=name, suffix="Test", test=f"tests/test_{name}.py")
    if Kind.BALANCE in kinds:
        written = written.replace("import unittest\n", "import unittest\nimport unittest.mock\n")
    return written


def _write(files: Dict[Path, str]) -> None:
    written = []
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink()
        raise NotOverwritten(f"{error.filename}: {error.strerror}") from None
