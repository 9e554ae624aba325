"""What each page says, of a real history."""

from __future__ import annotations

import json
import sys
import time
from urllib.parse import quote

import lxml.html
import pytest

from ovirt_scheduler.engine.inventory import EngineState
from ovirt_scheduler.history.store import HistoryState
from ovirt_scheduler.model.losses import Loss
from ovirt_scheduler.model.plans import ClusterLook, Plan, Step
from ovirt_scheduler.server.pages.daemon_state import UnloadedFile
from tests.support.site import DECISION, WORST_LOSS, MadeSite, call, record, unit_state

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>&\"'"
LYNX, PUMA = {"id": "l", "name": "lynx"}, {"id": "p", "name": "puma"}


def plan(reason):
    step = Step("w", "l", "p", "web", "lynx", "puma", reason)
    return Plan("East", "load_balance", (step,), 1_800_000_000.0, 23.44)


def verdict(unit, said, **further):
    return {"unit": unit, "verdict": said, **further}


def cells(page):
    """The grid of a decision: each host's row, by what its columns are named."""
    (table,) = lxml.html.fromstring(page).xpath("//div[contains(@class, 'grid')]/table")
    heads = [head.text_content().split()[0] for head in table.xpath("./thead/tr/th")]
    rows = [[cell.text_content().strip() for cell in row] for row in table.xpath("./tbody/tr")]
    return {row[0]: dict(zip(heads[1:], row[1:])) for row in rows}


def test_the_grid_has_each_verdict(tmp_path):
    """Who removed each host, with the reason; what failed; who was not asked any more."""
    hosts = [
        {**LYNX, "verdicts": [verdict("MaxVms", "removed", reason="runs 12 VMs"), verdict("Night", "never asked")]},
        {**PUMA, "verdicts": [verdict("MaxVms", "passed"), verdict("Night", "failed")]},
    ]  # fmt: skip
    units = [call("MaxVms"), call("Night", outcome="raised", message="RuntimeError: no")]
    site = MadeSite(tmp_path, [record(units, hosts)])
    found = cells(site.text(f"/decisions/{DECISION}"))
    assert [*found] == ["puma", "lynx"]  # those that were removed come last
    assert found["puma"] == {"MaxVms": "passed", "Night": "the unit failed"}
    assert found["lynx"] == {"MaxVms": "removedruns 12 VMs", "Night": "not asked"}


@pytest.mark.parametrize(
    ("ended", "heads"),
    [({}, 5), ({"message": "KeyError"}, 6), ({"notes": ["3 ids were not in the call"]}, 6)],
)
def test_messages_have_a_column_where_a_call_has_one(tmp_path, ended, heads):
    site = MadeSite(tmp_path, [record([call("MaxVms"), call("Night", **ended)])])
    page = lxml.html.fromstring(site.text(f"/decisions/{DECISION}"))
    table = page.xpath("//div[@aria-label='How the calls ended']/table")[0]
    assert len(table.xpath("./thead/tr/th")) == heads
    assert {len(row) for row in table.xpath("./tbody/tr")} == {heads}


def test_a_decision_that_left_no_host_is_not_shown_as_a_good_one(tmp_path):
    """Nor one in which a unit failed, whose name is told."""
    removed = [{**LYNX, "verdicts": [verdict("MaxVms", "removed")]}]
    costs = [{**PUMA, "costs": [{"unit": "Even", "cost": 1, "factor": 1, "weighted": 1}]}]
    broken = call("Odd", "cost function", outcome="raised", message="oh", factor=1)
    even = call("Even", "cost function", factor=1)
    made = [
        record([call("MaxVms")], removed),
        record([even, broken], costs, id="1" * 16, method="runCostFunctions", answer=["p"]),
        record([even], costs, id="2" * 16, method="runCostFunctions", answer=["p"]),
    ]
    rows = lxml.html.fromstring(MadeSite(tmp_path, made).text("/decisions")).xpath("//tbody/tr")
    told = [(row[3].get("class").split()[0], row[3].text_content()) for row in rows]
    assert told == [
        ("good", "1 host: puma is best"),
        ("bad", "1 host: puma is best; Odd failed"),
        ("bad", "1 host: none left, 1 removed by MaxVms"),
    ]


