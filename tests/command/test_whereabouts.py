"""``why`` says where the VM runs now, as a fake engine has it."""

from __future__ import annotations

import shutil

import pytest

from ovirt_scheduler.history import ranking, schema
from ovirt_scheduler.history.database import Database
from ovirt_scheduler.history.query import written
from ovirt_scheduler.history.store import FILE
from tests.support.command import run
from tests.support.rest_server import Host, Reply, RestServer, Vm, id_of

SETTINGS = "ssl = false\nhistory_days = 3650\npages = loopback\n"
COSTS = {"lynx": 4, "puma": 4, "ocelot": 9}
WEB = {"id": id_of("web"), "name": "web"}


def unit(name, kind, **more):
    return {
        "name": name,
        "kind": kind,
        "checksum": "sha256:0",
        "outcome": "ok",
        "milliseconds": 1.0,
        **more,
    }


def record(number, method, units, hosts, **more):
    made = {
        "id": f"{number:016x}", "time": written(1769846400 + number), "milliseconds": 3.2,
        "caller": "127.0.0.1:40312", "method": method, "form": "engine", "vm": WEB,
        "units": units, "hosts": hosts, **more,
    }  # fmt: skip
    ranking.put_totals(made)
    return made


def verdict(name, word):
    return {"id": id_of(name), "name": name, "verdicts": [{"unit": "MaxVms", "verdict": word}]}


FILTERED = record(
    1, "runFilters", [unit("MaxVms", "filter")],
    [*(verdict(name, "passed") for name in (*COSTS, "bobcat")), verdict("serval", "removed")],
    answer=[*map(id_of, (*COSTS, "bobcat"))],
)  # fmt: skip
SCORED = record(
    2, "runCostFunctions", [unit("EvenVms", "cost function", factor=1)],
    [{"id": id_of(name), "name": name,
      "costs": [{"unit": "EvenVms", "cost": cost, "factor": 1, "weighted": cost}]}
     for name, cost in COSTS.items()],
    answer=[*map(id_of, COSTS)],
)  # fmt: skip


@pytest.fixture
def engine(tmp_path):
    (tmp_path / "state").mkdir()
    database = Database(tmp_path / "state" / FILE)
    database.write([(schema.pack(each), None) for each in (FILTERED, SCORED)])
    database.close()
    hosts = [Host(name) for name in (*COSTS, "serval", "bobcat", "caracal")]
    with RestServer(tmp_path, hosts, [Vm("web", host="puma")], tls=False) as engine:
        (tmp_path / "scheduler.conf").write_text(f"{engine.conf()}\n")
        yield engine


def why(folder, *arguments):
    """The last lines that ``why`` writes before its table."""
    config = folder / "scheduler.conf"
    status, out, err = run(folder, "why", "web", "--config", str(config), *arguments)
    assert (status, err) == (0, "")
    return out.partition("\n\n")[0].splitlines()


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("puma", "It runs on puma now, one of the 2 best hosts."),
        ("lynx", "It runs on lynx now, one of the 2 best hosts."),
        ("ocelot", "It runs on ocelot now, the 3rd of 3 hosts; the best was lynx or puma."),
        ("serval", "It runs on serval now, which MaxVms had removed."),
        ("bobcat", "It runs on bobcat now, which was not among the hosts that were asked about."),
        ("caracal", "It runs on caracal now, which was not among the hosts that were asked about."),
    ],
)
def test_why_says_where_the_vm_runs_now_and_whether_that_was_the_best(engine, tmp_path, host, told):
    engine.vms[0].host = host
    lines = why(tmp_path)
    assert lines[-1] == told
    assert "The engine does not say which host it took." not in lines


def test_of_a_selection_the_first_alone_is_the_best(engine, tmp_path):
    """The scheduler preferred it, though another costs the same."""
    driver = unit("default", "scheduler")
    selected = record(
        300, "selectHost", [*SCORED["units"], driver], SCORED["hosts"],
        answer=[*map(id_of, ("puma", "lynx", "ocelot"))],
    )  # fmt: skip
    database = Database(tmp_path / "state" / FILE)
    database.write([(schema.pack(selected), None)])
    database.close()
    assert why(tmp_path)[-1] == "It runs on puma now, the best host of the decision."
    engine.vms[0].host = "lynx"
    assert why(tmp_path)[-1] == "It runs on lynx now, the 2nd of 3 hosts; the best was puma."


def test_why_of_one_host_says_where_the_vm_runs_too(engine, tmp_path):
    assert why(tmp_path, "--host", "serval")[-1] == "It runs on puma now, one of the 2 best hosts."


def test_of_a_vm_on_its_way_that_is_said(engine, tmp_path):
    engine.vms[0].status = "migrating"
    told = "It runs on puma now, one of the 2 best hosts. It is being migrated."
    assert why(tmp_path)[-1] == told


def test_a_vm_that_is_down_and_one_that_is_gone(engine, tmp_path):
    engine.vms[0].host, engine.vms[0].status = None, "down"
    assert why(tmp_path)[-1] == "It does not run now: it is down."
    engine.vms.clear()
    assert why(tmp_path)[-1] == "The engine knows no such VM now."


def test_an_engine_that_does_not_say_it_breaks_nothing(engine, tmp_path):
    """It denies, answers with no XML, or lets no one log in; the line names the reason."""
    engine.broken = Reply(200, "application/xml", "<vm")
    assert why(tmp_path)[-1].startswith("Where it runs now is not known: ")
    engine.broken = Reply(403, "text/html", "no")
    assert "403" in why(tmp_path)[-1]
    engine.password_file.write_text("another\n")
    assert "no login" in why(tmp_path)[-1]
    assert (
        why(tmp_path)[-2]
        == "The engine adds its own weights to these costs, and then takes the best host."
    )


@pytest.mark.long
def test_a_silent_engine_delays_why_by_seconds_alone(engine, tmp_path):
    """Where it waited for longer, the test would."""
    engine.answering.clear()
    assert why(tmp_path)[-1].startswith("Where it runs now is not known: ")


def test_a_mistake_in_the_settings_is_no_mistake_of_why(engine, tmp_path):
    (tmp_path / "scheduler.conf").write_text("nonsense = 1\n")
    assert "nonsense" in why(tmp_path)[-1]


def test_a_name_of_the_engine_steers_no_terminal(engine, tmp_path):
    engine.hosts.append(Host("ca\u202eracal"))
    engine.vms[0].host = "ca\u202eracal"
    assert why(tmp_path)[-1].startswith("It runs on ca\\u202eracal now")


def test_another_daemon_s_vm_is_not_looked_for_in_this_engine(engine, tmp_path, start_daemon):
    """Nor where the answer is JSON, which has decisions alone."""
    config = ("why", "web", "--config", str(tmp_path / "scheduler.conf"))
    far = tmp_path / "far"
    shutil.copytree(tmp_path / "state", far / "state")
    daemon = start_daemon({}, SETTINGS, folder=far)
    for options in (("--url", daemon.url), ("-o", "json")):
        status, _, err = run(tmp_path, *config, *options)
        assert (status, err) == (0, "")
        assert engine.queries == []


def test_without_an_engine_nothing_is_said(engine, tmp_path):
    (tmp_path / "scheduler.conf").write_text("")
    assert why(tmp_path)[-1] == "The engine does not say which host it took."
