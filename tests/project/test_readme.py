"""What the README's first screen tells to type, typed against the engine that the tests have."""

from __future__ import annotations

import re

import pytest

from ovirt_scheduler.command import cli
from tests.support.command import of_page, program, run
from tests.support.daemon import reserved_port
from tests.support.paths import PROJECT
from tests.support.rest_server import Host, RestServer, Vm
from tests.support.waiting import wait_until

README = (PROJECT / "README.md").read_text("utf-8")
CLUSTER = (
    [Host("lynx", busy=95, measured=True), Host("puma", busy=5, measured=True)],
    [Vm(f"web{number}", host="lynx", busy=80) for number in range(4)],
)


def test_the_two_commands_and_what_it_is_stand_at_its_head():
    """Whoever gives it a minute reads no further."""
    first = README[: README.index("## ")].splitlines()
    assert [line.split()[1] for line in first if line.startswith("    make ")] == ["run", "test"]
    assert "    $ ovirt-scheduler why wiki" in first
    assert len(first) < 50


def test_every_command_that_it_names_is_one_of_the_program():
    """With its options, in text and in blocks; a placeholder such as VM is a word like another."""
    pattern = r"`(ovirt-scheduler [^`\n]+)`|^ *(?:\$ |/\S+/)?(ovirt-scheduler .*)$"
    named = re.findall(pattern, README, re.MULTILINE)
    commands = {(one or other).partition("#")[0].strip() for one, other in named}
    assert len(commands) > 15
    for command in commands:
        words = command.split()[1:]
        if words[0] != "COMMAND":
            assert cli.parser().parse_args(words).run, command


@pytest.fixture
def tried(tmp_path):
    """A folder in which the first commands were typed, the engine, and the log of the daemon, which runs."""
    section = README[README.index("## Try it on your cluster") :]
    (conf,) = re.findall(r"^```ini\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[:1]
    commands = re.findall(r"^    ovirt-scheduler (.*)$", section, re.MULTILINE)[:4]
    names = [command.split()[0] for command in commands]
    assert names == ["snapshot", "simulate", "capacity", "serve"]
    with RestServer(tmp_path, *CLUSTER) as engine, reserved_port() as port:
        conf = re.sub(
            r"^\[engine\]\n(?:\w+ = .*\n)+", f"{engine.conf()}\n", conf, flags=re.MULTILINE
        )
        conf += "hold = 0\n"  # the imbalance lasts as long as the test
        (tmp_path / "scheduler.conf").write_text(f"listening_port = {port}\nrecord = true\n{conf}")
        for status, out, err in of_page(
            "\n".join(f"ovirt-scheduler {command}" for command in commands[:2]), tmp_path, tmp_path
        ):
            assert status == 0, out + err
        assert "imbalance" in out
        ((status, out, err),) = of_page(f"ovirt-scheduler {commands[2]}", tmp_path, tmp_path)
        assert (status in (0, 1), "\nlynx " in out) == (True, True), out + err
        said = tmp_path / "said"
        with said.open("w") as log:
            daemon = program(tmp_path / "state", *commands[3].split(), cwd=tmp_path, stderr=log)
        try:
            wait_until(lambda: "would migrate" in said.read_text())
            yield tmp_path, engine, said
        finally:
            daemon.terminate()
            daemon.wait()


def test_a_cluster_is_tried_and_nothing_is_changed(tried):
    """Saved, simulated, asked what it can lose, and looked after in a dry run; the engine is asked for no migration."""
    folder, engine, said = tried
    assert (folder / "report.html").stat().st_size > 1000
    assert "from lynx to puma: CPU 95 %" in said.read_text()
    assert engine.requested == []


def test_what_you_want_is_had_by_the_commands_that_the_table_names(tried):
    """All but setup, which has tests of its own: it needs root and a machine."""
    folder, _, said = tried
    section = README[README.index("## You want") : README.index("## Install")]
    commands = re.findall(r"`ovirt-scheduler ([^`]+)`", section)
    commands.remove("setup --engine --adopt")
    assert len(commands) >= 9
    names = {"VM": "wiki", "HOST": "lynx", "CLUSTER": "Default", "NAME": "Own"}
    url = re.search(r"listening on (\S+)", said.read_text()).group(1)
    hosts, vm = PROJECT / "demo" / "hosts.xml", PROJECT / "demo" / "vm.xml"
    decision = f"select default --url {url} --hosts {hosts} --vm {vm}"
    for command in (decision, *commands):
        words = [
            re.sub(r"[A-Z]{2,}", lambda word: names[word[0]], part) for part in command.split()
        ]
        if words[0] in ("maintenance", "capacity"):  # they find it in /etc where it is installed
            words += ["--config", "scheduler.conf"]
        status, out, err = run(folder, *words, folder=folder)
        expected = (0, 1) if words[0] == "capacity" else (0,)  # 1: it cannot lose each host
        assert (status in expected, bool(out)) == (True, True), (command, status, out, err)
