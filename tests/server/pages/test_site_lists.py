"""Lists of decisions, as pages and as JSON."""

from __future__ import annotations

import json
import time

import lxml.html
import pytest

from ovirt_scheduler.history.query import written
from tests.support.site import DECISION, MadeSite, call, record, unit_state


def test_a_search_that_finds_nothing_does_not_say_that_nothing_is_kept(tmp_path):
    """There are decisions, only none that fits."""
    site = MadeSite(tmp_path, [record([call("Night")])])
    assert "No decision that is kept fits." in site.text("/decisions?vm=nosuch")
    assert "No decision" not in site.text("/decisions")


def test_a_search_that_makes_no_sense_is_400(tmp_path):
    """Which field, and what was expected, on the page and as JSON."""
    site = MadeSite(tmp_path)
    for target in ("/decisions?since=noon", "/decisions.json?since=noon"):
        page = site.get(target)
        assert (page.status, b"since" in page.body) == (400, True)
    assert site.get("/decisions.json?limit=1001").status == 400
    assert site.get("/decisions?limit=0").status == 400
    assert site.get("/decisions.json?colour=red").status == 400


def test_a_list_as_json_has_whole_records_or_what_a_list_shows_of_them(tmp_path):
    """As brief says; whatever it says, the page has what it shows."""
    site = MadeSite(tmp_path, [record([call("Night")])])
    for brief, has_units in (("", True), ("?brief=false", True), ("?brief=true", False)):
        (found,) = json.loads(site.text(f"/decisions.json{brief}"))
        assert ("units" in found) is has_units
        assert f"/decisions/{DECISION}" in site.text(f"/decisions{brief}")
    assert b"expected a boolean" in site.get("/decisions.json?brief=1").body


def test_a_chart_has_a_bar_for_the_calls_of_a_minute_and_one_for_the_failures(tmp_path):
    """As high as they are many; its text says the same, also where there was no call."""
    made = [record([call("Night", outcome=outcome)]) for outcome in ("raised", "ok", "ok", "ok")]
    site = MadeSite(tmp_path, made, units=(unit_state("Idle"), unit_state("Night")))
    idle, night = lxml.html.fromstring(site.text("/status")).xpath("//svg")
    assert idle.get("aria-label") == idle.findtext("title") == "no calls"
    assert night.get("aria-label") == "calls in the last hour: 4, 1 of them failed"
    bars = [(bar.get("class"), bar.get("y"), bar.get("height")) for bar in night.xpath(".//rect")]
    assert bars == [("calls", "0.00", "24.00"), ("failed", "18.00", "6.00")]
    assert "chart large" in site.text("/units/Night")


@pytest.mark.parametrize(("count", "limit"), [(7, "&limit=2"), (120, "")])
def test_a_list_leads_from_page_to_page(tmp_path, count, limit):
    """From each of four or three pages to the next, and from the last to none."""
    made = [record([call("Night")], id=f"{number:016x}") for number in range(count)]
    site = MadeSite(tmp_path, made)
    target, pages = f"/decisions?unit=Night{limit}", []
    while target and len(pages) <= count:
        page = lxml.html.fromstring(site.text(target))
        pages.append(page.xpath("//tbody/tr/td[1]/a/@href"))
        (target,) = page.xpath("//a[@rel='next']/@href") or [None]
    assert [link for links in pages for link in links] == [
        f"/decisions/{number:016x}" for number in reversed(range(count))
    ]
    assert len(pages) == (4 if limit else 3)


def test_a_list_leads_to_older_decisions(tmp_path):
    """With what was searched for, however many were asked for; the last list leads to none.

    A call that began earlier, or at the same time, may have been written later.
    """
    now = time.time()
    made = [
        record([call("Night")], id=f"{number:016x}", time=written(now + seconds))
        for number, seconds in enumerate((1, 1, 0, 2))
    ]
    site = MadeSite(tmp_path, made)
    target, seen = "/decisions?unit=Night&limit=1", []
    for _ in made:
        page = lxml.html.fromstring(site.text(target))
        seen += page.xpath("//tbody/tr/td[1]/a/@href")
        (target,) = page.xpath("//a[@rel='next']/@href")
    assert seen == [f"/decisions/{number:016x}" for number in (3, 2, 1, 0)]
    assert "Older ones" not in site.text(target)


def test_a_list_costs_the_same_whatever_the_size_of_its_decisions(tmp_path):
    """It shows one that says too much to be read at once, and the failures in it, too."""
    units = [call("Odd", outcome="raised", message="oh"), *(call(f"U{n}") for n in range(999))]
    hosts = [{"id": f"h{number}"} for number in range(2001)]
    site = MadeSite(tmp_path, [record(units, hosts)], units=(unit_state("Odd"),))
    assert site.get(f"/decisions/{DECISION}").status == 503
    for target in ("/status", "/decisions", "/units/Odd"):
        assert "2001 hosts: 2001 left; Odd failed" in site.text(target)
    (failure,) = json.loads(site.text("/units/Odd.json"))["failures"]
    assert (failure["decision"], failure["message"]) == (DECISION, "oh")
