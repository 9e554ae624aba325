"""The commands why and decisions, on a history that is written by hand."""

from __future__ import annotations

import itertools
import json
import os
import pty
import signal
import subprocess
import tempfile
import time
from types import SimpleNamespace

import pytest

from ovirt_scheduler.command import cli
from ovirt_scheduler.command import decisions as decisions_command
from ovirt_scheduler.command.decisions import query
from ovirt_scheduler.history import ranking, schema
from ovirt_scheduler.history.database import Database
from ovirt_scheduler.history.query import Query, written
from ovirt_scheduler.history.record_reader import RecordReader
from ovirt_scheduler.history.store import FILE
from tests.support.command import program, run, script, spawned
from tests.support.processes import as_stranger
from tests.support.waiting import LONG

VM = "8a6e5b90-3f27-4d1c-8e44-91b7c05d2b01"
MORNING = 1769846400.25  # 2026-01-31T08:00:00.250Z
LYNX, PUMA = (
    {"id": f"00000000-0000-4000-8000-{name:_>12}", "name": name} for name in ("lynx", "puma")
)
UNIT = {"checksum": "sha256:0", "mode": "live", "milliseconds": 1.5}


def record(number, method, units, hosts, vm=None, **more):
    """A decision of so many minutes after eight o'clock."""
    made = {
        "id": f"{number:016x}", "time": written(MORNING + 60 * number), "milliseconds": 3.2,
        "caller": "127.0.0.1:40312", "method": method, "form": "engine",
        "vm": vm or {"id": VM, "name": "web"}, "units": units, "hosts": hosts, **more,
    }  # fmt: skip
    ranking.put_totals(made)
    return made


FILTERED = record(
    1,
    "runFilters",
    [{**UNIT, "name": "MaxVms", "kind": "filter", "outcome": "ok"}],
    [
        {**LYNX, "verdicts": [{"unit": "MaxVms", "verdict": "removed", "reason": "runs 12 VMs"}]},
        {**PUMA, "verdicts": [{"unit": "MaxVms", "verdict": "passed"}]},
    ],
    answer=[PUMA["id"]],
)
SCORED = record(
    2,
    "runCostFunctions",
    [
        {**UNIT, "name": "EvenVms", "kind": "cost function", "factor": 2, "outcome": "ok"},
        {**UNIT, "name": "Broken", "kind": "cost function", "factor": 1, "outcome": "raised", "message": "oh"},
    ],
    [{**PUMA, "costs": [{"unit": "EvenVms", "cost": 4, "factor": 2, "weighted": 8}]}],
    answer=[PUMA["id"]],
)  # fmt: skip


