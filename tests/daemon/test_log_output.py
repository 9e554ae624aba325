"""What a real daemon logs, in each format: all that it should, and nothing that it should not."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import re
import socket
import sys
import threading
import xmlrpc.client
from pathlib import Path

import pytest

from ovirt_scheduler.log.fields import FIELDS
from tests.support.command import program
from tests.support.daemon import Daemon
from tests.support.journal_reader import Journal
from tests.support.paths import PROJECT
from tests.support.rest_server import PASSWORD, Host, RestServer, id_of
from tests.support.waiting import LONG

HOSTS = (PROJECT / "demo" / "hosts.xml").read_text("utf-8")
VM = (PROJECT / "demo" / "vm.xml").read_text("utf-8")
IDS = [id_of(name) for name in ("lynx", "puma")]
# None of these may be in a log: of a document, a value, a query, and what is no call at all.
SECRETS = ["in-a-name", "in-the-vm", "in-a-value", "in-a-query", "in-garbage", PASSWORD]
FORGED = "x\n2026-01-01 00:00:00.000+00:00 ERROR   forged\nMESSAGE=forged\n"

PLUGINS = {
    "Keeps": "def do_filter(hosts, vm, properties):\n    return hosts[:1]\n"
    "def do_score(hosts, vm, properties):\n    return [(hosts[0], 7)]\n",
    "Raises": "def do_filter(hosts, vm, properties):\n    raise ValueError('its\\nown words')\n",
    "Prints": "def do_filter(hosts, vm, properties):\n    print('two\\nlines')\n    return hosts\n",
    "Asks": "from ovirt_scheduler.plugin import engine_connection\n"
    "def do_filter(hosts, vm, properties):\n    engine_connection()\n    return hosts\n",
}
# Stands for systemd: standard error is the journal's, which listens elsewhere.
UNDER_SYSTEMD = """
import os, sys
from ovirt_scheduler.command import cli
from ovirt_scheduler.log import handlers
handlers.SOCKET = sys.argv[1]
stream = os.fstat(2)
os.environ["JOURNAL_STREAM"] = f"{stream.st_dev}:{stream.st_ino}"
sys.exit(cli.main(sys.argv[5:]))
"""

Record = dict[str, object]


class Run:
    """A daemon that was asked everything, and what it logged: as text, and record by record."""

    def __init__(self, style: str, folder: Path) -> None:
        self.style = style
        self.folder = folder
        with RestServer(folder, [Host("lynx"), Host("puma")], tls=False) as engine:
            if style == "journal":
                self.records, self.text = self._in_the_journal(engine)
            else:
                daemon = self._daemon(engine, f"log_format = {style}")
                self.text = self._asked(daemon, engine)
                self.records = (
                    [json.loads(line) for line in self.text.splitlines()] if style == "json" else []
                )
            self.logins = engine.logins

    def _in_the_journal(self, engine: RestServer) -> tuple:
        entries: list[dict[str, list[str]]] = []
        place = self.folder / "socket"
        with Journal(place) as journal:

            def read() -> None:
                while not entries or "END" not in entries[-1]:
                    entries.append(journal.entry())

            reading = threading.Thread(target=read)
            reading.start()
            try:
                before = (sys.executable, "-c", UNDER_SYSTEMD, str(place))
                text = self._asked(self._daemon(engine, "", before), engine)
            finally:
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                    sender.sendto(b"END=1\n", str(place))
                reading.join(LONG)
        return [record_of(entry) for entry in entries[:-1]], f"{text}{entries}"

    def _daemon(self, engine: RestServer, log: str, before: tuple = ()) -> Daemon:
        plugins, confs = self.folder / "plugins", self.folder / "confs"
        plugins.mkdir()
        confs.mkdir()
        for name, text in PLUGINS.items():
            (plugins / f"{name}.py").write_text(text)
        (confs / "Prints.conf").write_text("customProperties = most=[0-9]+\n")
        settings = f"log_level = debug\nssl = false\nplugins_conf_path = {confs}\n{log}\n"
        return Daemon(self.folder, plugins, settings + engine.conf(), [], before)

    def _asked(self, daemon: Daemon, engine: RestServer) -> str:
        """Ask all that may show in the log; gives it."""
        try:
            hosts = HOSTS.replace("<name>puma", "<name>in-a-name")
            assert hosts != HOSTS
            vm = VM.replace("<description>", "<description>in-the-vm ")
            given = {"anything": "in-a-value"}
            names = ["Keeps", "Raises", "Prints", FORGED]
            with daemon.proxy("/engine") as scheduler:
                scheduler.runFilters(names, hosts, vm, given)
                scheduler.runFilters(["Asks"], IDS, "vm-1", given)
                scheduler.runFilters(["Prints"], IDS, "vm-1", {"most": "in-a-value"})
                scheduler.runCostFunctions([["Keeps", 2]], IDS, "vm-1", given)
            with daemon.proxy() as scheduler, pytest.raises(xmlrpc.client.Fault):
                getattr(scheduler, FORGED)(hosts)
            with daemon.proxy() as scheduler, pytest.raises(xmlrpc.client.Fault):
                scheduler.runFilters(["Keeps"], f"{hosts}<in-garbage", vm, given)
            port = int(daemon.url.rpartition(":")[2])
            connection = http.client.HTTPConnection("localhost", port, timeout=LONG)
            connection.request("GET", "/nowhere?token=in-a-query")
            assert connection.getresponse().status == 404
            connection.close()
            with socket.create_connection(("localhost", port), timeout=LONG) as raw:
                raw.sendall(b"<in-garbage>\r\n\r\n")
                assert b" 400 " in raw.recv(4096)
            self.tokens = list(engine.tokens)
        finally:
            assert daemon.stop() == 0
        return daemon.log

    def messages(self, level: str = "") -> list[str]:
        if self.style == "plain":
            found = re.findall(
                r"^[0-9-]{10} [0-9:]{8}\.\d{3}[+-][0-9:]{5} (\w+) +(.*)$", self.text, re.MULTILINE
            )
            return [message for its, message in found if level in ("", its.lower())]
        return [str(each["message"]) for each in self.records if level in ("", each["level"])]


def record_of(entry: dict[str, list[str]]) -> Record:
    """An entry of the journal with the names that JSON has."""
    levels = {"3": "error", "4": "warning", "6": "info", "7": "debug"}
    told: Record = {"message": entry["MESSAGE"][0], "level": levels[entry["PRIORITY"][0]]}
    for name, values in entry.items():
        if name.startswith("SCHEDULER_"):
            told[name[len("SCHEDULER_") :].lower()] = values
    return told


@pytest.fixture(scope="module", params=["plain", "json", "journal"])
def run(request, tmp_path_factory):
    return Run(request.param, tmp_path_factory.mktemp(request.param))


def test_no_document_value_password_or_token_is_logged(run):
    """At the level that tells most; what a plugin says of itself is."""
    assert run.logins
    assert run.tokens
    for secret in (*SECRETS, *run.tokens):
        assert secret not in run.text
    assert "removed" in run.text
    assert "ValueError: its" in run.text


def test_nothing_that_a_caller_sends_makes_a_line(run):
    """A line is a record, what hangs beneath it, or what is said at the start."""
    if run.style == "plain":
        for line in run.text.splitlines():
            assert re.match(
                r"[0-9-]{10} [0-9:]{8}\.\d{3}[+-][0-9:]{5} (DEBUG|INFO|WARNING|ERROR) |    |listening",
                line,
            )
            assert line.isprintable()
    else:
        assert all(
            each.keys() - {"time", "level", "logger", "message"} <= FIELDS for each in run.records
        )
    forged = [message for message in run.messages() if "forged" in message]
    assert forged
    assert all(
        r"'x\n2026-01-01 00:00:00.000+00:00 ERROR   forged\nMESSAGE" in each for each in forged
    )
    assert run.messages("error") == []


def test_each_request_has_one_line(run):
    """Calls, faults, and what is no call, with an id each."""
    lines = [line for line in run.messages("info") if line.startswith("request ")]
    assert len(lines) == 8
    assert len({line.split()[1] for line in lines}) == 8
    missing = lines[0]
    assert re.fullmatch(
        r"request \w+ runFilters, engine form, 127.0.0.1:\d+: unit missing; units Keeps, Raises, Prints, "
        r"'x\\n.*'; VM .*, \d+ hosts: 1 left, \d+ removed by Keeps; problems with '.*', Raises; [0-9.]+ ms",
        missing,
    )
    assert re.search(r"'GET /nowhere', \S+: HTTP 404, there is no such page", lines[6])
    assert re.search(r"request \w+ -, \S+: HTTP 400, ", lines[7])


def test_a_request_and_its_plugins_are_told_in_fields(run):
    """The same that the text tells; a plugin's failure with its own message."""
    if run.style == "plain":
        pytest.skip("plain text has no fields")

    def one(**wanted: object) -> Record:
        shown = {
            name: [value] if run.style == "journal" else value for name, value in wanted.items()
        }
        return next(each for each in run.records if shown.items() <= each.items())

    def value(record: Record, name: str) -> object:
        return record[name][0] if run.style == "journal" else record[name]

    request = one(method="runFilters", outcome="unit missing")
    assert request["units"] == ["Keeps", "Raises", "Prints", FORGED[:60]]
    assert float(value(request, "milliseconds")) > 0
    failed = one(unit="Raises", outcome="raised")
    assert value(failed, "request") == value(request, "request")
    assert value(failed, "reason") == "ValueError: its own words (Raises.py:2)"
    assert value(failed, "traceback").endswith("ValueError: its\nown words")
    assert value(one(unit="Prints", stream="stdout"), "output") == "two\nlines"


