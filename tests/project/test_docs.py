"""What the documentation tells a reader to save or to run, saved and run."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from ovirt_scheduler.settings import plugin_conf, scheduler_conf
from ovirt_scheduler.settings.table import PluginConf
from ovirt_scheduler.workbench import expectations, scenario
from tests.support.command import executed, of_page
from tests.support.daemon import Daemon, reserved_port
from tests.support.paths import PROJECT
from tests.support.processes import lives, offspring
from tests.support.waiting import LONG, wait_until

PAGES = [*sorted(PROJECT.glob("*.md")), *sorted((PROJECT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
CALL = re.compile(
    r"(ovirt-scheduler (?:discover|filter|score|balance|select|topics|schedulers?|schedule)\b)(?!.*--local)"
)
SAMPLE = re.compile(r"# (\w+\.(?:py|conf))\n")


class Block(NamedTuple):
    page: str
    language: str
    text: str

    @property
    def file(self) -> str:
        """The file's name that its first line gives."""
        found = SAMPLE.match(self.text)
        assert found, f"{self.page}: a sample without its file's name on the first line"
        return found.group(1)


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for indent, language, text in BLOCK.findall(page.read_text("utf-8")):
            lines = (line[len(indent) :] for line in text.splitlines(keepends=True))
            yield Block(page.name, language, "".join(lines))


BLOCKS = list(blocks())
# Those that start a daemon of their own.
WITH_A_DAEMON = [block for block in BLOCKS if block.language == "sh" and "&\n" in block.text]


SCENARIOS = [
    block
    for block in BLOCKS
    if block.page in ("simulate.md", "policies.md") and block.language == "ini"
]


def of(language: str, *pages: str) -> list:
    return [
        pytest.param(block, id=f"{block.page}-{number}")
        for number, block in enumerate(BLOCKS)
        if block.language == language and (not pages or block.page in pages)
    ]


def plugins_of(page: str) -> list[Block]:
    """The samples of a page that are plugins or their helpers, not programs that call."""
    samples = [block for block in BLOCKS if block.language == "python" and block.page == page]
    return [block for block in samples if block.file != "call.py"]


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A reader's folder, with the samples of every page saved where the text says."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(PROJECT / "demo", folder / "demo")
    (folder / "plugins").mkdir()
    for page in PAGES:
        for block in plugins_of(page.name):
            (folder / "plugins" / block.file).write_text(block.text, "utf-8")
    for block in SCENARIOS:
        (folder / block.file).write_text(block.text, "utf-8")
    return folder


@pytest.fixture(scope="module")
def daemon(reader):
    """The daemon that the pages tell to start."""
    running = Daemon(reader, reader / "plugins", "", [])
    shutil.copy(running.certificate, reader / "certificate.pem")
    yield running
    running.stop()


def test_there_are_samples_and_commands():
    """A page whose blocks are not found would pass everything else."""
    assert {block.language for block in BLOCKS} == {"haproxy", "python", "sh", "ini"}
    assert len(BLOCKS) > 12


@pytest.mark.parametrize("block", of("python"))
def test_every_python_sample_is_python_3_9(block):
    """And its first line says what file it is."""
    assert block.file.endswith(".py")
    ast.parse(block.text, feature_version=(3, 9))


@pytest.mark.parametrize("block", of("ini"))
def test_every_conf_sample_is_accepted(block, tmp_path):
    """By the reader that the daemon uses."""
    path = tmp_path / block.file
    path.write_text(block.text, "utf-8")
    if block.file == "scheduler.conf":
        settings = scheduler_conf.load(path, {})
        path.write_text("")
        assert settings != scheduler_conf.load(path, {})  # the defaults
    elif block in SCENARIOS:
        assert scenario.read(path, expectations.of_nothing()).hours
    else:
        said = plugin_conf.parse(path.read_bytes(), path)
        assert said != PluginConf(said.name)


# Pages whose commands are run in their order, by a test of their own.
IN_ORDER = ("decisions.md", "policies.md")


