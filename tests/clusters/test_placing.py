"""VMs placed on other hosts, compared with every placement that there is."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from ovirt_scheduler.clusters.placing import Choices, Placing
from ovirt_scheduler.model.affinity import AffinityGroup, AffinityRules, PlacedVms, Rule
from ovirt_scheduler.model.cluster_state import VmState
from ovirt_scheduler.model.losses import Loss

HARD_APART, HARD_TOGETHER = Rule(False, True), Rule(True, True)


class Shelves:
    """Hosts with room for so many GiB, and so many VMs, with the policy's favourite first."""

    def __init__(self, room, sizes, running, most_vms=9, refusing=()):
        self.room, self.sizes = room, sizes
        self.running = dict(running)
        self.most_vms = most_vms
        self.refusing = frozenset(refusing)  # pairs of a VM and a host
        self.questions = 0

    def has_room(self, vm, host, running):
        others = [other for other, at in running.items() if at == host and other != vm]
        return (
            (vm, host) not in self.refusing
            and len(others) < self.most_vms
            and sum(map(self.sizes.get, others)) + self.sizes[vm] <= self.room[host]
        )

    def choices(self, vm, allow):
        self.questions += 1
        fit = [host for host in self.room if self.has_room(vm, host, self.running)]
        return Choices(allow(fit), f"{len(self.room) - len(fit)} full")

    def move(self, vm, host):
        if host is None:
            self.running.pop(vm, None)
        else:
            self.running[vm] = host

    def size(self, vm):
        return self.sizes[vm]

    def leaving(self, host):
        return [vm for vm, at in self.running.items() if at == host]


def drawn(seed):
    """Three hosts with up to six VMs under rules, by chance, and which of the VMs are urgent."""
    chance = random.Random(seed)
    hosts = ["lynx", "puma", "serval"]
    vms = [f"vm-{number}" for number in range(chance.randint(1, 6))]
    sizes = {vm: chance.choice((1, 2, 3, 5)) for vm in vms}
    running = {}
    room = {host: chance.choice((4, 6, 8, 10)) for host in hosts}
    refusing = {(vm, host) for vm in vms for host in hosts if chance.random() < 0.1}
    shelves = Shelves(room, sizes, {}, chance.choice((2, 3, 9)), refusing)
    for vm in vms:
        fit = [host for host in hosts if shelves.has_room(vm, host, running)]
        if fit:
            running[vm] = chance.choice(fit)
    shelves.running = dict(running)
    groups = []
    for number in range(chance.randint(0, 2)):
        members = frozenset(chance.sample(vms, min(len(vms), 2)))
        if chance.random() < 0.4:
            rule = Rule(chance.random() < 0.5, True)
            groups.append(
                AffinityGroup(f"hosts {number}", members, frozenset(hosts[:2]), None, rule)
            )
        else:
            rule = chance.choice((HARD_APART, HARD_TOGETHER))
            groups.append(AffinityGroup(f"vms {number}", members, vm_rule=rule))
    rules = AffinityRules(groups)
    return shelves, rules, frozenset(vm for vm in vms if chance.random() < 0.5)


def placing(shelves, rules, **how):
    return Placing(shelves, PlacedVms(rules, shelves.running), **how)


def allowed(rules, running, vm, host) -> bool:
    """Whether hard rules let a VM go to a host beside those that run; worked out for itself."""
    if rules.contradiction_of(vm):
        return False
    for group in rules.groups:
        if vm not in group.vms:
            continue
        if group.host_rule and (host in group.hosts) != group.host_rule.positive:
            return False
        if group.vm_rule:
            others = {running[other] for other in group.vms - {vm} if other in running}
            if others and (others != {host} if group.vm_rule.positive else host in others):
                return False
    return True


def placements(shelves, rules, vms, running, source=None) -> Iterator[dict]:
    """Every way to place some of the VMs, in every order, which matters to rules of VMs alone."""
    has_vm_rules = any(group.vm_rule for group in rules.groups)
    for order in itertools.permutations(vms) if has_vm_rules else (vms,):
        for hosts in itertools.product((*shelves.room, None), repeat=len(vms)):
            now = dict(running)
            for vm, host in zip(order, hosts):
                if host is None:
                    continue
                fits = host != source and shelves.has_room(vm, host, now)
                if not fits or not allowed(rules, now, vm, host):
                    break
                now[vm] = host
            else:
                yield now


def fewest_homeless(shelves, rules, vms, urgent):
    running = {vm: host for vm, host in shelves.running.items() if vm not in vms}

    def homeless(now):
        without = [vm for vm in vms if vm not in now]
        return sum(vm in urgent for vm in without), len(without)

    return min(map(homeless, placements(shelves, rules, vms, running)))


@pytest.mark.parametrize("seed", range(150))
def test_after_a_loss_as_many_have_a_place_as_by_the_best_of_all_placements(seed):
    """The urgent ones first, and no rule is broken by it."""
    shelves, rules, urgent = drawn(seed)
    host = Counter(shelves.running.values()).most_common(1)[0][0] if shelves.running else "lynx"
    shelves.room.pop(host)
    vms = [vm for vm, at in shelves.running.items() if at == host]
    best = fewest_homeless(shelves, rules, vms, urgent)
    for vm in vms:
        del shelves.running[vm]
    placed = placing(shelves, rules).place(vms, urgent)
    without = [vm for vm, at in placed.targets.items() if at is None]
    assert (sum(vm in urgent for vm in without), len(without)) == best
    assert placed.is_best
    assert {vm: at for vm, at in placed.targets.items() if at} == {
        vm: shelves.running[vm] for vm in vms if vm in shelves.running
    }