def write(folder, *records):
    (folder / "state").mkdir(exist_ok=True)
    database = Database(folder / "state" / FILE)
    database.write([(schema.pack(each), None) for each in records])
    database.close()


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with a state folder in it, that has both."""
    folder = tmp_path_factory.mktemp("kept")
    write(folder, FILTERED, SCORED)
    return folder


def decisions(folder, *arguments):
    return json.loads(run(folder, "decisions", "-o", "json", *arguments)[1])


def test_why_tells_the_calls_of_a_vm_as_one_story(kept):
    """With a table of hosts and units, and what the engine decides."""
    status, out, err = run(kept, "why", "web")
    assert (status, err) == (0, "")
    first, *lines = out.splitlines()
    assert first.endswith("  runFilters for VM web: 2 hosts: 1 left, 1 removed by MaxVms")
    assert lines[:3] == [
        "  decision 0000000000000001, 3.2 ms, asked by 127.0.0.1:40312",
        "  puma: passed MaxVms",
        "  lynx: removed by MaxVms: runs 12 VMs",
    ]
    assert lines[5:] == [
        "  puma: 1st of 1, cost 8 = EvenVms 2 × 4",
        "  Broken raised an error, and added nothing: oh",
        "The engine adds its own weights to these costs, and then takes the best host.",
        "The engine does not say which host it took.",
        "",
        "HOST  MaxVms   EvenVms ×2  Broken ×1  TOTAL  RANK",
        "puma  passed   4           -          8      1",
        "lynx  removed  -           -          -      -",
    ]


def test_why_is_in_colours_on_a_terminal_alone(kept):
    """And nowhere where the environment says NO_COLOR."""
    assert "\033" not in run(kept, "why", "web")[1]
    for no_color in ("", "1"):
        master, slave = pty.openpty()
        spawned(kept, "why", "web", stdout=slave, env={"NO_COLOR": no_color})
        os.close(slave)
        told = os.read(master, 1 << 16).decode()
        os.close(master)
        assert ("\033[31m  lynx: removed by MaxVms: runs 12 VMs\033[0m" in told) == (not no_color)


def test_a_terminal_that_knows_ascii_alone_is_told_too(kept):
    """What it cannot show is escaped."""
    told = spawned(kept, "why", "web", env={"PYTHONIOENCODING": "ascii"})[1]
    assert "cost 8 = EvenVms 2 \\xd7 4\n" in told


def test_why_of_a_vm_that_hooks_of_others_migrated(kept, tmp_path):
    """They are decisions on other VMs, which have other names."""
    hooks = [
        record(number, "onVmStatusChanged", [], [LYNX, PUMA], vm={"id": name, "name": name},
               answer={VM: [PUMA["id"]]}, vms=[{"id": VM, "name": "web"}])
        for number, name in enumerate(("mail", "db"), 8)
    ]  # fmt: skip
    write(tmp_path, FILTERED, *hooks)
    for vm in ("web", VM):
        status, out, err = run(tmp_path, "why", vm)
        assert (status, err) == (0, "")
        assert "onVmStatusChanged: migrate VM web to puma" in out


def test_why_of_vms_that_share_a_name(kept, tmp_path):
    """Which one is meant has to be said."""
    write(tmp_path, FILTERED, {**SCORED, "vm": {"id": "another", "name": "web"}})
    status, out, err = run(tmp_path, "why", "web")
    assert (status, out) == (2, "")
    assert f"several VMs have the name web: say which: another, {VM}" in err
    assert run(tmp_path, "why", "another")[0] == 0


@pytest.mark.parametrize(
    ("query", "methods"),
    [
        ((), ["runCostFunctions", "runFilters"]),
        (("--vm", "web"), ["runCostFunctions", "runFilters"]),
        (("--vm", VM, "--limit", "1"), ["runCostFunctions"]),
        (("--host", "lynx"), ["runFilters"]),
        (("--host", PUMA["id"]), ["runCostFunctions", "runFilters"]),
        (("--unit", "MaxVms"), ["runFilters"]),
        (("--method", "runCostFunctions"), ["runCostFunctions"]),
        (("--outcome", "raised"), ["runCostFunctions"]),
        (("--outcome", "raised", "--unit", "EvenVms"), []),
        (("--since", "2026-01-31T08:01:30Z"), ["runCostFunctions"]),
        (("--until", "2026-01-31T08:01:30Z"), ["runFilters"]),
        (("--since", "1w", "--until", "1s"), []),
    ],
)
def test_decisions_are_found_by_what_they_were(kept, query, methods):
    """VM, host, unit, method, outcome and time (contract 8.4)."""
    assert [each["method"] for each in decisions(kept, *query)] == methods


def test_json_lines_and_names(kept):
    """One decision on a line, or its id."""
    whole = decisions(kept)
    lines = run(kept, "decisions", "-o", "jsonl")[1].splitlines()
    assert [json.loads(line) for line in lines] == whole
    assert run(kept, "decisions", "-o", "names")[1].split() == [each["id"] for each in whole]


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        (("--vm", "nobody"), ""),
        (("--vm", "web", "--method", "none"), ""),  # there is such a VM
        (("--vm", "wbe"), "web"),
        (("--host", "lnyx"), "lynx"),
        (("--unit", "MaxVm"), "MaxVms"),
        (("--method", "runFilter"), "runFilters"),
    ],
)
def test_none_that_fits_is_said_with_the_name_that_may_be_meant(kept, query, meant):
    hint = f"; did you mean {meant}?" if meant else ""
    assert run(kept, "decisions", *query, "-o", "table") == (0, f"no such decisions{hint}\n", "")


@pytest.mark.parametrize("query", [(), ("--vm", "web")])
def test_that_nothing_is_recorded_yet_is_said(tmp_path, query):
    write(tmp_path)
    assert run(tmp_path, "decisions", *query) == (0, "no decisions are recorded yet\n", "")


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("why",), 2, "name a VM, by its name or id, or a decision with --decision"),
        (("why", "web", "--decision", "0" * 16), 2, "name a VM"),
        (("why", "web", "--host", ""), 2, "--host: is empty; leave it out to have every one"),
        (("why", "wbe"), 1, "no decision on a VM 'wbe' is recorded; did you mean web?; "),
        (("why", "\udcff"), 1, "no decision on a VM '\\udcff' is recorded; "),
        (("why", "--decision", "\udcff"), 1, "no decision '\\udcff' is recorded; "),
        (("why", "--decision", "none"), 1, "no decision 'none' is recorded; "),
        (("replay",), 1, "history.sqlite: set record = true in scheduler.conf and reload the"),
        (("decisions", "--since", "yesterday"), 2, "--since 'yesterday' is no time: write it like"),
        (("decisions", "--since", "1h", "--until", "2h"), 2, "--since is not before --until"),
        (("decisions", "--limit", "1001"), 2, "--limit 1001: write a number from 1 to 1000"),
        (("decisions", "--limit", "all"), 2, "argument --limit: invalid int value: 'all'"),
        (("decisions", "--vm", ""), 2, "--vm: is empty; leave it out to have every one"),
        (("decisions", "--outcome", "odd"), 2, "argument --outcome: invalid choice: 'odd'"),
        (("decisions", "--follow", "-o", "json"), 2, "--follow needs -o table, jsonl or names"),
        (("decisions", "--follow", "--until", "1h"), 2, "--follow shows new decisions only: leave out"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(kept, arguments, status, told):
    """With what is to be written; exit statuses are the other commands'."""
    ended, out, err = run(kept, *arguments)
    assert (ended, out) == (status, "")
    assert told in err