@pytest.mark.parametrize(
    "block",
    [
        each
        for each in of("sh")
        if each.values[0].page not in IN_ORDER and each.values[0] not in WITH_A_DAEMON
    ],
)
def test_every_command_works(block, daemon, reader, one_executor):
    """As it stands on the page, but for the port; serve is asked for its help only."""
    command = block.text.replace("18781", daemon.url.rpartition(":")[2])
    command = re.sub(r"(ovirt-scheduler serve .*)", r"\1 --help", command)
    command = CALL.sub(rf"\1 --url {daemon.url}", command)
    for status, out, err in of_page(command, reader, daemon.state):
        assert status == 0, out + err
        assert out


@pytest.mark.long
def test_ten_lines_go_from_a_new_plugin_to_a_replayed_change(reader):
    """As they stand in plugins.md, but for the port."""
    (block,) = WITH_A_DAEMON
    assert (block.page, block.text.count("\n")) == ("plugins.md", 10)
    # A function of the shell would leave the daemon behind when it is killed.
    text = block.text.replace("ovirt-scheduler serve", f"{sys.executable} -m ovirt_scheduler serve")
    with reserved_port() as port:
        text = text.replace('"record = true"', f'"record = true" "listening_port = {port}"')
        ((status, out, err),) = of_page(text, reader, reader / "state-of-ten")
    assert status == 0, out + err
    assert "as it was: 1 of 1 decisions come out the same" in out
    assert "with the change: 1 of 1 decisions differ;" in out
    assert "before: 4 hosts: all cost the same\n    now: 4 hosts: ocelot is best\n" in out
    assert "stopping on SIGTERM" in err


def test_the_loop_of_the_page_ends_where_the_settings_have_a_mistake(tmp_path):
    """The daemon does not start, so that no call would ever be answered."""
    (block,) = WITH_A_DAEMON
    serve, until = block.text.splitlines()[5:7]
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "scheduler.conf").write_text("record = perhaps\n")
    ((status, _, err),) = of_page(f"{serve}\n{until}\nwait $!\n", tmp_path, tmp_path / "state")
    assert (status, "record: expected true or false" in err) == (78, True)


def test_a_block_that_fails_leaves_nothing_in_the_background(tmp_path):
    """And what it has said is there to be read."""
    ((status, out, _),) = of_page("sleep 600 &\necho $!\nfalse\n", tmp_path, tmp_path)
    assert (status, lives(int(out))) == (1, False)


def test_the_tests_that_the_manual_names_are_there():
    """Else nobody finds what holds a promise."""
    pages = "".join(page.read_text("utf-8") for page in PAGES)
    named = set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", pages))
    assert len(named) > 30
    texts = {path.name: path.read_text("utf-8") for path in PROJECT.glob("tests/**/test_*.py")}
    assert {each for each in named if f"def {each[1]}(" not in texts[each[0]]} == set()


def test_the_plugins_of_the_pages_are_called(daemon):
    """Every unit that the samples define is there."""
    groups = ElementTree.fromstring(daemon.design.discover())
    found = {unit.get("name") or unit.findtext("name") for group in groups for unit in group}
    assert found == {
        "Apart", "Dedicated", "EnoughCores", "Everything", "FreeMemory", "Generation", "Licensed", "NightPacking", "OneNode", "Power", "Quiet", "QuietNight", "Racks", "Reserve", "Roomy", "Together", "Window", "few_vms", "max_vms", "max_vms_4",
    }  # fmt: skip


def test_the_tests_of_the_pages_pass(reader):
    """Saved beside the plugins of the pages."""
    tests = sorted(path.name for path in (reader / "plugins").glob("test_*.py"))
    assert tests
    words = f"python3 -m pytest {' '.join(tests)}"
    for status, out, err in of_page(words, reader / "plugins", reader / "state"):
        assert status == 0, out + err