def test_the_grid_has_each_cost(tmp_path):
    """As factor times cost, with the sum and the rank; the best host first."""
    hosts = [
        {**LYNX, "costs": [{"unit": "EvenVms", "cost": 9, "factor": 3, "weighted": 27}]},
        {**PUMA, "costs": [{"unit": "EvenVms", "cost": 2, "factor": 3, "weighted": 6}]},
    ]
    for host, rank in zip(hosts, (2, 1)):
        host.update(total=host["costs"][0]["weighted"], rank=rank)
    made = record([call("EvenVms", "cost function", factor=3)], hosts, method="runCostFunctions")
    found = cells(MadeSite(tmp_path, [made]).text(f"/decisions/{DECISION}"))
    assert [*found.items()] == [
        ("puma", {"Rank": "1", "Cost": "6", "EvenVms": "6 = 3 × 2"}),
        ("lynx", {"Rank": "2", "Cost": "27", "EvenVms": "27 = 3 × 9"}),
    ]


def test_the_page_of_a_huge_decision_has_the_best_of_its_hosts(tmp_path):
    """And says how many more there are; its heading counts them all."""
    hosts = [
        {"id": f"h{number}", "verdicts": [verdict("MaxVms", "passed" if number else "removed")]}
        for number in range(1200)
    ]
    site = MadeSite(tmp_path, [record([call("MaxVms")], hosts)])
    page = site.text(f"/decisions/{DECISION}")
    found = cells(page)
    assert len(found) == 100
    assert "h0" not in found  # it was removed, and is the last
    assert "More hosts in the JSON below: 1100." in page
    assert "1200 hosts: 1199 left, 1 removed by MaxVms" in page
    assert len(json.loads(site.text(f"/decisions/{DECISION}.json"))["hosts"]) == 1200


def test_markup_is_text_wherever_it_comes_from(tmp_path):
    """Of names, messages, reasons, properties, descriptions and of what was searched for."""
    hosts = [
        {"id": MARKUP, "name": MARKUP, "verdicts": [verdict(MARKUP, "removed", reason=MARKUP)]}
    ]
    made = record(
        [call(MARKUP, outcome="raised", message=MARKUP, notes=[MARKUP])], hosts,
        vm={"id": MARKUP, "name": MARKUP}, caller=MARKUP, cluster=MARKUP,
        properties={MARKUP: MARKUP}, errors=[MARKUP],
    )  # fmt: skip
    unit = unit_state(
        MARKUP,
        description=MARKUP,
        properties=((MARKUP, MARKUP),),
        old_version=1.0,
        old_since=1.0,
        old_because=MARKUP,
    )
    site = MadeSite(
        tmp_path, [made], units=(unit,), unloaded=(UnloadedFile("a.py", MARKUP),), stuck=MARKUP, plugins_path=MARKUP,
        clusters=(ClusterLook(MARKUP, "on", problem=MARKUP, plans=(plan(MARKUP),)),), engine=EngineState(MARKUP, MARKUP),
    )  # fmt: skip
    (link,) = set(
        lxml.html.fromstring(site.text("/status")).xpath("//a[contains(@href, 'units')]/@href")
    )
    (cluster,) = set(
        lxml.html.fromstring(site.text("/status")).xpath("//a[contains(@href, 'clusters')]/@href")
    )
    asked = f"/decisions?vm={link.rpartition('/')[2]}"
    for target in ("/status", asked, f"/decisions/{DECISION}", link, cluster):
        text = site.text(target)
        page = lxml.html.fromstring(text)
        assert "alert(1)" in page.text_content() or asked == target
        assert not page.xpath("//script | //img | //iframe | //@*[starts-with(name(), 'on')]")
        assert "<script" not in text


@pytest.mark.parametrize("name", ["a/b", "../status", "Été", "50%", "x.json", "a b?c#d&e", "日本"])
def test_the_page_of_a_unit_with_an_odd_name(tmp_path, name):
    """The link on /status leads to it, and that to its JSON."""
    made = record([call(name)])
    site = MadeSite(tmp_path, [made], units=(unit_state(name), unit_state("Other")))
    links = lxml.html.fromstring(site.text("/status")).xpath("//th/a/@href")
    (link,) = [each for each in links if each != "/units/Other"]
    assert lxml.html.fromstring(site.text(link)).findtext(".//h1") == name
    told = json.loads(site.text(f"{link}.json"))
    assert [each["name"] for each in told["units"]] == [name]
    assert DECISION in site.text(link)


