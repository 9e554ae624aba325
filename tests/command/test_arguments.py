"""What becomes of a command's output: whoever reads it, wherever it goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ovirt_scheduler.command import cli
from tests.support.command import executed, program, run, script, spawned
from tests.support.paths import PROJECT
from tests.support.processes import as_stranger, open_folder

_LOADED = b" argparse\n"  # ends the line of -X importtime on a module that the command line needs
GOOD = "def do_filter(hosts, vm, properties):\n    return hosts\n"


@pytest.mark.parametrize("words", [("cert", "show"), ("completion", "bash"), ("--help",)])
def test_a_reader_that_goes_away_is_no_failure(tmp_path, words):
    """As with head; nothing is said, whichever command it is."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed:
        ended = spawned(tmp_path, *words, stdout=closed, env={"PYTHONUNBUFFERED": ""})
        assert ended == (0, None, "")


@pytest.mark.parametrize("words", [("completion", "bash"), ("--help",), ("try", "--help")])
def test_an_output_that_cannot_be_written_is_told(tmp_path, words):
    """As on a full disk: in a sentence."""
    with Path("/dev/full").open("wb") as full:
        status, _, err = spawned(tmp_path, *words, stdout=full, env={"PYTHONUNBUFFERED": ""})
    told = "ovirt-scheduler: could not write the output: No space left on device\n"
    assert (status, err) == (1, told)


def closed(tmp_path, words):
    """How a command ends that a shell runs with an output closed: exit status, what is said."""
    command = f"{sys.executable} -m ovirt_scheduler {words}"
    environment = {**os.environ, "STATE_DIRECTORY": str(tmp_path / "state")}
    ended = executed("sh", "-c", command, env=environment)
    return ended.returncode, ended.stdout + ended.stderr


def test_a_command_whose_output_is_closed_does_its_work(tmp_path):
    """The exit status tells how it went."""
    assert closed(tmp_path, "cert make >&-") == (0, "")
    assert (tmp_path / "state" / "certificate").is_dir()


def test_a_command_whose_error_output_is_closed_writes_no_error_elsewhere(tmp_path):
    """What comes on standard output is the result, or nothing."""
    assert closed(tmp_path, "cert export 2>&-") == (66, "")


def test_ctrl_c_ends_a_command_without_a_traceback(tmp_path):
    """With the exit status that shells have for it."""
    words = ("try", "x.py", "--hosts", "-")
    process = program(tmp_path, *words, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        os.write(process.stdin.fileno(), b" " * (1 << 18))  # the pipe holds a quarter of it
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=60)[1]
    assert (process.returncode, err) == (130, "")


@pytest.mark.parametrize("loaded", [_LOADED, b" ovirt_scheduler.catalogue.catalogue\n"])
def test_ctrl_c_while_modules_load_shows_no_traceback(loaded):
    """When the first of them are there, or those of a command; it ends as Ctrl-C ends a process."""
    words = [sys.executable, "-X", "importtime", "-m", "ovirt_scheduler", "try"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert any(line.endswith(loaded) for line in program.stderr)
        program.send_signal(signal.SIGINT)
        out, told = program.communicate(timeout=60)
    assert out == b""
    assert b"Traceback" not in told
    assert program.returncode == -signal.SIGINT


def test_names_steer_no_terminal(tmp_path):
    """Those of hosts are whatever the document has."""
    (tmp_path / "Good.py").write_text(GOOD)
    hosts = tmp_path / "hosts.xml"
    hosts.write_text("<hosts><host id='a'><name>l&#x9b;2Jynx</name></host></hosts>")
    words = ("filter", "Good", "--hosts", str(hosts), "--local", "--plugins", str(tmp_path))
    assert run(tmp_path, *words, "-o", "names") == (0, "l\\x9b2Jynx\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "--html", "{}"),
        ("simulate", "--hosts", str(PROJECT / "demo" / "hosts.xml"), "--html", "{}"),
        ("snapshot", "Default", "-f", "{}"),
    ],
)
def test_a_result_that_cannot_be_written_is_told_before_the_work_begins(tmp_path, words):
    """For nobody wants to lose what took an hour."""
    file = tmp_path / "none" / "result"
    status, out, err = run(tmp_path, *(word.format(file) for word in words))
    told = f"ovirt-scheduler: {file}: cannot be written: there is no folder {file.parent}\n"
    assert (status, out, err) == (73, "", told)


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "--html", "{}"),
        ("simulate", "--hosts", str(PROJECT / "demo" / "hosts.xml"), "--html", "{}"),
        ("snapshot", "Default", "-f", "{}"),
    ],
)
def test_a_result_is_not_written_where_a_link_leads(tmp_path, words):
    """In a folder like /tmp, somebody else could have put it there."""
    link, elsewhere = tmp_path / "result", tmp_path / "elsewhere"
    link.symlink_to(elsewhere)
    status, out, err = run(tmp_path, *(word.format(link) for word in words))
    told = f"{link}: cannot be written: is a link; name the file that it leads to"
    assert (status, out, err) == (73, "", f"ovirt-scheduler: {told}\n")
    assert not elsewhere.exists()


def test_plugins_that_name_no_folder_are_wrong_usage(tmp_path):
    """An empty variable of a script does not mean the folders of the settings."""
    for empty in ("", ":"):
        status, _, err = run(tmp_path, "check", "--plugins", empty)
        assert (status, "--plugins names no folder" in err) == (2, True)


