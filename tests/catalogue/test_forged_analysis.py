"""What a file gains that writes the answer of its own analysis: a fault of its own, and no more."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import pytest

from ovirt_scheduler.catalogue.loader import Loader
from ovirt_scheduler.model.analysis import Analysis
from ovirt_scheduler.model.plugins import Candidate
from tests.support.place import Place, plugin

FORGES = """
import json, os, struct, sys
payload = json.dumps({answer}).encode()
frame = sys._getframe()
while "nonce" not in frame.f_locals:
    frame = frame.f_back
frame = struct.pack("!cQQ", b"a", frame.f_locals["nonce"], len(payload)) + payload
while frame:
    frame = frame[os.write(3, frame):]
os._exit(0)
def do_filter(hosts, vm, properties): ...
"""
NOT_ITS_OWN = "its analysis named files that are not its own; remove it"
NO_CODE = "units without the code of a file"


def unit(name: str = "forged", **fields: object) -> dict[str, object]:
    return {"name": name, "kind": "filter", "description": "", "line": 1, **fields}


def driver(**fields: object) -> dict[str, object]:
    return {"class_name": "D", "line": 1, "description": "", "name": "d", "topic": "t", **fields}


def forge(place: Place, answer: str) -> Path:
    return place.write("forged", FORGES.format(answer=answer))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"units": [unit()]}, NO_CODE),
        ({"units": [unit("two\nlines")]}, NO_CODE),
        ({"drivers": [driver()]}, NO_CODE),
        (f"{{'units': [{unit()}] * 20_000}}", "more than 1000 units, drivers or methods"),
        ({"units": [unit(class_name="an\nother")]}, "a unit whose name is not its class's"),
        ({"units": [unit(line=-1)]}, "a line that is none"),
        ({"fault": {"file": "/other.py", "line": 1 << 40, "message": "no"}}, "a line that is none"),
        ({"fault": {"file": "/other.py", "line": 7, "message": "a\nb"}}, ":7: a b"),
    ],
    ids=["no modules", "bad name, no modules", "driver without modules", "20,000 units",
         "name of another class", "line below 0", "line beyond all", "fault of another file"],
)  # fmt: skip
def test_a_forged_analysis_is_a_fault_of_its_own_file_alone(place, answer, told):
    path = forge(place, str(answer))
    place.write("good", plugin(1))
    catalogue = place.registry.refresh()
    (fault,) = catalogue.faults
    assert fault.file == str(path)
    assert told in str(fault)
    assert [name for _, name in catalogue.units] == ["good"]


def test_an_analysis_that_says_that_there_is_nothing_makes_a_helper(place):
    path = forge(place, "{'units': [], 'modules': [], 'drivers': []}")
    place.write("good", plugin(1))
    catalogue = place.registry.refresh()
    assert catalogue.faults == []
    assert catalogue.unused == (path,)
    assert [name for _, name in catalogue.units] == ["good"]


@pytest.mark.parametrize("where", ["forged.py", "/etc/passwd"])
def test_an_analysis_cannot_give_a_file_another_text_or_place(place, where):
    """The checksum is over its text, which is kept, too."""
    path = place.first / "forged.py"
    module = {"name": "forged", "path": str(place.first / where), "source": "", "code": ""}
    forge(place, str({"units": [unit()], "modules": [module]}))
    assert place.faults() == [f"{path}: {NOT_ITS_OWN}"]


def test_an_analysis_can_name_neither_a_strangers_helper_nor_one_twice(place):
    """It would be kept, and run."""
    path = place.write("good", plugin(1))

    for path_of_helper in ("/etc/passwd", str(path)):

        def analyse(candidate: Candidate, path: str = path_of_helper) -> Analysis:
            found = place.executor.analyse(candidate)
            (its_own,) = found.modules
            more = dataclasses.replace(its_own, path=path)
            return dataclasses.replace(found, modules=(its_own, more))

        place.registry.renew(Loader(place.settings, analyse))
        assert NOT_ITS_OWN in place.faults()[0]


@pytest.mark.parametrize("forged", ["two\nlines", "", "x" * 129], ids=["lines", "empty", "long"])
@pytest.mark.parametrize("of", ["unit", "class_name", "method"])
def test_no_name_of_a_forged_analysis_comes_through_that_cannot_be_shown(place, of, forged):
    path = place.write("good", plugin(1))

    def analyse(candidate: Candidate) -> Analysis:
        found = place.executor.analyse(candidate)
        if of == "unit":
            (its_own,) = found.units
            return dataclasses.replace(found, units=(dataclasses.replace(its_own, name=forged),))
        (scheduler,) = found.drivers
        (method,) = scheduler.methods
        changed = (
            dataclasses.replace(scheduler, class_name=forged)
            if of == "class_name"
            else dataclasses.replace(scheduler, methods=(dataclasses.replace(method, name=forged),))
        )
        return dataclasses.replace(found, drivers=(changed,))

    if of != "unit":
        place.write(
            "good",
            "from ovirt_scheduler.plugin import Driver\n"
            "class Good(Driver):\n    topic = 't'\n    def ask(self): ...\n",
        )
    place.registry.renew(Loader(place.settings, analyse))
    (fault,) = place.faults()
    assert fault.startswith(str(path))
    assert "at most 128 printable characters" in fault
    assert "\n" not in fault


def test_the_checksum_of_a_helper_is_over_its_text(place):
    path = place.write("_helper", "x = 1\n")
    path = path.rename(place.first / "helper.py")
    loader = Loader(place.settings, place.analyse)
    scan = loader.scan()
    loaded = loader.load(scan.files[0], scan)
    assert loaded.checksum == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