def test_a_unit_that_fails_says_since_when_and_what_to_do(tmp_path):
    """On /status, on its own page with its last failures, and in both as JSON."""
    made = record([call("Night", outcome="raised", message="RuntimeError: no (Night.py:3)")])
    site = MadeSite(tmp_path, [made], units=(unit_state("Night"), unit_state("Well")))
    page = lxml.html.fromstring(site.text("/status")).text_content()
    assert "2 units; 1 failing: Night, since " in page
    assert "RuntimeError: no (Night.py:3)" in page
    assert "ovirt-scheduler try /plugins/Night.py" in page
    told = json.loads(site.text("/status.json"))
    assert (told["well"], [each["state"] for each in told["units"]]) == (False, ["failing", "ok"])
    (failure,) = json.loads(site.text("/units/Night.json"))["failures"]
    assert (failure["decision"], failure["message"]) == (DECISION, "RuntimeError: no (Night.py:3)")
    assert f"/decisions/{DECISION}" in site.text("/units/Night")


def test_an_older_version_that_answers_is_told(tmp_path):
    """Once: not as a file that is not loaded, too."""
    unit = unit_state(
        "Night", old_version=1.0, old_since=time.time(), old_because="Night.py:3: syntax error"
    )
    told = json.loads(MadeSite(tmp_path, units=(unit,)).text("/status.json"))
    assert told["units"][0]["state"] == "old version"
    assert [each["kind"] for each in told["problems"]] == ["old version"]


def test_an_older_version_that_fails_is_told_as_both(tmp_path):
    """Its mistake may be gone from the file, which has another."""
    unit = unit_state(
        "Night", old_version=1.0, old_since=time.time(), old_because="Night.py:3: syntax error"
    )
    site = MadeSite(
        tmp_path, [record([call("Night", outcome="raised", message="no")])], units=(unit,)
    )
    told = json.loads(site.text("/status.json"))
    assert [each["kind"] for each in told["problems"]] == ["failing", "old version"]
    assert told["units"][0]["because"] == "no"
    assert told["units"][0]["old_version"].endswith("Night.py:3: syntax error")


def test_the_page_of_a_file_with_several_units_has_what_each_says(tmp_path):
    """Its description, its properties, and a chart of its calls if there are any."""
    filtering = unit_state("Rack", description="Keeps racks.", properties=(("rack", "[A-Z]"),))
    scoring = unit_state("Rack", kind="cost function", description="Counts racks.")
    site = MadeSite(tmp_path, [record([call("Rack")])], units=(scoring, filtering))
    text = site.text("/units/Rack")
    for words in ("Keeps racks.", "Counts racks.", "Property rack", "[A-Z]",
                  "Filter: calls in the last hour"):  # fmt: skip
        assert words in text
    assert "Cost function: calls in the last hour" not in text
    assert text.count("median") == 1


def test_a_cluster_has_its_plans_and_its_imbalance(tmp_path):
    """Each migration with its reason, and how to approve it."""
    waiting = plan("CPU 84 % to 61 %")
    look = ClusterLook("East", "approve", time.time(), imbalance=23.44, plans=(waiting,))
    site = MadeSite(tmp_path, clusters=(look,))
    page = lxml.html.fromstring(site.text("/clusters/East")).text_content()
    assert "web from lynx to puma: CPU 84 % to 61 %" in page
    assert f"ovirt-scheduler plan approve {waiting.id}" in page
    assert "23.4 %" in page
    assert "23.4 %" in lxml.html.fromstring(site.text("/status")).text_content()
    told = json.loads(site.text("/clusters/East.json"))
    assert (told["imbalance"], told["plans"][0]["plan"]) == (23.4, waiting.id)


def test_what_a_cluster_can_lose_is_part_of_its_state_and_no_problem(tmp_path):
    look = ClusterLook("East", "on", time.time(), worst_loss=WORST_LOSS)
    site = MadeSite(tmp_path, clusters=(look,))
    for path in ("/status", "/clusters/East"):
        page = lxml.html.fromstring(site.text(path)).text_content()
        assert "if lynx fails, 1 VM without a place" in page
    assert json.loads(site.text("/status.json"))["well"]
    safe = WORST_LOSS._replace(loss=Loss("lynx"), without=("Night",))
    site = MadeSite(tmp_path, clusters=(look._replace(worst_loss=safe),))
    page = lxml.html.fromstring(site.text("/clusters/East")).text_content()
    assert "every VM finds a place, whichever host fails; without Night, which failed" in page
    assert "without a place" not in site.text("/status")


