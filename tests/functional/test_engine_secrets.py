"""An engine that repeats in its faults what it was sent: nobody else is told."""

from __future__ import annotations

import html

from tests.support.command import run
from tests.support.driven import cluster
from tests.support.pages import get
from tests.support.rest_server import PASSWORD, Reply, id_of

ASKS = """\
from ovirt_scheduler.plugin import engine_connection, reason


def do_filter(hosts, vm, properties):
    return hosts


class Tells:
    def do_filter(self, hosts_ids, vm_id, args_map):
        try:
            engine_connection().system_service().get()
        except Exception as error:
            for host in hosts_ids:
                reason(host, f"{error}")
            print(error)
        return []


class Raises:
    def do_filter(self, hosts_ids, vm_id, args_map):
        engine_connection().system_service().get()
"""


def test_no_secret_that_an_engine_repeats_is_told(driven):
    """In answers, pages, records, events and the log; neither of a plugin nor of the daemon."""
    (driven.plugins / "asks.py").write_text(ASKS)
    engine, ids = driven.engine, [id_of("lynx"), id_of("puma")]
    daemon = driven.start("on", cluster(), f"pages = loopback\n{engine.conf(cache_seconds=0)}")
    driven.wait_for_looks()
    secrets = [*engine.tokens, PASSWORD]
    engine.expire_tokens()
    driven.wait_for_looks()
    secrets += engine.tokens
    assert len(secrets) == 3
    words = html.escape(f"it was sent {', '.join(secrets)}.")
    fault = f"<fault><reason>Failed</reason><detail>{words}</detail></fault>"

    engine.broken_action = Reply(409, "application/xml", fault)
    driven.want({"web": "puma"})
    driven.wait_for_log("cannot migrate web from lynx to puma: ")
    engine.broken = Reply(400, "application/xml", fault)
    names = ["Tells", "Raises", "asks"]
    told = [str(daemon.engine.runFilters([name], ids, id_of("web"), {})) for name in names]
    assert ["it was sent …, …, …." in each for each in told] == [False, True, True]
    driven.wait_for_log("cluster Default: ")

    def page() -> str:
        return get(daemon.url, "/status.json").body

    driven.wait(lambda: "it was sent" in page())
    told += [get(daemon.url, f"/{path}").body for path in ("status", "units/Raises", "metrics")]
    told += [page(), daemon.log]
    driven.stop()
    for options in (["-o", "json"], ["--events", "-o", "json"]):
        status, out, _ = run(driven.folder, "decisions", *options)
        assert status == 0
        told.append(out)
    assert sum("it was sent" in each for each in told) >= 6
    for secret in secrets:
        assert not [each for each in told if secret in each]
