"""Hosts, VM and properties as they come from the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ovirt_scheduler.command.calls import input_files
from ovirt_scheduler.errors import BadInput, BadUsage

DOCUMENT = (
    '<hosts><host id="1"><name>lynx</name><vm><host id="9"/></vm></host><host id="2"/></hosts>'
)


def test_hosts_are_a_document_or_ids(tmp_path):
    """What the file holds, decides (contract 1.4)."""
    file = tmp_path / "hosts"
    file.write_text(f"\n {DOCUMENT}")
    assert input_files.hosts(Path(file)) == f"\n {DOCUMENT}"
    file.write_text("one two\nthree\n")
    assert input_files.hosts(Path(file)) == ("one", "two", "three")


def test_a_vm_is_a_document_or_one_id(tmp_path):
    """Two words are neither, nor is what no id looks like."""
    file = tmp_path / "vm"
    file.write_text("<vm/>")
    assert input_files.vm(file) == "<vm/>"
    file.write_text(" an-id\n")
    assert input_files.vm(file) == "an-id"
    file.write_text("two words")
    with pytest.raises(BadInput, match="holds 2 ids; give the document or the id of one VM"):
        input_files.vm(file)
    file.write_text("404!")
    with pytest.raises(
        BadInput, match="'404!' in it is no id of a VM; give an XML document of VMs"
    ):
        input_files.vm(file)


@pytest.mark.parametrize(
    ("content", "told"),
    [("", "is empty"), ("\n", "is empty"), ("# Hosts\n\nlynx", "'#' in it is no id of a host")],
)
def test_a_file_of_something_else_is_refused(tmp_path, content, told):
    """A download that failed, or another file than was meant."""
    (tmp_path / "hosts").write_text(content)
    with pytest.raises(BadInput, match=rf"hosts: {told}; give an XML document"):
        input_files.hosts(tmp_path / "hosts")


def test_a_dash_is_standard_input(tmp_path, monkeypatch):
    """For a pipe, and for one option alone."""
    (tmp_path / "hosts").write_text("one two")
    with (tmp_path / "hosts").open() as opened:
        monkeypatch.setattr("sys.stdin", opened)
        assert input_files.hosts(Path("-")) == ("one", "two")
        with pytest.raises(BadInput, match="standard input: is empty, or was read before; give"):
            input_files.vm(Path("-"))


def test_a_file_without_an_end_is_refused(monkeypatch):
    """A device that always has more to read, as standard input or by its name."""
    with Path("/dev/zero").open() as endless:
        monkeypatch.setattr("sys.stdin", endless)
        told = "^standard input: cannot be read: it is longer than 256 MiB"
        with pytest.raises(BadInput, match=told):
            input_files.hosts(Path("-"))
    with pytest.raises(BadInput, match=r"^/dev/zero: cannot be read: it is not a plain file"):
        input_files.hosts(Path("/dev/zero"))


@pytest.mark.parametrize(("content", "told"), [(None, "No such file"), (b"\xff\xfe", "UTF-8")])
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, told):
    """With what is wrong."""
    file = tmp_path / "hosts.xml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInput, match=rf"hosts\.xml: .*{told}"):
        input_files.hosts(Path(file))


def test_an_empty_name_is_no_file():
    """A variable of a shell that is not set."""
    options = argparse.Namespace(hosts=Path(), property=[])  # as argparse reads it
    with pytest.raises(BadInput, match=r"^\.: cannot be read: Is a directory"):
        input_files.read_options(options)


def test_properties_are_pairs():
    """Only the first = parts them."""
    assert input_files.pairs(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for wrong in ("a", "=1"):
        with pytest.raises(BadUsage, match=f"^--set '{wrong}' is not of the form key=value"):
            input_files.pairs([wrong], "--set")


def test_hosts_go_by_their_names():
    """Of the hosts themselves, not of what is said of them; ids have none."""
    assert input_files.names(DOCUMENT) == {"1": "lynx", "2": ""}
    assert input_files.names('<host id="7"><name>puma</name></host>') == {"7": "puma"}
    assert input_files.names(("a", "b")) == {"a": "", "b": ""}
    assert input_files.names("<hosts") == {}


def test_arguments_are_json_or_text_or_a_file(tmp_path):
    """What does not read as JSON is text as it stands."""
    (tmp_path / "hosts.xml").write_text(DOCUMENT)
    given = ["size=3", 'ids=[1, "a"]', "on=true", "name=web 1", "at=22:00", "e=", "k=a=b"]
    assert input_files.json_pairs([*given, f"hosts=@{tmp_path}/hosts.xml"]) == {
        "size": 3,
        "ids": [1, "a"],
        "on": True,
        "name": "web 1",
        "at": "22:00",
        "e": "",
        "k": "a=b",
        "hosts": DOCUMENT,
    }
    with pytest.raises(BadUsage, match="key=value"):
        input_files.json_pairs(["size"])
    with pytest.raises(BadInput, match="nowhere: cannot be read"):
        input_files.json_pairs([f"hosts=@{tmp_path}/nowhere"])


def test_a_factor_may_be_left_out():
    """NAME or NAME=FACTOR, which is an integer."""
    assert dict(input_files.factors("score", ["a", "b=-3"])) == {"a": None, "b": -3}
    with pytest.raises(BadUsage, match="score b=much: the factor of b has to be an integer"):
        dict(input_files.factors("score", ["b=much"]))
    with pytest.raises(BadUsage, match="score: b occurs twice"):
        dict(input_files.factors("score", ["b=1", "a", "b=2"]))


@pytest.mark.parametrize("value", ['{"mail": 900', "[1, 2", "[" * 100_000])
def test_json_with_a_mistake_is_not_taken_for_text(value):
    """A list or a dict that lacks its end; the argument is named."""
    with pytest.raises(BadUsage, match=r"^sizes: .* is no JSON: .*; put a text"):
        input_files.json_pairs([f"sizes={value}"])
    assert input_files.json_pairs(['sizes="[1"']) == {"sizes": "[1"}
