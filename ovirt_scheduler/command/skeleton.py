"""``ovirt-scheduler new``: a plugin to start from, with its conf file and tests that pass."""

from __future__ import annotations

import argparse
import keyword
import string
from pathlib import Path
from typing import Collection, Dict, Mapping, NamedTuple, Tuple

from ovirt_scheduler.command import arguments
from ovirt_scheduler.command.tables import Shown
from ovirt_scheduler.errors import BadUsage, NotOverwritten
from ovirt_scheduler.model.units import LONGEST_NAME


def add(to: arguments.Add) -> None:
    """Add the command to the command line."""
    command = arguments.add_command(
        to, "new", _run, "write a plugin to start from",
        "Write a plugin, its conf file and tests that pass. Nothing is overwritten.",
        "new Quiet --filter --score", "new Quiet --balance --folder plugins",
        "new Night --scheduler", "new Backups --driver",
        output=(), settings=(),
    )  # fmt: skip
    command.add_argument("name", metavar="NAME", help="of the plugin, and so of its units")
    for name, part in PARTS.items():
        command.add_argument(f"--{name}", action="store_true", help=f"with {part.what}")
    command.add_argument(
        "--folder", metavar="DIR", type=Path, default=Path(), help="where to (default: here)",
    )  # fmt: skip


def _run(options: argparse.Namespace) -> Shown:
    parts = [part for part in PARTS if getattr(options, part)]
    if not parts:
        there = ", ".join(f"--{part}" for part in PARTS)
        raise BadUsage(f"say what it is to be: {there}")
    plugin, conf, test = write(options.folder, options.name, parts)
    tried_with = (
        "--hosts hosts.xml" if parts != ["driver"] else "--call shares 'amounts={\"web\": 1}'"
    )
    return Shown(
        f"{plugin}\n{conf}\n{test}\n"
        f"next: python3 -m pytest {test}, or ovirt-scheduler try {plugin} {tried_with};\n"
        f"then put {plugin.name} into plugins_path, {conf.name} into plugins_conf_path\n"
    )


class Part(NamedTuple):
    """What a plugin may have, and its test.

    Attributes:
        what: the part, for the help of its option.
        imports: a name of ``ovirt_scheduler.plugin``; empty: none.
        uses_hosts: whether it looks at hosts, and at the property of the conf file.
    """

    what: str
    code: str
    test: str
    imports: str = ""
    uses_hosts: bool = True


_FILTER = Part(
    "a do_filter",
    '''

def do_filter(hosts, vm, properties):
    """Keep the hosts that run at most `most` VMs."""
    most = int(properties.get("most", 20))
    return [host for host in hosts if running(host) <= most]
''',
    """

def test_a_busy_host_is_rejected(make_host, make_vm, run_filter):
    hosts = [make_host("idle", running=1), make_host("busy", running=30)]
    assert run_filter(PLUGIN, hosts, make_vm(), properties={"most": 20}) == ["idle"]
""",
)

_SCORE = Part(
    "a do_score",
    '''

def do_score(hosts, vm, properties):
    """Cost: the number of VMs beyond `most`; lower is better."""
    most = int(properties.get("most", 20))
    return [(host, max(0, running(host) - most)) for host in hosts]
''',
    """

def test_a_busy_host_costs_more(make_host, make_vm, run_score):
    hosts = [make_host("idle", running=1), make_host("busy", running=30)]
    costs = run_score(PLUGIN, hosts, make_vm(), properties={"most": 20})
    assert costs == {"idle": 0, "busy": 10}
""",
)

