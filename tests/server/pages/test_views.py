"""What the pages show for a person: links, commands, charts, one row for the same failure."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import lxml.html
import pytest

from ovirt_scheduler.history.query import written
from ovirt_scheduler.history.store import HistoryState
from ovirt_scheduler.model.plans import ClusterLook, HostLook, Plan, Step
from ovirt_scheduler.server.pages import views
from tests.support.site import DECISION, VM, MadeSite, call, record, unit_state

NOW = time.time()
STEP = Step("web", "lynx", "puma", "web", "lynx", "puma", "CPU 84 % to 61 %")


def page_of(site: MadeSite, path: str) -> Any:
    return lxml.html.fromstring(site.text(path))


def cluster(**values: Any) -> ClusterLook:
    return ClusterLook("East", "approve", NOW, **values)


def test_a_cluster_has_its_hosts_with_their_use_and_vms(tmp_path: Path) -> None:
    hosts = (
        HostLook(
            "id of lynx", "lynx", "up", {"CPU": 41.6, "memory": 73.2}, (("id of web", "web"),)
        ),
        HostLook("id of puma", "puma", "maintenance", {}, ()),
    )
    policy = {"Scheduler": "default", "Hold": "3 min", "Margin": "5 %"}
    site = MadeSite(tmp_path, clusters=(cluster(hosts=hosts, policy=policy),))
    page = page_of(site, "/clusters/East")
    rows = [" ".join(row.text_content().split()) for row in page.xpath("//tbody/tr")]
    assert rows == ["lynxup 42 % 73 % 1web", "pumamaintenance - - 0"]
    assert "/decisions?vm=id%20of%20web" in page.xpath("//td//a/@href")
    terms = {each[0].text_content(): each[1].text_content() for each in page.xpath("//dl/div")}
    assert policy.items() <= terms.items()
    fields = json.loads(site.text("/clusters/East.json"))
    assert (fields["hosts"][0]["used"]["CPU"], fields["policy"]) == (41.6, policy)


def test_the_course_of_the_imbalance_is_drawn_with_its_axes(tmp_path: Path) -> None:
    course = tuple((NOW - 600 + 60 * minute, 3.0 * minute) for minute in range(11))
    page = page_of(MadeSite(tmp_path, clusters=(cluster(course=course),)), "/clusters/East")
    (points,) = page.xpath("//polyline/@points")
    assert [points.split()[place] for place in (0, -1)] == ["0.0,100.0", "600.0,0.0"]
    assert [each.text for each in page.xpath("//figure//span")][:2] == ["30 %", "0 %"]
    assert views.course(course[:1]) is None


@pytest.mark.parametrize(
    ("drive", "state", "mood"),
    [("approve", "1 plan waits for approval", "doubt"), ("dry-run", "well", "good")],
)
def test_a_cluster_is_not_well_while_a_plan_waits(
    tmp_path: Path, drive: str, state: str, mood: str
) -> None:
    waits = Plan("East", "load_balance", (STEP,), NOW)
    if drive == "dry-run":
        waits = Plan("East", "load_balance", (STEP,), NOW, state="told")
    site = MadeSite(tmp_path, clusters=(cluster(plans=(waits,)),))
    line = page_of(site, "/clusters/East").xpath("//p[contains(@class, 'line')]")[0]
    assert (line.text_content(), line.get("class")) == (state, f"line {mood}")
    assert state in page_of(site, "/status").xpath("//td/text()")


def test_units_that_fail_come_first_and_lead_to_their_page(tmp_path: Path) -> None:
    failed = record([call("Night/1", outcome="raised", message="oh")])
    units = (unit_state("Well"), unit_state("Night/1"))
    page = page_of(MadeSite(tmp_path, [failed], units=units), "/status")
    assert page.xpath("//tbody/tr/th/a/text()") == ["Night/1", "Well"]
    assert page.xpath("//li/strong/a/@href") == ["/units/Night%2F1"]


def test_commands_stand_in_monospace(tmp_path: Path) -> None:
    failed = record([call("Night", outcome="raised", message="oh")])
    for records, commands in (
        (True, [f"ovirt-scheduler try /plugins/Night.py --decision {DECISION}"]),
        (False, ["ovirt-scheduler snapshot CLUSTER -f cluster.xml",
                 "ovirt-scheduler try /plugins/Night.py --cluster cluster.xml"]),
    ):  # fmt: skip
        history = HistoryState(0, 0, 0, 0, records=records)
        folder = tmp_path / str(records)
        folder.mkdir()
        site = MadeSite(folder, [failed], units=(unit_state("Night"),), history=history)
        page = page_of(site, "/status")
        shown = page.xpath("//span[@class='mend']/code/text()")
        assert shown == ["ovirt-scheduler decisions --unit Night", *commands]
        # A snapshot is taken of the engine, and this daemon has none.
        assert ("add a section [engine]" in page.xpath("string(//span[@class='mend'])")) != records


def test_the_same_failure_is_one_row_with_how_often_and_since_when(tmp_path: Path) -> None:
    """Numbers and ids make no other failure."""
    made = [
        record(
            [call("Night", outcome="raised", message=text)], id=f"{number:016x}",
            time=written(NOW - 60 + number),
        )
        for number, text in enumerate((*(f"no host 8a6e{n}-17 at {n}" for n in range(9)), "other"))
    ]  # fmt: skip
    site = MadeSite(tmp_path, made, units=(unit_state("Night"),))
    failures = json.loads(site.text("/units/Night.json"))["failures"]
    assert [(each["message"], each["times"], each["since"]) for each in failures] == [
        ("other", 1, made[9]["time"]), ("no host 8a6e8-17 at 8", 9, made[0]["time"]),
    ]  # fmt: skip
    assert "9 times since" in site.text("/units/Night")


def test_the_two_decisions_of_a_placement_lead_to_each_other(tmp_path: Path) -> None:
    hosts = [{"id": "p", "name": "puma"}]
    made = [
        record([call("MaxVms")], hosts, id="1" * 16, time=written(NOW - 90), answer=["p"]),
        record([call("MaxVms")], hosts, id="2" * 16, time=written(NOW - 3), answer=["p"]),
        record([call("Even", "cost function")], hosts, id="3" * 16, time=written(NOW - 2),
               method="runCostFunctions", answer=["p"]),
        record([call("MaxVms")], hosts, id="4" * 16, vm={"id": "x", "name": "db"}),
    ]  # fmt: skip
    site = MadeSite(tmp_path, made)
    for number, links in (("2", "23"), ("3", "23"), ("1", ""), ("4", "")):
        page = page_of(site, f"/decisions/{number * 16}")
        calls = page.xpath("//nav[contains(@aria-label, 'placement')]/a/@href")
        assert calls == [f"/decisions/{each * 16}" for each in links], number


def test_a_decision_leads_to_its_vm_hosts_units_and_cluster(tmp_path: Path) -> None:
    hosts = [{"id": "p", "name": "puma", "verdicts": [{"unit": "MaxVms", "verdict": "passed"}]}]
    site = MadeSite(tmp_path, [record([call("MaxVms")], hosts, cluster="East")])
    links = page_of(site, f"/decisions/{DECISION}").xpath("//main//a/@href")
    expected = {
        f"/decisions?vm={VM['name']}",
        "/decisions?host=puma",
        "/units/MaxVms",
        "/clusters/East",
    }
    assert expected <= {*links}


def test_the_front_page_leads_to_the_status_and_what_is_missing_leads_back(tmp_path: Path) -> None:
    site = MadeSite(tmp_path)
    front = site.get("/")
    assert (front.status, front.headers["Location"]) == (302, "/status")
    for path in ("/nothing", "/units/Nobody", "/decisions/x"):
        missing = site.get(path)
        assert missing.status == 404
        assert "/status" in lxml.html.fromstring(missing.body).xpath("//main//a/@href")
        assert site.get(f"{path}.json").headers["Content-Type"].startswith("text/plain")
