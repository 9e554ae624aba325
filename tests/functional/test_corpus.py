"""The nasty samples of ``tests/data/corpus``: what is made of each document, conf file and frame.

What is read is named here; all other samples are refused, in one line. A sample for
each mistake that fuzzing found is among them. The calls and HTTP requests go to a daemon, in
``test_fuzz_daemon.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ovirt_scheduler.errors import ConfigError, PluginError, UnreadableDocument
from ovirt_scheduler.model.requests import Document
from ovirt_scheduler.model.tasks import CallInputs, Function, Returns
from ovirt_scheduler.processes.protocol import frames, messages
from ovirt_scheduler.settings import plugin_conf, scheduler_conf
from tests.support.fuzzing import assert_told, bounded, corpus
from tests.support.reading import read_hosts


def samples(folder: str) -> Any:
    return pytest.mark.parametrize("sample", corpus(folder), ids=lambda path: path.stem)


# -- hosts documents ----------------------------------------------------------------------

WITHOUT_HOSTS = {"hosts_empty", "instruction", "root_alone", "v3_attribute_of_a_collection"}
WITH_ONE_HOST = {
    *("both_versions", "cdata_between_hosts", "cluster_of_its_host", "elements_empty_but_texts"),
    *("encoding_latin1", "host_in_a_host", "hosts_in_a_host", "instruction_inside"),
    *("levels_of_hosts", "link_to_itself"),
    *("link_with_a_host_in_it", "link_without_rel", "memory_in_arabic_digits", "memory_mixed"),
    *("memory_negative", "memory_of_a_thousand_digits", "memory_of_elements", "speed_infinite"),
    *("memory_of_thirty_digits", "memory_with_underscores", "speed_nan", "text_between_elements"),
    *("text_between_hosts", "utf16", "v3_boots_in_boots", "v3_disks_in_disks", "v3_status_empty"),
    *("v3_statistic_of_no_values", "v3_status_in_a_status", "v3_statuses_three_deep"),
    "v3_storage_manager_in_another",
}
WRONG_DOCUMENTS = {
    "attributes_hundreds": "<host> has more than 50 attributes",
    "doctype_external": "a document type is not allowed",
    "elements_empty": "host number 1 (id a): <memory>: '' is not an integer",
    "encoding_lies": "the declared encoding utf-16 is not that of the bytes",
    "entity_bomb": "a document type is not allowed",
    "hosts_in_hosts": "expected <host>, found <hosts>",
    "id_of_blanks": "host number 1 has no id",
    "id_turned_round": "has the id \N{REPLACEMENT CHARACTER}a of another one",
    "ids_twice": "line 1, column 22: host number 2 has the id a of another one",
    "levels_three_hundred": "more than 200 levels of elements",
    "v3_topology_of_words": "<cpu><topology><sockets>: 'one' is not an integer",
    "xinclude": "a namespace is not allowed",
}


@samples("documents")
def test_a_document(sample: Path) -> None:
    """Its one host and no stranger, none, or a refusal that says where."""
    try:
        with bounded():
            ids = [host.id for host in read_hosts(Document(sample.read_bytes()))]
    except UnreadableDocument as error:
        assert sample.stem not in WITH_ONE_HOST | WITHOUT_HOSTS, error
        assert_told(str(error))
        assert str(error).startswith("hosts")
        assert WRONG_DOCUMENTS.get(sample.stem, "") in str(error)
    else:
        assert ids in (["a"], [])
        assert sample.stem in (WITH_ONE_HOST if ids else WITHOUT_HOSTS)


# -- conf files ---------------------------------------------------------------------------

GOOD_CONF = {  # what the property set is called then
    "backslash_at_the_end": "a\\",
    "comment_in_quotes": "a#b",
    "interpolation": "%(other)s ${HOME} $PYTHONPATH {0}",
    "interpolation_of_itself": "%(name)s",
    "line_long": "some",
    "lines_empty": "some",
    "mark": "some",
    "no_line_end": "some",
    "quotes_around_the_key": "a",
}
WRONG_CONF = {
    "comment_in_a_value": "1: name: a # in a value needs quotes",
    "key_of_a_thousand_letters": f"1: `{'n' * 60}`: the name goes on for 1000 characters",
    "key_turned_round": "1: holds the character U+202E, which is invisible",
    "key_with_a_hard_space": "1: holds the character U+00A0, which is invisible",
    "key_with_a_mark": "2: holds the character U+FEFF, which is invisible",
    "key_twice": "2: `name = b`: occurs twice",
    "kinds_empty": "not nothing",
    "line_too_long": "1: is longer than 4096 characters",
    "nul": "1: holds the character U+0000, which is invisible",
    "number_of_thirty_digits": "timeout: expected seconds",
    "quote_open": "the quotes do not match",
    "quotes_triple": "1: name: triple quotes are not read here",
    "section_nested": "1: [a]: there is no such section",
    "section_unknown": "there is no such section",
    "utf16": "1: is not UTF-8 text here",
    "value_turned_round": "1: holds the character U+202E, which is invisible",
}
ELSEWHERE = Path("/etc/some.conf")


@samples("conf")
def test_a_conf_file(sample: Path, tmp_path: Path) -> None:
    """A plugin's: its values, or a refusal with file and line. The daemon's: likewise."""
    try:
        with bounded():
            name = plugin_conf.parse(sample.read_bytes(), ELSEWHERE).name
    except PluginError as error:
        assert sample.stem not in GOOD_CONF, error
        assert_told(str(error))
        assert (error.file, bool(error.line)) == (str(ELSEWHERE), True)
        assert WRONG_CONF.get(sample.stem, "") in str(error)
    else:
        assert name == GOOD_CONF[sample.stem]
    file = tmp_path / "scheduler.conf"
    file.write_bytes(sample.read_bytes())
    try:
        with bounded():
            scheduler_conf.load(file, {})
    except ConfigError as error:
        assert_told(str(error))


# -- frames -------------------------------------------------------------------------------

UNFINISHED = {*("length_cut", "length_longer_than_what_comes", "nothing", "text")}
GOOD_FRAMES = {
    *("analysis", "answer", "answer_twice", "kind_unknown"),
    *("nonce_of_all_ones", "read_of_a_thousand_digits", "second_cut", "two_in_one"),
    *("value_of_a_place_twice", "value_of_costs", "value_of_strangers"),
}
WRONG_FRAMES = {
    "length_of_all_ones": "a frame of 18446744073709551615 bytes; at most 67108864",
    "json_in_utf16": "not an answer of a filter",
    "json_with_a_mark": "not an answer of a filter",
    "length_zero": "not an answer of a filter",
    "pickle": "not an answer of a filter",
    "value_of_costs_that_are_true": "no list of costs",
    "value_of_a_place_beyond": "a place beyond the hosts given",
}


def read_frames(data: bytes, name: str) -> list[object]:
    given = CallInputs(("h1", "h2", "h3"))
    returns = Returns.COSTS if "costs" in name else Returns.HOSTS
    function = Function("u", "filter", "do_filter", returns, parameters=("hosts",))
    return [
        messages.unpack_analysis(payload)
        if name.startswith("analysis")
        else messages.unpack_answer(payload, function, given)
        for _, _, payload in frames.Unframer(messages.ANALYSIS_LIMIT).feed(data)
    ]


@samples("frames")
def test_a_frame(sample: Path) -> None:
    """What it tells, nothing yet, or a refusal."""
    try:
        with bounded():
            found = read_frames(sample.read_bytes(), sample.stem)
    except frames.FrameError as error:
        assert sample.stem not in GOOD_FRAMES | UNFINISHED, error
        assert_told(str(error))
        assert WRONG_FRAMES.get(sample.stem, "") in str(error)
    else:
        assert sample.stem in (GOOD_FRAMES if found else UNFINISHED)