@pytest.mark.parametrize("run", ["journal"], indirect=True)
def test_journald_gets_all_but_what_is_said_to_who_started_it(run):
    """Standard error has that line in its plain form, which goes to the journal as well."""
    assert run.text.partition("[{")[0].splitlines()[1:] == []
    assert run.text.startswith("listening on http://")


def test_a_file_in_json(start_daemon, tmp_path):
    """log_file and log_format go together."""
    log = tmp_path / "log.json"
    daemon = start_daemon(settings=f"ssl = false\nlog_format = json\nlog_file = {log}")
    daemon.stop()
    first, *_, last = [json.loads(line) for line in log.read_text("ascii").splitlines()]
    assert first["pid"] == daemon.pid
    assert (last["signal"], last["message"]) == ("SIGTERM", "stopping on SIGTERM")


def test_whatever_degrades_an_answer_has_a_line_with_its_id(start_daemon):
    """A unit that is not there, one that is named twice, clamped costs, all that failed."""
    odd = (
        "def do_filter(hosts, vm, properties):\n    return 42\n"
        "def do_score(hosts, vm, properties):\n    return [(host, 10**12) for host in hosts]\n"
    )
    daemon = start_daemon({"Odd": odd})
    with daemon.proxy("/engine") as proxy:
        proxy.runFilters(["Odd", "Odt"], IDS, "vm-1", {})
        proxy.runCostFunctions([["Odd", 1], ["Odd", 2]], IDS, "vm-1", {})
    daemon.stop()
    for line in (
        r"filter Odt: there is no filter named 'Odt'; did you mean Odd\?",
        r"filter Odd bad answer after \d+ ms: do_filter returned 42; expected the hosts to keep",
        r"cost function Odd: the cost function 'Odd' is named more than once; the first counts",
    ):
        assert re.search(rf" WARNING \w{{16}} {line}$", daemon.log, re.MULTILINE), line
    for line in ("all filters failed", "Odd .*beyond 1000000000 .*"):
        assert re.search(rf" WARNING \w{{16}}: {line}$", daemon.log, re.MULTILINE), line


@pytest.mark.long
def test_who_reads_standard_error_and_stops_holds_up_nobody(tmp_path):
    """Neither calls nor the daemon's end: the lines are lost."""
    conf = tmp_path / "scheduler.conf"
    conf.write_text("listening_port = 0\nssl = false\n")
    read, written = os.pipe()
    fcntl.fcntl(written, fcntl.F_SETPIPE_SZ, 4096)
    words = ("serve", "--config", conf, "--plugins", tmp_path)
    serving = program(tmp_path / "state", *words, stderr=written)
    with os.fdopen(read, encoding="utf-8") as lines, serving as process:
        os.close(written)
        url = next(line.split()[-1] for line in lines if line.startswith("listening on "))
        try:
            client = http.client.HTTPConnection(url.rpartition("/")[2], timeout=LONG)
            for _ in range(100):  # a line each, of some hundred bytes
                client.request("POST", "/design", xmlrpc.client.dumps((), "system.listMethods"))
                assert client.getresponse().read()
            client.close()
            process.terminate()
            assert process.wait(LONG) == 0
        finally:
            process.kill()