def test_what_is_recorded_is_followed(tmp_path):
    """From the last ones on, each once, in their order, until Ctrl-C."""
    write(tmp_path, FILTERED, SCORED)
    words = ("decisions", "--follow", "-o", "names", "--limit", "1")
    with program(tmp_path / "state", *words, stdout=subprocess.PIPE) as following:
        try:
            first = following.stdout.readline()
            # More than are looked at first; some are of the same moment.
            write(tmp_path, *({**SCORED, "id": f"{number:016x}"} for number in range(100, 300)))
            more = [following.stdout.readline() for _ in range(200)]
            following.send_signal(signal.SIGINT)
            rest, _ = following.communicate(timeout=LONG)
        finally:
            following.kill()
    assert (following.returncode, rest, first) == (130, "", f"{2:016x}\n")
    assert more == [f"{number:016x}\n" for number in range(100, 300)]


def test_nothing_is_shown_twice_after_looks_that_found_nothing_new(tmp_path, monkeypatch, capsys):
    write(tmp_path, FILTERED)
    looks = itertools.count()

    def pause(_: float) -> None:
        look = next(looks)
        if look in (3, 7):
            write(tmp_path, {**SCORED, "id": f"{look:016x}"})
        elif look == 10:
            raise KeyboardInterrupt

    # Its own alone: other threads of the tests sleep, too.
    monkeypatch.setattr(decisions_command, "time", SimpleNamespace(sleep=pause))
    with pytest.raises(KeyboardInterrupt):
        decisions_command.follow(RecordReader(tmp_path / "state" / FILE), Query(), "names")
    assert capsys.readouterr().out.split() == [f"{number:016x}" for number in (1, 3, 7)]


def test_the_list_names_units_that_failed_and_counted(tmp_path):
    """As the page does; a unit in shadow that fails changes nothing."""
    failed = {"outcome": "raised", "message": "oh", "kind": "cost function", "factor": 1}
    units = [
        {**UNIT, **failed, "name": "Broken"},
        {**UNIT, **failed, "name": "New", "mode": "shadow"},
    ]
    write(tmp_path, record(1, "runCostFunctions", units, [{**PUMA, "costs": []}], answer=[]))
    out = run(tmp_path, "decisions", "-o", "table")[1]
    assert "Broken failed" in out
    assert "New" not in out


def test_decisions_that_say_too_much_are_listed(tmp_path):
    """The list reads a line of each; a VM's name that may be meant is found among them."""
    units = [
        {**UNIT, "name": f"U{number}", "kind": "filter", "outcome": "ok"} for number in range(999)
    ]
    write(
        tmp_path, record(1, "runFilters", units, [{"id": f"h{n}"} for n in range(2001)], answer=[])
    )
    status, _, err = run(tmp_path, "decisions", "-o", "json")
    assert (status, "verdicts on hosts" in err) == (1, True)
    assert "2001 hosts: 2001 left" in run(tmp_path, "decisions", "-o", "table")[1]
    assert run(tmp_path, "decisions", "-o", "names")[1] == f"{1:016x}\n"
    assert "did you mean web?" in run(tmp_path, "why", "wbe")[2]


def test_why_reads_the_calls_of_the_last_placement_alone(tmp_path):
    """Of large decisions on a VM, no more than these can be read."""
    units = [
        {**UNIT, "name": f"U{number}", "kind": "filter", "outcome": "ok"} for number in range(999)
    ]
    large = record(1, "runFilters", units, [{"id": f"h{n}"} for n in range(500)], answer=[])
    write(
        tmp_path, *({**large, "id": f"{number:016x}"} for number in range(10, 15)), FILTERED, SCORED
    )
    status, out, err = run(tmp_path, "why", "web")
    assert (status, err) == (0, "")
    assert "runFilters for VM web: 2 hosts" in out