_BALANCE = Part(
    "a do_balance",
    '''

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
    """

def test_a_vm_of_a_busy_host_is_moved(make_host, make_vm, run_balance):
    idle, busy = make_host("idle", running=1), make_host("busy", running=30)
    vms = [make_vm("mail", host=idle), make_vm("web", host=busy)]
    moved = run_balance(PLUGIN, [idle, busy], vms=vms, properties={"most": 20})
    assert moved == ("web", ["idle"])


def test_idle_hosts_are_left_alone(make_host, run_balance):
    assert run_balance(PLUGIN, [make_host("idle", running=1)]) is None
""",
    imports="engine_connection",
)

_SCHEDULER = Part(
    "a whole scheduler",
    '''

class $name(Scheduler):
    """Starts VMs where the fewest run, and relieves a host that runs more than `most`."""

    # "compute" publishes its methods there; of all schedulers one alone can have that.
    topic = None

    def candidates(self, hosts, vm, properties):
        """The hosts that run fewer than `most` VMs; the one with the fewest is the best."""
        most = int(properties.get("most", 20))
        return sorted((host for host in hosts if running(host) < most), key=running)

    def load_balance(self, hosts, vms, properties):
        """Move one VM from the fullest host, where that runs more than `most`."""
        fullest = max(hosts, key=running)
        roomy = self.candidates(hosts, None, properties)
        if running(fullest) <= int(properties.get("most", 20)) or not roomy:
            return {}
        there = [vm for vm in vms if vm.host and vm.host.id == fullest.id]
        return {vm: roomy for vm in there[:1]}
''',
    """

def test_a_vm_starts_where_the_fewest_run(make_host, run_scheduler):
    numbers = {"some": 7, "idle": 1, "busy": 30}
    hosts = [make_host(name, running=number) for name, number in numbers.items()]
    assert run_scheduler(PLUGIN, "candidates", hosts) == ["idle", "some"]


def test_a_busy_host_is_relieved(make_host, make_vm, run_scheduler):
    idle, busy = make_host("idle", running=1), make_host("busy", running=30)
    vms = [make_vm("mail", host=idle), make_vm("web", host=busy)]
    assert run_scheduler(PLUGIN, "load_balance", [idle, busy], vms) == {"web": ["idle"]}
""",
    imports="Scheduler",
)

_DRIVER = Part(
    "a driver, which publishes a method on a topic",
    '''

class $driver(Driver):
    """Shares something out."""

    topic = "$topic"

    def shares(self, amounts, total=100):
        """What each gets of the total, in proportion to its amount.

        amounts: struct of an integer by its name.
        """
        whole = sum(amounts.values())
        return {name: total * amount // whole for name, amount in amounts.items() if whole}
''',
    """

def test_shares_are_in_proportion(run_topic):
    shares = run_topic(PLUGIN, "shares", amounts={"web": 3, "mail": 1})
    assert shares == {"web": 75, "mail": 25}
""",
    imports="Driver",
    uses_hosts=False,
)

# By the name of its option.
PARTS: Mapping[str, Part] = {
    "filter": _FILTER,
    "score": _SCORE,
    "balance": _BALANCE,
    "scheduler": _SCHEDULER,
    "driver": _DRIVER,
}

_HEAD = '"""$name: says in its first line what the engine shows for it."""\n'

_RUNNING = '''

def running(host):
    """VMs that run on the host; a document of few words may not tell."""
    return (host.summary.active or 0) if host.summary else 0
'''

_PROPERTIES = """\
# What the engine asks the administrator for: key=regular expression, or {low-high}.
customProperties = "most={0-1000}"
defaultValues = "20"
"""

_CONF = """\
# timeout = 5
# on_failure = reject
"""

_TEST_HEAD = '''\
"""Run it with: python3 -m pytest tests/test_$name.py"""

from pathlib import Path

pytest_plugins = ["ovirt_scheduler.testing"]  # the fixtures; pip tells pytest of them, an RPM not
PLUGIN = Path(__file__).resolve().parents[1] / "$name.py"
'''


def write(folder: Path, name: str, parts: Collection[str]) -> Tuple[Path, ...]:
    """Write NAME.py, NAME.conf and tests/test_NAME.py; all of them or none.

    The test is in a folder of its own: the daemon would load it as a plugin beside plugins.

    Args:
        parts: keys of ``PARTS``, at least one.

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
    chosen = [part for key, part in PARTS.items() if key in parts]
    words = {
        "name": name,
        # A file's drivers need names of their own.
        "driver": f"{name}Topic" if "scheduler" in parts else name,
        "topic": name.lower(),
    }
    uses_hosts = any(part.uses_hosts for part in chosen)
    test = _TEST_HEAD + "".join(part.test for part in chosen)
    files = {
        folder / f"{name}.py": string.Template(_plugin(chosen, uses_hosts)).substitute(words),
        folder / f"{name}.conf": (_PROPERTIES if uses_hosts else "") + _CONF,
        folder / "tests" / f"test_{name}.py": string.Template(test).substitute(words),
    }
    for path in files:
        if path.exists():
            raise NotOverwritten(f"{path} is there already; choose another name or --folder")
    _write(files)
    return tuple(files)


def _plugin(parts: Collection[Part], uses_hosts: bool) -> str:
    imports = ", ".join(sorted(part.imports for part in parts if part.imports))
    text = f"{_HEAD}\nfrom ovirt_scheduler.plugin import {imports}\n" if imports else _HEAD
    return text + (_RUNNING if uses_hosts else "") + "".join(part.code for part in parts)


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