def test_the_schedulers_of_the_pages_are_called(daemon, reader):
    """The whole one on the hosts of the demonstration, and the topic that is not about VMs."""
    (spread,) = [block for block in plugins_of("schedulers.md") if block.file == "Spread.py"]
    assert spread.text.count("\n") <= 60
    hosts = (reader / "demo" / "hosts.xml").read_text("utf-8")
    ids = [host.get("id") for host in ElementTree.fromstring(hosts)]
    vms = "".join(f"<vm id='vm-{n}'><host id='{ids[0]}'/></vm>" for n in range(7))
    given = (hosts, f"<vms>{vms}</vms>")
    with daemon.proxy() as proxy:
        assert {each["topic"]: each["driver"] for each in proxy.getTopics()} == {
            "backup": "Backups",
            "compute": "Spread",
        }
        packed = proxy.selectHost("Spread", hosts, "vm-1", {"policy": "pack"})
        assert packed != proxy.selectHost("Spread", hosts, "vm-1", {})
        moved = {"vm-0": [ids[1]]}
        assert proxy.loadBalance("Spread", *given, {}) == moved
        assert proxy.loadBalance("Spread", *given, {"gap": "7"}) == {}
        assert proxy.onTimerInvoked("Spread", *given, {}) == moved
        assert proxy.onVmStatusChanged("Spread", "vm-9", "up", "down", *given, {}) == moved
        changed = ("Spread", ids[0], "up", "preparing_for_maintenance")
        emptied = proxy.onHostStatusChanged(*changed, *given, {})
        assert emptied == {f"vm-{n}": ids[1:] for n in range(7)}
        sizes = {"mail": 900, "web": 250, "archive": 9000}
        assert proxy.schedule("backup", "windows", {"gigabytes": sizes, "per_hour": 300}) == {
            "mail": ["22:00", "01:00"],
            "web": ["01:00", "01:50"],
        }


def test_the_program_of_the_manual_calls_the_readmes_plugin(daemon, reader):
    """Save both, run it: units, hosts, costs."""
    (program,) = [
        block for block in BLOCKS if block.language == "python" and block.file == "call.py"
    ]
    text = program.text.replace("18781", daemon.url.rpartition(":")[2])
    ended = executed(sys.executable, "-", input=text, cwd=reader)
    assert ended.returncode == 0, ended.stderr
    assert "<PolicyUnits>" in ended.stdout
    kept, costs = (ast.literal_eval(line) for line in ended.stdout.splitlines()[-2:])
    assert 0 < len(kept) < len(costs)


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may name, as GitHub makes it of the heading."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_first_trial_shows_what_the_page_shows(reader, one_executor):
    """But for the milliseconds."""
    page = (PROJECT / "docs" / "plugins.md").read_text("utf-8")
    command = next(line for line in page.splitlines() if line.startswith("ovirt-scheduler try"))
    ((status, out, err),) = of_page(command, reader, reader / "state-of-trial")
    assert status == 0, err
    (shown,) = re.findall(r"((?:^ {4}.*\n)*^ {4}HOST .*\n(?:^ {4}.*\n)+)", page, re.MULTILINE)[:1]
    milliseconds = re.compile(r"[\d.]+ ms")
    assert milliseconds.sub("", textwrap.dedent(shown)) == milliseconds.sub("", out)


def test_links_between_the_pages_lead_somewhere():
    """Relative links name files that are there, and headings in them."""
    links = [
        (page, *link)
        for page in PAGES
        for link in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", page.read_text("utf-8"))
    ]
    assert links
    for page, file, heading in links:
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name} links to {file}"
        assert not heading or heading in anchors(target), f"{page.name}: {file}#{heading}"


def test_a_page_whose_settings_name_the_file_of_a_password_says_how_to_make_it():
    """Its mode and owner are checked, so an editor's file would not do."""
    pages = {page.name: page.read_text("utf-8") for page in PAGES}
    files = [
        (page, path)
        for page, text in pages.items()
        for path in re.findall("^password_file = (.*)$", text, re.M)
    ]
    assert files
    for page, path in files:
        assert re.search(f"^    install -m 600 .*/dev/stdin {path}$", pages[page], re.M), page


def test_the_table_of_contents_names_every_page_once_for_its_reader():
    text = (PROJECT / "docs" / "README.md").read_text("utf-8")
    named = re.findall(r"\]\((\w+\.md)[)#]", text)
    there = {page.name for page in (PROJECT / "docs").glob("*.md")} - {"README.md"}
    assert sorted(named) == sorted(there)