def test_why_on_thousands_of_hosts_tells_of_the_best(tmp_path):
    """The rest are counted; any one host and all of them are still to be had."""
    removed = {"unit": "MaxVms", "verdict": "removed", "reason": "runs 12 VMs"}
    filtered = [
        {"id": f"h{n}", "verdicts": [removed if n % 2 else {**removed, "verdict": "passed"}]}
        for n in range(5000)
    ]
    costs = {"unit": "EvenVms", "cost": 0, "factor": 1, "weighted": 0}
    scored = [
        {"id": f"h{n}", "costs": [{**costs, "cost": 5000 - n, "weighted": 5000 - n}]}
        for n in range(0, 5000, 4)
    ]
    units = [{**UNIT, "name": "MaxVms", "kind": "filter", "outcome": "ok"}]
    functions = [{**UNIT, "name": "EvenVms", "kind": "cost function", "factor": 1, "outcome": "ok"}]
    answer = [host["id"] for host in filtered[::2]]
    write(
        tmp_path,
        record(1, "runFilters", units, filtered, answer=answer),
        record(2, "runCostFunctions", functions, scored, answer=[]),
    )
    status, out, err = run(tmp_path, "why", "web")
    assert (status, err) == (0, "")
    assert len(out) < 30_000
    assert "h4996: 1st of 1250, cost 4 = EvenVms 1 × 4" in out
    assert "h4600: 100th of 1250" in out
    assert "h4596" not in out
    assert "and 1240 more: left by our filters, but the engine asked for no costs" in out
    assert out.count("\nh") == 100  # rows of the table
    assert out.endswith(
        "\n4,900 more hosts rank behind these, or are out: --host HOST shows one, -o json shows all\n"
    )
    assert (
        "h4999: removed by MaxVms: runs 12 VMs" in run(tmp_path, "why", "web", "--host", "h4999")[1]
    )
    everything = json.loads(run(tmp_path, "why", "web", "-o", "json")[1])
    assert [len(each["hosts"]) for each in everything] == [5000, 1250]


def test_what_happened_to_plugins_is_listed(tmp_path):
    """The newest first, with both checksums; options on decisions do not go with it."""
    (tmp_path / "state").mkdir()
    database = Database(tmp_path / "state" / FILE)
    loaded = {"event": "loaded", "file": "/p/Max.py", "checksum": "sha256:" + "1" * 64}
    former = loaded["checksum"]
    edited = {**loaded, "event": "edited", "checksum": "sha256:" + "2" * 64, "former": former}
    database.write([], [(MORNING, loaded), (MORNING + 1, edited)])
    database.close()
    status, out, err = run(tmp_path, "decisions", "--events", "-o", "json")
    assert (status, err) == (0, "")
    assert [(each["event"], len(each["checksum"])) for each in json.loads(out)] == [
        ("edited", 71), ("loaded", 71),
    ]  # fmt: skip
    status, out, _ = run(tmp_path, "decisions", "--events", "-o", "table")
    assert status == 0
    assert f"sha256:{'2' * 12}, former sha256:{'1' * 12}\n" in out  # -o json has all digits
    local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(MORNING + 1))
    assert f"\n{local}  edited" in out
    status, _, err = run(tmp_path, "decisions", "--events", "--vm", "web")
    assert (status, "--events does not go with --vm" in err) == (2, True)


EACH = """
from ovirt_scheduler.command import cli
from ovirt_scheduler.command import decisions as decisions_command
for words in (["replay"], ["decisions", "--events"], ["simulate", "--recorded"]):
    print(words[0], cli.main(words))
"""


def test_who_may_not_read_the_history_is_told_who_may():
    """Whichever command reads it; the state folder is closed to others."""
    with tempfile.TemporaryDirectory() as name:  # which is root's
        environment = {**os.environ, "STATE_DIRECTORY": name}
        ended = script(EACH, before=as_stranger(), env=environment)
    assert ended.stdout == "replay 77\ndecisions 77\nsimulate 77\n"
    told = f"ovirt-scheduler: {name}/history.sqlite: only root and the daemon's user may read it"
    assert [line.partition(";")[0] for line in ended.stderr.splitlines()] == [told] * 3


def test_so_long_ago_is_1970_at_the_earliest():
    """No daemon could be asked for a time before that."""
    options = cli.parser().parse_args(["decisions", "--since", "99999999w"])
    assert query(options, MORNING).since == 0