def test_a_root_that_is_no_folder_is_told(tmp_path):
    """Nothing is looked for in it."""
    (tmp_path / "file").write_text("")
    for name in ("file", "none"):
        status, out, err = run(tmp_path, "setup", "--dry-run", "--root", str(tmp_path / name))
        told = f"ovirt-scheduler: --root {tmp_path / name}: there is no such folder\n"
        assert (status, out, err) == (66, "", told)


def test_another_locale_changes_no_document_and_no_json(tmp_path):
    """A document on standard input is UTF-8, and so is JSON."""
    (tmp_path / "Good.py").write_text(GOOD)
    _, told, _ = spawned(
        tmp_path, "filter", "Good", "--hosts", "-", "--local", "--plugins", tmp_path, "-o", "json",
        env={"PYTHONIOENCODING": "iso-8859-1"}, text=False,
        input="<hosts><host id='a'><name>Lüchs…</name></host></hosts>".encode(),
    )  # fmt: skip
    (host,) = json.loads(told.decode("ascii"))["decision"]["hosts"]
    assert host["name"] == "Lüchs…"


def test_a_message_steers_no_terminal(tmp_path):
    """It may have words of a file or of a server."""
    status, _, err = run(tmp_path, "filter", "Good", "--local", "--hosts", "\x1b[2J")
    told = "ovirt-scheduler: \\x1b[2J: cannot be read: No such file or directory\n"
    assert (status, err) == (66, told)


AS_STRANGER = """
import json, sys
from ovirt_scheduler.command import cli
for words in json.loads(sys.argv[1]):
    print(cli.main(words), flush=True)
"""


def test_a_user_without_rights_asks_the_daemon_and_is_told_what_is_closed(start_daemon):
    """A copy of the certificate is enough to ask; check and cert show say what they cannot read."""
    with open_folder() as folder:
        daemon = start_daemon({"Good": GOOD})
        daemon.state.chmod(0o700)
        for file, data in (("ca.pem", daemon.certificate.read_bytes()), ("ids", b"a b")):
            (folder / file).write_bytes(data)
        conf = folder / "s.conf"
        conf.write_text(f"listening_port = {daemon.url.rpartition(':')[2]}\n")
        asked = f"filter Good --hosts {folder}/ids --ca {folder}/ca.pem -o names".split()
        plain = ["--config", str(conf)]
        commands = [[*asked, *plain], ["check", *plain], ["cert", "show", *plain]]
        environment = {**os.environ, "STATE_DIRECTORY": str(daemon.state)}
        ended = script(AS_STRANGER, json.dumps(commands), before=as_stranger(), env=environment)
    assert ended.stderr == ""
    assert ended.stdout.startswith("a\nb\n0\n")
    told = ": Permission denied; run this with sudo, or as its owner"
    assert ended.stdout.count(told) == 2
    assert ended.stdout.count("certificate.pem: cannot be read by user ") == 2


def test_an_ordinary_user_is_told_how_to_have_the_certificate():
    """Whatever is to be done with that of another user's daemon."""
    with open_folder() as folder:
        assert run(folder, "cert", "make")[0] == 0
        actions = ("show", "export", "renew", "make")
        words = [["cert", action] for action in actions]
        environment = {**os.environ, "STATE_DIRECTORY": f"{folder}/state"}
        ended = script(AS_STRANGER, json.dumps(words), before=as_stranger(), env=environment)
    told = f"{ended.stdout}{ended.stderr}"
    assert told.count(": Permission denied; run this with sudo, or as its owner") == len(actions)
    assert "or set STATE_DIRECTORY to a folder of that user's, or name ssl_certificate" in told


def test_a_folder_that_is_closed_to_the_user_is_told():
    """Whatever is looked for in it."""
    with tempfile.TemporaryDirectory() as name:  # which is root's
        words = [["try", f"{name}/x.py"], ["new", "X", "--filter", "--folder", name]]
        words += [["replay", "--html", f"{name}/x.html"]]
        ended = script(AS_STRANGER, json.dumps(words), before=as_stranger())
    assert ended.stdout == "66\n73\n66\n"
    assert ended.stderr.count(f"ovirt-scheduler: {name}/") == 3
    assert ended.stderr.count(": Permission denied; run this as a user who may read it\n") == 2
    assert (
        ": cannot be written: Permission denied; choose another name or --folder\n" in ended.stderr
    )


def test_words_that_may_be_left_out_are_not_called_missing(tmp_path):
    """The method of a topic may take no argument."""
    status, _, err = run(tmp_path, "schedule", "backup")
    assert status == 2
    assert "the following arguments are required: METHOD\n" in err


def test_the_text_of_each_help_fits_into_eighty_columns(monkeypatch):
    """All but commands of examples, which a terminal may wrap: they are copied."""
    monkeypatch.setenv("COLUMNS", "80")
    top = cli.parser()
    (commands,) = (each for each in top._actions if isinstance(each.choices, dict))
    for command in (top, *commands.choices.values()):
        long = [line for line in command.format_help().splitlines() if len(line) > 80]
        assert [line for line in long if not line.startswith("  ovirt-scheduler ")] == []
