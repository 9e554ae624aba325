"""ovirt_scheduler.clusters.affinity_watch: a cluster's affinity groups, look by look."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ovirt_scheduler.model.plans import APPROVED
from ovirt_scheduler.model.requests import RequestedUnit
from ovirt_scheduler.settings.value_types import Drive
from tests.support import rest_affinity
from tests.support.rest_affinity import HARD, SOFT, Group, Label
from tests.support.rest_server import GIB, Host, Reply, Vm

HIGH = {"high_utilization": "50"}
FULL = {"high_utilization": "100"}  # nothing is moved for evenness


@pytest.fixture
def grouped(looks):
    """Three hosts of 64 GiB; ``put`` puts VMs on them."""
    looks.engine.instant_migrations = True
    looks.engine.hosts[:] = [
        Host(name, memory=64 * GIB, max_scheduling_memory=None, measured=True)
        for name in ("ant", "bee", "cat")
    ]
    return looks


def put(looks, where: str) -> None:
    """``a@ant:8`` is a VM of 8 GiB on the host ant; one that is called big cannot leave it."""
    looks.engine.vms[:] = []
    for word in where.split():
        name, _, rest = word.partition("@")
        host, _, size = rest.partition(":")
        affinity = "pinned" if name == "big" else "migratable"
        looks.engine.vms.append(Vm(name, host, memory=int(size or 1) * GIB, affinity=affinity))


def where(looks) -> dict[str, str]:
    return {vm.name: vm.host for vm in looks.engine.vms}


@pytest.mark.parametrize("may_ask", [True, False])
def test_a_balancing_breaks_no_hard_rule(grouped, may_ask):
    """Nor does it ask for what the engine would refuse, though the engine does not say before."""
    grouped.engine.denying = set() if may_ask else {"migration_target_of"}
    put(grouped, "big@ant:30 a@ant:8 b@bee:8 c@ant:7")
    grouped.engine.groups = [
        Group("fw", ["a", "b"], apart=HARD), Group("lic", ["c"], ["ant", "bee"], on=HARD),
    ]  # fmt: skip
    grouped.begin(properties=HIGH)
    for _ in range(5):
        grouped.look()
        assert not rest_affinity.broken(grouped.engine, HARD)
    assert len(grouped.engine.requested) == len(grouped.engine.migrations) > 0


def test_without_affinity_it_does_not_ask_for_groups_and_breaks_what_the_engine_lets_it_break(
    grouped,
):
    put(grouped, "big@ant:30 a@ant:8 b@bee:1 c@cat:9")
    grouped.engine.groups = [Group("fw", ["a", "b"], apart=HARD)]
    grouped.engine.has_affinity_filters = False  # as in a policy of one's own
    grouped.begin(properties=HIGH, affinity=False)
    assert grouped.look() == [("a", "bee")]
    assert not grouped.engine.asked(f"clusters/{grouped.engine.hosts[0].cluster}")
    assert not [query for query in grouped.engine.queries if "affinity" in query.path]


def test_a_pair_moves_as_one_by_one_question_and_the_plan_names_its_group(grouped, caplog):
    caplog.set_level("INFO")
    put(grouped, "big@ant:30 db1@ant:8 db2@ant:8")
    grouped.engine.groups = [Group("pair", ["db1", "db2"], together=HARD)]
    grouped.begin(properties={"high_utilization": "60"})
    assert len(grouped.look()) == 1
    moved = where(grouped)
    assert moved["db1"] == moved["db2"] != "ant"
    assert "with db2 by the affinity group pair" in caplog.text
    assert len(grouped.engine.migrations) == 2
    (plan,) = [event for event in grouped.ended if event["state"] == "made"]
    assert plan["count"] == 2


def test_a_pair_for_which_a_plan_has_no_place_stays_and_smaller_ones_go(grouped):
    put(grouped, "big@ant:30 x@ant:3 p1@ant:4 p2@ant:4 p3@ant:4")
    grouped.engine.groups = [Group("trio", ["p1", "p2", "p3"], together=HARD)]
    grouped.begin(properties={"high_utilization": "40", "most_migrations": "2"})
    grouped.look()
    assert {vm: host for vm, host in where(grouped).items() if host != "ant"}.keys() == {"x"}


def test_a_closure_that_succeeds_in_part_is_followed_and_told_and_the_rest_joins_it(
    grouped, caplog
):
    caplog.set_level("INFO")
    put(grouped, "big@ant:30 db1@ant:8 db2@ant:8")
    grouped.engine.groups = [Group("pair", ["db1", "db2"], together=HARD)]
    grouped.engine.surprising = lambda vm, _: "no room" * (vm.name == "db2")
    grouped.begin(properties={"high_utilization": "60"}, refused_pause=1.0)
    grouped.look()
    grouped.engine.surprising = lambda *_: ""
    grouped.look(2)
    assert "the migration of db2 to" in caplog.text
    assert "failed, the VM is on ant" in caplog.text
    assert dict(grouped.cluster.state().broken) == {"pair": True}
    for _ in range(6):
        grouped.look(11)
    assert where(grouped)["db1"] == where(grouped)["db2"]
    assert grouped.cluster.state().broken == ()


@pytest.mark.parametrize(
    ("group", "before", "moves"),
    [
        (Group("fw", ["a", "b"], apart=HARD), "a@ant b@ant", {"a", "b"}),
        (Group("lic", ["a"], ["cat"], on=HARD), "a@ant", {"a"}),
        (Group("off", ["a"], ["ant"], off=HARD), "a@ant b@ant", {"a"}),
        # The smaller part moves to the larger one, as one.
        (Group("set", list("abcde"), together=HARD), "a@ant b@ant c@ant d@bee e@bee", {"d"}),
    ],
)
def test_what_the_enforcer_does_not_mend_in_two_looks_is_mended_one_group_a_look(
    grouped, group, before, moves, caplog
):
    caplog.set_level("INFO")
    put(grouped, before)
    grouped.engine.groups = [group]
    grouped.begin(properties=FULL)
    assert [grouped.look() for _ in range(2)] == [[], []]
    assert grouped.cluster.state().broken == ((group.name, True),)
    ((vm, _),) = grouped.look()
    assert vm in moves
    assert not rest_affinity.broken(grouped.engine, HARD)
    assert f"the affinity group {group.name} is broken" in caplog.text
    grouped.look()
    assert grouped.cluster.state().broken == ()


def test_while_the_enforcer_mends_the_daemon_does_not(grouped):
    names = list("abcdef")
    put(grouped, " ".join(f"{name}@ant" for name in names))
    grouped.engine.groups = [Group(f"lic {name}", [name], ["cat"], on=HARD) for name in names]
    grouped.begin(properties=FULL)
    for _ in names:
        assert grouped.look() == []
        rest_affinity.enforce(grouped.engine)
    assert not rest_affinity.broken(grouped.engine, HARD)


def test_what_a_broken_hard_rule_touches_is_not_evened_out(grouped):
    put(grouped, "a@ant:8 b@ant:8 big@ant:30 c@ant:3 d@bee:1")
    grouped.engine.groups = [Group("set", ["a", "b", "d"], together=HARD)]
    grouped.begin(properties=HIGH)
    assert {vm for vm, _ in grouped.look()} == {"c"}


def test_a_policy_that_balances_nothing_mends_nothing(grouped):
    put(grouped, "a@ant b@ant")
    grouped.engine.groups = [Group("fw", ["a", "b"], apart=HARD)]
    grouped.begin(policy="none")
    assert [grouped.look() for _ in range(5)] == [[]] * 5
    assert grouped.cluster.state().broken == (("fw", True),)


def test_a_plan_that_mends_waits_for_approval_and_is_made_then(grouped):
    put(grouped, "a@ant b@ant")
    grouped.engine.groups = [Group("fw", ["a", "b"], apart=HARD)]
    grouped.begin(Drive.APPROVE, properties=FULL)
    for _ in range(4):
        assert grouped.look() == []
    plan = grouped.plan()
    assert plan.steps[0].reason == "the affinity group fw is broken"
    grouped.plans._put(replace(plan, state=APPROVED))
    assert len(grouped.look()) == 1
    assert not rest_affinity.broken(grouped.engine, HARD)


def test_soft_rules_count_before_evenness(grouped):
    """A host above the mark is relieved by what breaks none; what would break one is left."""
    put(grouped, "big@ant:20 a@ant:10 b@ant:10 c@bee:5")
    grouped.engine.groups = [
        Group("near", ["a"], ["ant"], on=SOFT), Group("far", ["b", "c"], apart=SOFT)
    ]  # fmt: skip
    grouped.begin(properties={"high_utilization": "55"})
    assert grouped.look() == [("b", "cat")]
    for _ in range(3):
        grouped.look()
    assert not rest_affinity.broken(grouped.engine, SOFT)
    assert rest_affinity.enforce(grouped.engine) is None


def test_labels_and_groups_of_old_engines_count(grouped):
    put(grouped, "big@ant:30 b@ant:10 a@ant:9 c@bee:1 d@cat:2")
    grouped.engine.version = 4, 3
    grouped.engine.labels = [Label("gpu", ["b"], ["ant", "cat"], is_implicit=True)]
    grouped.engine.groups = [
        Group("old", ["a", "d"], apart=HARD, is_old=True),
        Group("by label", vm_labels=["gpu"], host_labels=["gpu"], off=SOFT),
    ]  # fmt: skip
    grouped.begin(properties=HIGH)
    for _ in range(4):
        grouped.look()
        assert not rest_affinity.broken(grouped.engine, HARD)
    assert {("b", "cat"), ("a", "bee")} & {*grouped.engine.requested}


def test_labels_are_asked_for_only_where_they_count(grouped):
    put(grouped, "a@ant")
    grouped.engine.groups = [Group("fw", ["a"], apart=HARD)]
    grouped.begin()
    grouped.look()
    assert not grouped.engine.asked("affinitylabels")
    grouped.engine.labels = [Label("gpu", ["a"])]
    grouped.engine.groups = [Group("by label", vm_labels=["gpu"], apart=HARD)]
    grouped.look()
    (query,) = grouped.engine.asked("affinitylabels")
    assert query.follow == "vms,hosts"


def test_groups_are_read_once_a_minute_at_most(grouped):
    put(grouped, "a@ant")
    grouped.begin(load_balance_interval=10.0)
    for _ in range(7):
        grouped.look(1 / 6)
    path = f"clusters/{_cluster_id(grouped)}/affinitygroups"
    assert len(grouped.engine.asked(path)) == 2


def _cluster_id(looks) -> str:
    (cluster,) = {query.path.split("/")[1] for query in looks.engine.queries
                  if query.path.endswith("affinitygroups")}  # fmt: skip
    return cluster


@pytest.mark.parametrize("status", [401, 403])
def test_an_account_that_may_not_read_them_is_told_once_and_shown(grouped, status, caplog):
    put(grouped, "big@ant:30 a@ant:8 b@bee:8")
    grouped.engine.groups = [Group("fw", ["a", "b"], apart=HARD)]
    get = grouped.engine.get
    grouped.engine.get = lambda path, parameters: (
        Reply(status, "application/xml", "<fault><detail>no right</detail></fault>")
        if path.endswith("affinitygroups")
        else get(path, parameters)
    )
    grouped.begin(properties=HIGH)
    for _ in range(15):
        grouped.look()
    assert grouped.engine.requested
    assert caplog.text.count("affinity groups cannot be read: no right") == 1
    assert grouped.cluster.state().without_rules == "no right"
    grouped.engine.get = get
    for _ in range(11):
        grouped.look()
    assert grouped.cluster.state().without_rules == ""


@pytest.mark.parametrize("document", ["", "<affinity_groups>", "<hosts/>", "<a/>" * 3])
def test_an_answer_that_cannot_be_read_leaves_the_rules_as_they_were(grouped, document, caplog):
    put(grouped, "big@ant:30 a@ant:8 b@bee:8")
    grouped.engine.groups = [Group("fw", ["a", "b"], apart=HARD)]
    grouped.begin(properties=FULL)
    grouped.look()
    get = grouped.engine.get
    grouped.engine.get = lambda path, parameters: (
        Reply(200, "application/xml", document)
        if path.endswith("affinitygroups")
        else get(path, parameters)
    )
    grouped.engine.vms[2].host = "ant"
    for _ in range(2):
        grouped.look()
    assert grouped.cluster.state().broken == (("fw", True),)
    assert caplog.text.count("it is looked after by those read before") == 1


def test_groups_that_contradict_each_other_are_told_once_and_their_vms_stay(grouped, caplog):
    put(grouped, "big@ant:30 a@ant:8 b@bee:1")
    grouped.engine.groups = [
        Group("here", ["a"], ["bee"], on=HARD), Group("there", ["a"], ["cat"], on=HARD)
    ]  # fmt: skip
    grouped.begin(properties=HIGH)
    for _ in range(6):
        grouped.look()
    words = "the affinity groups here and there contradict each other"
    assert caplog.text.count(words) == 1
    assert "a" not in dict(grouped.engine.requested)


def test_members_that_are_elsewhere_gone_or_off_do_not_count(grouped):
    put(grouped, "big@ant:30 a@ant:8 off@bee")
    grouped.engine.vms[2].host, grouped.engine.vms[2].status = None, "down"
    grouped.engine.vms.append(Vm("far", "dog", cluster="Other"))
    grouped.engine.hosts.append(Host("dog", cluster="Other"))
    grouped.engine.groups = [
        Group("fw", ["a", "off", "far", "gone"], apart=HARD),
        Group("one", ["a"], together=HARD),
        Group("none", ["a"], ["bee", "dog"]),
        Group("hosts", ["a"], ["bee", "dog", "gone"], on=HARD),
        Group("empty"),
    ]
    grouped.begin(properties={"high_utilization": "59"})
    for _ in range(4):
        grouped.look()
    assert where(grouped)["a"] == "bee"
    assert grouped.cluster.state().broken == ()


def test_a_group_that_changes_between_look_and_migration_costs_a_refusal(grouped):
    """The engine has the last word, and the daemon goes on."""
    put(grouped, "big@ant:30 a@ant:8 b@bee:1 c@cat:9")
    grouped.engine.denying = {"migration_target_of"}
    grouped.begin(properties=HIGH)
    get = grouped.engine.get

    def late(path, parameters):
        reply = get(path, parameters)
        if path.endswith("affinitygroups"):
            grouped.engine.groups = [Group("fw", ["a", "b"], apart=HARD)]
        return reply

    grouped.engine.get = late
    assert grouped.look() == [("a", "bee"), ("a", "cat")]


def test_a_hook_empties_a_host_by_the_rules_and_a_pair_goes_together(grouped):
    put(grouped, "db1@ant:8 db2@ant:8 fw1@ant:8 fw2@bee:8")
    grouped.engine.groups = [
        Group("pair", ["db1", "db2"], together=HARD), Group("fw", ["fw1", "fw2"], apart=HARD)
    ]  # fmt: skip
    grouped.begin()
    grouped.look()
    grouped.engine.hosts[0].status = "preparing_for_maintenance"
    for _ in range(3):
        grouped.look()
    moved = where(grouped)
    assert moved["db1"] == moved["db2"] != "ant"
    assert moved["fw1"] == "cat"


IGNORANT = """
from ovirt_scheduler.plugin import LoadBalancer