def test_a_cluster_has_its_own_decisions(tmp_path):
    """Those that the daemon made for it by itself, and no other's."""
    one = record([call("even", "load balancer")], cluster="East", id="1" * 16, method="loadBalance")
    two = record([call("even", "load balancer")], cluster="West", id="2" * 16, method="loadBalance")
    looks = (ClusterLook("East", "on", time.time()), ClusterLook("West", "dry-run"))
    site = MadeSite(tmp_path, [one, two], clusters=looks)
    assert "1" * 16 in site.text("/clusters/East")
    assert "2" * 16 not in site.text("/clusters/East")
    assert json.loads(site.text("/clusters/West.json"))["drive"] == "dry-run"
    (found,) = json.loads(site.text("/decisions.json?cluster=West"))
    assert found["id"] == "2" * 16


def test_a_cluster_that_another_daemon_drives_says_so(tmp_path):
    """It is no problem: the status stays well."""
    site = MadeSite(tmp_path, clusters=(ClusterLook("East", "on", driven_by="sched-a-9f46"),))
    assert "stands by, sched-a-9f46 drives it" in site.text("/clusters/East")
    told = json.loads(site.text("/status.json"))
    assert told["clusters"][0]["driven_by"] == "sched-a-9f46"
    assert told["problems"] == []


@pytest.mark.parametrize(
    ("problem", "undeleted", "what"),
    [
        ("disk I/O error", "", "the history is not written"),
        ("", "no room", "the history grows, as its oldest decisions cannot be deleted"),
    ],
)
def test_a_history_that_is_not_written_or_grows_is_a_problem(tmp_path, problem, undeleted, what):
    """With what SQLite said of it."""
    history = HistoryState(1, 4096, 0, 0, problem, undeleted)
    told = json.loads(MadeSite(tmp_path, history=history).text("/status.json"))
    (found,) = told["problems"]
    assert (found["kind"], found["what"]) == ("history", what)
    assert found["detail"] == problem + undeleted


def test_a_certificate_that_has_ended_is_told_with_its_day(tmp_path):
    """And not as one that ends in minus four days."""
    page = MadeSite(tmp_path, certificate_ends=1_700_000_000.0).text("/status")
    assert "ended on 2023-11-14" in page
    assert "in -" not in page


def test_each_page_has_its_twin_in_json(tmp_path):
    """At the path with .json."""
    site = MadeSite(
        tmp_path, [record([call("Night")])], units=(unit_state("Night"),),
        clusters=(ClusterLook("East", "on"),),
    )  # fmt: skip
    pages = ("/status", "/decisions", f"/decisions/{DECISION}", "/units/Night", "/clusters/East")
    for page in pages:
        assert site.get(page).headers["Content-Type"] == "text/html; charset=utf-8"
        assert site.get(f"{page}.json").headers["Content-Type"] == "application/json"
        json.loads(site.text(f"{page}.json"))


def test_health(tmp_path):
    """200, or 503 and why; as JSON to who prefers that (contract 9)."""
    site = MadeSite(tmp_path)
    assert (site.get("/health").status, site.get("/health").body) == (200, b"ok\n")
    as_json = {"accept": "application/json"}
    assert json.loads(site.get("/health", headers=as_json).body) == {"ok": True}
    assert json.loads(site.get("/health.json").body) == {"ok": True}
    site = MadeSite(tmp_path, stuck="the zygote does not start")
    assert (site.get("/health").status, site.get("/health").body) == (503, b"the zygote does not start\n")  # fmt: skip
    answer = site.get("/health", headers=as_json)
    assert answer.status == 503
    assert json.loads(answer.body) == {"ok": False, "problem": "the zygote does not start"}


@pytest.mark.parametrize(
    "target",
    ["/units/Nobody", "/clusters/Nowhere", "/decisions/0000000000000000", "/decisions/x", "/units/",
     "/status/x", "/metrics.json", "/style.json", "/health/x", "//[", "/units/..%2f..%2fetc"],
)  # fmt: skip
def test_what_is_not_there_is_404(tmp_path, target):
    """And says where to begin."""
    page = MadeSite(tmp_path, units=(unit_state("Night"),)).get(target)
    assert (page.status, b"/status" in page.body) == (404, True)