def test_what_the_design_names_is_there():
    """Each path is that of a module or a folder, and each type of a call is made in its module."""
    text = (PROJECT / "docs" / "design.md").read_text("utf-8")
    paths = set(re.findall(r"`(\w+(?:/\w+)+)(?:\.py)?`", text))
    assert len(paths) > 80
    roots = (PROJECT / "ovirt_scheduler", PROJECT)
    gone = [
        path
        for path in paths
        if not any((root / path).is_dir() or (root / f"{path}.py").exists() for root in roots)
    ]
    assert gone == []
    made = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| `([\w/]+)` \|", text, re.MULTILINE)
    assert len(made) > 10
    for types, module in made:
        code = (PROJECT / "ovirt_scheduler" / f"{module}.py").read_text("utf-8")
        for name in re.findall(r"\w+", types):
            assert re.search(rf"\bclass {name}\b|\b{name}\(", code), (
                f"{name} is not made in {module}"
            )


def test_sections_of_the_contract_that_are_cited_are_there():
    """By docstrings, comments and tests, as in: contract 4.1 to 4.4 and 3.6."""
    text = (PROJECT / "docs" / "contract.md").read_text("utf-8")
    sections = set(re.findall(r"^(?:## )?(\d+(?:\.\d)?)[. ]", text, re.MULTILINE))
    cited = {
        (path.name, section)
        for folder in ("ovirt_scheduler", "tests", "bench", "torture")
        for path in (PROJECT / folder).rglob("*.py")
        for found in re.findall(
            r"contract ((?:\d+(?:\.\d)?(?:, | and | to )?)+)", path.read_text("utf-8")
        )
        for section in re.findall(r"\d+(?:\.\d)?", found)
    }
    assert len(cited) > 100
    assert {each for each in cited if each[1] not in sections} == set()


@pytest.mark.parametrize("during_start", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_demonstration_shows_one_call_of_each_kind_and_ends_by_ctrl_c(tmp_path, during_start):
    """What make run runs, as a stranger sees it; also from where SIGINT is ignored (make run &)."""
    with subprocess.Popen(
        [
            "sh",
            "-c",
            'trap "" INT; exec "$@"',
            "sh",
            sys.executable,
            str(PROJECT / "demo" / "run.py"),
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as demonstration:
        said = []
        if during_start:
            wait_until(lambda: offspring(demonstration.pid))
        else:
            for line in demonstration.stdout:
                said.append(line)
                if line.lstrip().startswith("-d "):
                    break
        try:
            demonstration.send_signal(signal.SIGINT)
            rest, _ = demonstration.communicate(timeout=LONG)
        except subprocess.TimeoutExpired:
            for pid in (demonstration.pid, *offspring(demonstration.pid)):
                os.kill(pid, signal.SIGKILL)
            raise
    text = "".join(said) + rest
    assert demonstration.returncode == 0, text
    for method in ("discover()", "runFilters(", "runCostFunctions(", "runLoadBalancing("):
        assert f"\n{method}" in text
    assert "Traceback" not in text


def test_a_python_that_is_too_old_is_told_before_anything_is_made(tmp_path):
    """With the line that names another, as the README has it."""
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && exec echo "Python 3.6.8"\nexit 1\n')
    old.chmod(0o755)
    ended = executed(PROJECT / ".ci" / "prerequisites", old, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "is Python 3.6.8, and 3.9 or later is needed" in ended.stderr
    assert "make run PYTHON=python3.11" in ended.stderr
    assert "`make run PYTHON=python3.11`" in (PROJECT / "README.md").read_text("utf-8")


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler here")
def test_headers_of_python_that_include_each_other_are_found(tmp_path):
    """As those of 3.13 do: nothing is installed for a Python that has them."""
    include = tmp_path / "include"
    for name, text in {
        "Python.h": '#include "cpython/atomic.h"\n',
        "cpython/atomic.h": '#include "cpython/atomic_gcc.h"\n',
        "cpython/atomic_gcc.h": "",
    }.items():
        (include / name).parent.mkdir(exist_ok=True)
        (include / name).write_text(text)
    told = f'case "$*" in *sysconfig*) echo {include};; esac'
    programs = {"python3": told, "apt-get": "exit 1", "dnf": "exit 1"}
    for name, line in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    ended = executed(
        PROJECT / ".ci" / "prerequisites", tmp_path / "python3", env={**os.environ, "PATH": path}
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