class Ignorant(LoadBalancer):
    def load_balance(self, hosts, vms, properties):
        targets = [host for host in hosts if host.name != "ant"]
        return {vm: targets for vm in vms if vm.host.id not in {host.id for host in targets}}
"""
KNOWING = IGNORANT.replace("Ignorant", "Knowing").replace(
    "return {",
    """
        for vm in vms:
            unit = self.rules.unit_of(vm.id)
            fit = self.rules.acceptable(unit, [host.id for host in targets])
            if vm.name == "a":
                return {vm: fit[:1]}
        return {""",
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # It is asked once more with what is allowed, and what it wants against a rule is not done.
        (IGNORANT, {"a": "cat", "db1": "bee", "db2": "bee"}),
        (KNOWING, {"a": "cat", "db1": "ant", "db2": "ant"}),
    ],
)
def test_a_scheduler_of_a_users_is_held_to_the_rules(grouped, place, source, expected):
    name = "Ignorant" if source is IGNORANT else "Knowing"
    place.write(name, source)
    grouped.registry.refresh()
    put(grouped, "a@ant:8 b@bee:1 db1@ant:2 db2@ant:2 here@ant:1")
    grouped.engine.groups = [
        Group("fw", ["a", "b"], apart=HARD), Group("pair", ["db1", "db2"], together=HARD),
        Group("lic", ["db1"], ["ant", "bee"], on=HARD), Group("stay", ["here"], ["ant"], on=HARD),
    ]  # fmt: skip
    grouped.begin(policy=None, scheduler=name)
    grouped.look()
    assert not rest_affinity.broken(grouped.engine, HARD)
    assert where(grouped) == {**expected, "b": "bee", "here": "ant"}
    assert len(grouped.engine.migrations) == sum(host != "ant" for host in expected.values())


def test_a_balance_unit_is_held_to_the_rules_and_the_log_names_the_group(grouped, place, caplog):
    caplog.set_level("INFO")
    text = "def do_balance(hosts, properties):\n    return {!r}, [host.id for host in hosts][1:]\n"
    put(grouped, "a@ant:8 b@bee:1 c@cat:1")
    place.write("Pick", text.format(grouped.engine.vms[0].id))
    grouped.registry.refresh()
    grouped.engine.groups = [Group("fw", ["a", "b", "c"], apart=HARD)]
    grouped.begin(balance=RequestedUnit("Pick"))
    assert grouped.look() == []
    assert "the affinity group fw keeps it apart from a VM there" in caplog.text


@pytest.mark.long
def test_thousands_of_groups_and_one_of_thousands_stop_no_look(grouped):
    grouped.engine.vms[:] = [
        Vm(f"v{number}", ("ant", "bee", "cat")[number % 3], memory=GIB // 100)
        for number in range(5000)
    ]
    names = [vm.name for vm in grouped.engine.vms]
    grouped.engine.groups = [
        Group(f"g{number}", names[number * 2 : number * 2 + 50], apart=SOFT)
        for number in range(2000)
    ]
    grouped.engine.groups.append(Group("all", names, ["ant", "bee", "cat"], on=HARD))
    grouped.engine.groups += [Group(f"own {n}", names[:1], ["ant"], on=SOFT) for n in range(20)]
    grouped.begin(properties=HIGH)
    grouped.look()
    assert grouped.cluster.state().without_rules == ""
    assert ("all", True) not in grouped.cluster.state().broken