def test_a_units_page_has_a_failure_however_many_calls_were_well_since(tmp_path):
    """And not those of another unit in the same decisions."""
    made = [record([call("Night", outcome="raised", message="long ago"),
                    call("Other", outcome="raised", message="another's")])]  # fmt: skip
    made += [
        record([call("Night"), call("Other", outcome="raised", message="no")], id=f"{number:016x}")
        for number in range(30)
    ]
    site = MadeSite(tmp_path, made, units=(unit_state("Night"), unit_state("Other")))
    failures = json.loads(site.text("/units/Night.json"))["failures"]
    assert [failure["message"] for failure in failures] == ["long ago"]
    assert "long ago" in site.text("/units/Night")


def test_a_units_page_has_its_last_failures(tmp_path):
    """Whichever way they ended, the newest first."""
    outcomes = ("raised", "ok", "timed out", "killed", "not asked", "bad answer", "refused")
    made = [
        record([call("Night", outcome=outcome, message=outcome)], id=f"{number:016x}")
        for number, outcome in enumerate(outcomes)
    ]
    site = MadeSite(tmp_path, made, units=(unit_state("Night"),))
    failures = json.loads(site.text("/units/Night.json"))["failures"]
    assert [each["message"] for each in failures] == [
        "refused", "bad answer", "killed", "timed out", "raised",
    ]  # fmt: skip


def test_each_answer_is_kept_from_doing_harm(tmp_path):
    """A strict policy, no script, nothing from elsewhere, no frame."""
    site = MadeSite(tmp_path)
    for target in ("/status", "/decisions.json", "/health", "/nothing"):
        headers = site.get(target).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self'")
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("target", "module"), [("/status", "jinja2"), ("/metrics", "prometheus_client")]
)
def test_a_library_that_is_missing_is_named(tmp_path, monkeypatch, target, module):
    """503, and the rest is served."""
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "ovirt_scheduler.server.pages.metrics", raising=False)
    site = MadeSite(tmp_path)
    page = site.get(target)
    assert (page.status, module in page.body.decode()) == (503, True)
    assert site.get("/status.json").status == 200


def test_a_daemon_that_has_just_begun_says_what_to_do(tmp_path):
    """No unit, no decision: where plugins are put, and why there is nothing."""
    page = MadeSite(tmp_path).text("/status")
    assert "/etc/ovirt/scheduler/plugins" in page
    assert "No decision is kept yet" in page
    assert "0 units, all well" in page


def test_no_page_shows_characters_that_cannot_be_seen_or_turn_the_text_round(tmp_path):
    """Of names, descriptions, messages, problems and plans; in JSON they are escaped, too."""
    hidden = "a\u202eb\u200bc\x1b[31md\x7f\u2066e"
    hosts = [
        {"id": hidden, "name": hidden,
         "verdicts": [{"unit": "Night", "verdict": "removed", "reason": hidden}]}
    ]  # fmt: skip
    failed = call("Night", outcome="raised", message=hidden)
    site = MadeSite(
        tmp_path, [record([failed], hosts, vm={"id": hidden, "name": hidden}, errors=[hidden])],
        units=(unit_state("Night", description=hidden, properties=(("p", hidden),)),),
        clusters=(ClusterLook("East", "on", 1_800_000_000.0, problem=hidden),),
        stuck=hidden,
    )  # fmt: skip
    pages = ("/status", "/decisions", f"/decisions/{DECISION}", "/units/Night", "/clusters/East")
    for path in (
        *pages,
        *(f"{page}.json" for page in pages),
        "/health",
        f"/decisions?vm={quote(hidden)}",
    ):
        text = site.get(path).body.decode()
        assert [sign for sign in text if not sign.isprintable() and sign != "\n"] == []
    for path in (*pages, "/health"):
        assert r"a\u202eb\u200bc\x1b[31md\x7f\u2066e" in site.get(path).body.decode(), path


def test_lines_of_a_description_stay_lines(tmp_path):
    site = MadeSite(tmp_path, units=(unit_state("Night", description="One.\n\n\tTwo <b>."),))
    assert "One.\n\n        Two &lt;b&gt;." in site.text("/units/Night")