def can_be_emptied_in_turn(shelves, rules, running, hosts) -> bool:
    """Whether in any order, by any placements; rules of VMs do not stand in the way."""
    of_hosts = AffinityRules(group._replace(vm_rule=None) for group in rules.groups)
    if not hosts:
        return True
    return any(
        can_be_emptied_in_turn(shelves, rules, now, hosts - {host})
        for host in hosts
        for now in placements(
            shelves, of_hosts, [vm for vm, at in running.items() if at == host], running, host
        )
        if host not in now.values() and now.keys() == running.keys()
    )


@pytest.mark.parametrize("seed", range(80))
def test_hosts_are_emptied_in_turn_wherever_any_order_does_it(seed):
    """And all VMs are back where they were."""
    shelves, rules, _ = drawn(seed)
    before = dict(shelves.running)
    order = placing(shelves, rules, may_break=True).empty_in_turn(shelves.room)
    possible = can_be_emptied_in_turn(shelves, rules, before, frozenset(shelves.room))
    assert (len(order.hosts) == 3, bool(order.blocked), order.is_best) == (
        possible, not possible, True,
    )  # fmt: skip
    assert shelves.running == before


def test_the_order_matters_where_the_first_host_makes_room_for_the_second():
    shelves = Shelves(
        {"lynx": 4, "puma": 10, "serval": 8},
        {"db": 5, "web": 3, "mail": 3},
        {"db": "puma", "web": "serval", "mail": "serval"},
    )
    order = placing(shelves, AffinityRules()).empty_in_turn(shelves.room)
    assert order.hosts == ("lynx", "serval", "puma")


def test_a_vm_that_would_have_no_place_by_the_policys_choice_has_one_by_another():
    """The best host for the first VM is the only one for the second."""
    shelves = Shelves({"lynx": 6, "puma": 6}, {"db": 5, "web": 4}, {}, refusing={("web", "puma")})
    placed = placing(shelves, AffinityRules()).place(["db", "web"])
    assert placed.targets == {"db": "puma", "web": "lynx"}


def test_a_host_is_emptied_though_a_rule_of_vms_is_broken_by_it():
    """As an engine empties it; but no VM breaks one that has another host."""
    apart = AffinityRules([AffinityGroup("apart", frozenset(("a", "b", "c")), vm_rule=HARD_APART)])
    running = {"a": "lynx", "b": "puma", "c": "serval"}
    shelves = Shelves({"lynx": 9, "puma": 9, "serval": 9}, dict.fromkeys("abc", 1), running)
    placed = placing(shelves, apart, may_break=True).place(["a"], source="lynx")
    assert (placed.targets["a"] in ("puma", "serval"), placed.breaking) == (True, {"a"})
    strict = placing(Shelves(shelves.room, shelves.sizes, running), apart)
    homeless = strict.place(["a"], source="lynx")
    assert (homeless.targets, homeless.whys["a"]) == (
        {"a": None},
        "0 full; 2 hosts not allowed by apart",
    )
    del running["c"]
    free = placing(Shelves(shelves.room, shelves.sizes, running), apart, may_break=True)
    assert free.place(["a"], source="lynx").targets == {"a": "serval"}


def test_each_host_that_is_lost_has_a_search_of_its_own():
    """One that was given up leaves the next as many tries."""
    rooms = {f"host-{number}": 10 for number in range(8)}
    sizes = {f"vm-{number:02}": 6 - number % 2 for number in range(17)}
    vms = {vm: VmState(vm, "up", "id") for vm in sizes}
    placing_vms = placing(Shelves(rooms, sizes, {}), AffinityRules(), tries=50)
    with placing_vms.lost("id", "gone", vms) as crowded:
        pass
    with placing_vms.lost("id", "gone", {"vm-00": vms["vm-00"]}) as lone:
        pass
    with placing_vms.lost("id", "gone", vms) as crowded_again:
        pass
    assert lone == Loss("gone")
    assert crowded.homeless == crowded_again.homeless != ()


def test_an_arrangement_that_was_come_to_by_another_order_is_not_searched_again():
    """The large VM has no place in any order of the three small hosts before its own."""
    shelves = Shelves(
        {"ant": 3, "bee": 3, "cat": 3, "dog": 9},
        {"big": 7, "a": 1, "b": 1, "c": 1},
        {"big": "dog", "a": "ant", "b": "bee", "c": "cat"},
    )
    order = placing(shelves, AffinityRules()).empty_in_turn(shelves.room)
    assert ({*order.hosts}, {*order.blocked}, order.is_best) == (
        {"ant", "bee", "cat"}, {"dog"}, True,
    )  # fmt: skip
    assert shelves.questions < 400


def test_a_search_ends_where_it_asks_too_often():
    """Then the answer is the best placement that it came to."""
    rooms = {f"host-{number}": 10 for number in range(8)}
    sizes = {f"vm-{number:02}": 6 - number % 2 for number in range(17)}
    shelves = Shelves(rooms, sizes, {})
    placed = placing(shelves, AffinityRules(), tries=50).place([*sizes])
    assert (shelves.questions < 100, placed.is_best) == (True, False)
    assert sum(host is None for host in placed.targets.values()) >= 5
