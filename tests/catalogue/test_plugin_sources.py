"""The texts of a folder's files: each read once a look, and handed on where it may be imported."""

from __future__ import annotations

import sys

import pytest

from ovirt_scheduler.catalogue.plugin_files import PluginFile, Sources
from tests.support.place import plugin

_opened = []
_folders = []


def _hear(event, arguments):
    by_os = event == "open" and arguments[1] is None  # Python's own open tells it once more
    if by_os and _folders and str(arguments[0]).startswith(_folders[0]):
        _opened.append(str(arguments[0]))


sys.addaudithook(_hear)


@pytest.fixture
def opened(place):
    """The files in the first folder that this process opens."""
    _folders.append(f"{place.first}/")
    yield _opened
    _folders.clear()
    _opened.clear()


def test_a_look_reads_each_file_once_however_many_there_are(place, opened):
    """Helpers too, that all of them import."""
    place.write("_help", "x = 1")
    for number in range(20):
        place.write(f"p{number}", plugin(number, "import _help"))
    opened.clear()  # Python 3.9 opens what it writes in the same way
    assert len(place.registry.refresh().units) == 20
    assert len(opened) == len(set(opened)) == 21


def test_loading_does_not_hand_on_what_a_file_does_not_name(place, tmp_path, monkeypatch):
    """Fifty files of no concern for each other would be two and a half thousand texts."""
    handed = []
    analyse = place.executor.analyse
    monkeypatch.setattr(
        place.executor, "analyse", lambda candidate: handed.append(candidate) or analyse(candidate)
    )
    for number in range(20):
        place.write(f"p{number}", plugin(number, "import p7" if number == 3 else ""))
    assert place.faults() == []
    found = {each.source.name: [other.name for other in each.neighbours] for each in handed}
    assert found.pop("p3") == ["p7"]
    assert set(map(tuple, found.values())) == {()}


def importable(folder, texts, of="a"):
    """Names that the file may import, of a folder of texts by name."""
    files = {}
    for name, text in texts.items():
        *packages, module = name.split(".")
        path = folder.joinpath(*packages, f"{module}.py")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
        files[name] = PluginFile(name, path, folder)
    candidate = Sources([*files.values()]).candidate(files[of])
    return [source.name for source in candidate.neighbours]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"", []),
        (b"import b", ["b", "c"]),
        (b"from c import x", ["c"]),
        (b"def f():\n    import c", ["c"]),
        (b"__import__('b' + '')", ["b", "c", "d", "p", "p.q"]),
        (b"from importlib import import_module as x", ["b", "c", "d", "p", "p.q"]),
        (b"import p", ["d", "p", "p.q"]),
        (b"from p.q import y", ["d", "p", "p.q"]),
        ("# coding: latin-1\nimport c  # \xe9".encode("latin-1"), ["c"]),
        (b"import cc, b_c", []),
    ],
)
def test_what_a_file_may_import_is_all_that_its_words_name(tmp_path, text, found):
    """And what these name in turn; whoever computes a name may import any."""
    others = {"b": b"import c", "c": b"", "d": b"", "p": b"", "p.q": b"import d"}
    assert importable(tmp_path, {"a": text, **others}) == found
