"""Whole schedulers, and one interface alone, through a running daemon."""

from __future__ import annotations

import pytest

from tests.support.daemon import refusal
from tests.support.paths import SCHEDULERS
from tests.support.rest_server import Host, RestServer, Vm, id_of

H1, H2, H3 = HOSTS = [f"{digit * 8}-1111-2222-3333-{digit * 12}" for digit in "123"]
V1, V2 = VMS = [f"{digit * 8}-aaaa-bbbb-cccc-{digit * 12}" for digit in "45"]

ASKED = {
    "selectHost": ("vm",),
    "hasAnyHosts": ("vm",),
    "loadBalance": ("vms",),
    "onTimerInvoked": ("vms",),
    "onVmStatusChanged": ("status",),
    "onHostStatusChanged": ("status",),
}
NOTHING = {"selectHost": "", "hasAnyHosts": False}


def hosts_document(*ids, **fields):
    inside = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
    return f"<hosts>{''.join(f'<host id={each!r}>{inside}</host>' for each in ids)}</hosts>"


def vms_document(on):
    """VMs with the host that each runs on."""
    vms = "".join(f"<vm id={vm!r}><host id={host!r}/></vm>" for vm, host in on)
    return f"<vms>{vms}</vms>"


def ask(proxy, method, scheduler, properties, hosts=HOSTS, vms=VMS):
    """Any of the six with what they have in common."""
    given = {
        "selectHost": (hosts, V1, properties),
        "hasAnyHosts": (hosts, V1, properties),
        "loadBalance": (hosts, vms, properties),
        "onTimerInvoked": (hosts, vms, properties),
        "onVmStatusChanged": (V1, "up", "paused", hosts, vms, properties),
        "onHostStatusChanged": (H1, "up", "maintenance", hosts, vms, properties),
    }
    return getattr(proxy, method)(scheduler, *given[method])


@pytest.fixture(scope="module")
def daemon(start_daemon):
    settings = f"ssl = false\nplugins_conf_path = {SCHEDULERS}\nengine_version = 4.5"
    return start_daemon(plugins=SCHEDULERS, settings=settings)


@pytest.fixture(scope="module")
def design(daemon):
    with daemon.proxy("/design") as proxy:
        yield proxy


@pytest.fixture(scope="module")
def engine(daemon):
    with daemon.proxy("/engine") as proxy:
        yield proxy


def test_get_schedulers_tells_what_each_is_and_takes(design):
    """Sorted by name; a driver that is no scheduler is not among them."""
    found = design.getSchedulers()
    names = ["Hangs", "Misbehaves", "OnlyChooses", "Whole", "default"]
    assert [each["name"] for each in found] == names
    whole = found[3]
    digits = whole.pop("checksum").partition("sha256:")[2]
    assert whole.pop("version") == digits[:12]
    assert whole == {
        "id": whole["id"],
        "name": "Whole",
        "description": "Takes the host with the lowest cost, else the first by name.",
        "topic": "compute",
        "policies": ["spread", "pack"],
        "inputs": [
            {"name": "limit", "validation": "{1-99}", "default": "7"},
            {"name": "mode", "validation": "fast|slow", "default": ""},
            {"name": "policy", "validation": "spread|pack", "default": "spread"},
        ],
        "interfaces": [
            "HostSelector",
            "LoadBalancer",
            "TimerInvokedScheduler",
            "VmStatusChanged",
            "HostStatusChanged",
        ],
        "written_for": "4.4",
    }
    assert found[2]["interfaces"] == ["HostSelector"]
    assert found[1]["topic"] == ""


def test_a_scheduler_for_a_newer_ovirt_is_left_out_with_a_warning(daemon):
    """The log says both versions."""
    assert (
        f"WARNING a plugin should be looked at: {SCHEDULERS / 'too_new.py'}: the scheduler TooNew is left out: it was "
        "written for oVirt 99.1, and engine_version is 4.5"
    ) in daemon.log


def test_two_drivers_on_one_topic_are_an_error_for_the_second(daemon, design):
    """The default scheduler alone gives way."""
    line = 1 + (SCHEDULERS / "values.py").read_text().splitlines().index(
        "class Values(_Base, Mixin, dict):"
    )
    assert (
        f"{SCHEDULERS / 'values.py'}:{line}: the driver values of every type is left out: Twice in "
        f"{SCHEDULERS / 'twice.py'} has the topic values already; rename one of them"
    ) in daemon.log
    topics = {each["topic"]: each["driver"] for each in design.getTopics()}
    assert [*topics] == ["choosing", "compute", "hanging", "values"]
    assert [*topics.values()] == ["OnlyChooses", "Whole", "Hangs", "Twice"]


def test_select_host_gives_the_best_candidate(design):
    """And hasAnyHosts whether there is one."""
    hosts = (
        f"<hosts><host id='{H1}'><name>b</name></host><host id='{H2}'><name>a</name></host></hosts>"
    )
    assert design.selectHost("Whole", hosts, f"<vm id='{V1}'/>", {}) == H2
    assert design.hasAnyHosts("Whole", hosts, V1, {}) is True
    assert design.getSelectedHosts("Whole") == [H2, H1]
    assert design.selectHost("Whole", hosts, V1, {"policy": "pack"}) == H1
    assert design.getSelectedHosts("Whole") == [H1]


def test_no_host_is_an_empty_string(design):
    """Without hosts the scheduler is not called; nothing was selected then."""
    assert design.selectHost("Whole", [H1], V1, {}) == H1
    assert design.selectHost("Whole", [], V1, {}) == ""
    assert design.hasAnyHosts("Whole", "<hosts/>", V1, {}) is False
    assert design.getSelectedHosts("Whole") == []


def test_a_selection_is_handed_to_the_next_call(design):
    """Each call has a process of its own, so the daemon remembers it; has_any_hosts does not count."""
    design.selectHost("Whole", HOSTS, V1, {})
    design.hasAnyHosts("Whole", [H1], V1, {})
    explained = design.schedule("compute", "explain", {"host_id": H1})
    assert explained == {"host": H1, "detail": "short", "selected": HOSTS}


def test_filters_and_cost_functions_run_before_on_the_same_entities(daemon, design):
    """Filters narrow the hosts, costs come weighted; the rest of the properties is handed on."""
    costed = "by_place=3;by_place_as_well"
    given = {"filters": "keeps_even", "cost_functions": costed, "other": "x"}
    assert design.selectHost("OnlyChooses", HOSTS, V1, given) == H3
    costs = {H1: 0, H3: -4}
    assert f"2 {costs} [('other', 'x')]" in daemon.log
    assert design.selectHost("Whole", HOSTS, V1, given) == H3
    assert design.getSelectedHosts("OnlyChooses") == [H3]
    assert design.selectHost("OnlyChooses", HOSTS, V1, {"filters": "keeps_nothing"}) == ""


def test_failed_units_are_left_out(engine):
    """As they are when they are asked for themselves (contract 4.2)."""
    given = {"filters": "fails;nowhere", "cost_functions": "by_place;fails;unknown"}
    answer = engine.selectHost("Whole", HOSTS, V1, given)
    assert answer["result"] == H3
    assert answer["errors"] == ["all filters failed"]
    problems = answer["plugin_errors"]
    assert problems["fails"] == [
        "ValueError: broken (units.py:18)",
        "ValueError: broken (units.py:21)",
    ]
    assert problems["nowhere"][0].startswith("there is no filter named 'nowhere'")
    assert set(problems) == {"fails", "nowhere", "unknown"}
    answer = engine.selectHost("Whole", HOSTS, V1, {"filters": "x", "cost_functions": "x"})
    assert [each[:14] for each in answer["plugin_errors"]["x"]] == [
        "there is no fi",
        "there is no co",
    ]


@pytest.mark.parametrize(
    ("properties", "code", "message"),
    [
        ({"filters": "nowhere"}, 101, "there is no filter named 'nowhere'"),
        ({"filters": "by_place"}, 101, "it is a cost function"),
        ({"cost_functions": "by_place=many"}, -32602, "expected name=factor"),
        (
            {"cost_functions": "by_place=2147483648"},
            -32602,
            "the factor of by_place: 2147483648 is beyond 32 bits",
        ),
        ({"filters": "keeps_even", "kept": "x"}, 103, "filter keeps_even: property kept: 'x'"),
        ({"limit": "100"}, 103, "scheduler Whole: property limit: '100' is not allowed"),
        ({"policy": "other"}, 103, "property policy: 'other' is not allowed; give what matches"),
    ],
)
def test_bad_properties_are_faults(design, properties, code, message):
    """They name the unit and the property."""
    assert message in refusal(code, design.selectHost, "Whole", HOSTS, V1, properties)


def test_a_refused_property_is_a_plugin_error_in_the_engine_form(engine):
    """The scheduler is not called (contract 3)."""
    answer = engine.loadBalance("Whole", HOSTS, VMS, {"limit": "0"})
    assert answer["result"] == {}
    assert answer["plugin_errors"] == {
        "Whole": [
            "scheduler Whole: property limit: '0' is not allowed; give an integer from 1 to 99"
        ]
    }


def test_load_balance_gives_each_vm_the_hosts_that_it_may_go_to(design, engine):
    """VMs come as a document or as ids; the order of the hosts is the scheduler's."""
    on = vms_document([(V1, H1), (V2, H3)])
    assert design.loadBalance("Whole", HOSTS, on, {}) == {V1: [H2, H3], V2: [H1, H2]}
    answer = engine.loadBalance("Whole", hosts_document(*HOSTS), VMS, {})
    assert answer == {"result_code": 0, "result": {V1: HOSTS, V2: HOSTS}}


def test_a_vm_may_run_on_a_host_that_is_not_given(design):
    """Nothing but the hosts given may be answered, wherever the VM is."""
    on = vms_document([(V1, "elsewhere")])
    assert design.loadBalance("Whole", [H1], on, {}) == {V1: [H1]}


def test_a_timer_is_told(design):
    """Its properties come with their defaults."""
    assert design.onTimerInvoked("Whole", HOSTS, VMS, {"limit": "2"}) == {V1: [H1, H2]}
    assert design.onTimerInvoked("Whole", HOSTS, [], {}) == {}


def test_a_vm_whose_status_changed_is_one_of_the_vms_or_comes_by_itself(design):
    """With the old and the new status."""
    for vm, vms in ((V1, VMS), (V1, []), (f"<vm id='{V1}'/>", [])):
        assert design.onVmStatusChanged("Whole", vm, "up", "paused", HOSTS, vms, {}) == {V1: HOSTS}
        assert design.onVmStatusChanged("Whole", vm, "paused", "up", HOSTS, vms, {}) == {}


def test_a_host_whose_status_changed_is_one_of_the_hosts_or_a_document(design):
    """Whatever else would be a guess."""
    on = vms_document([(V1, H1), (V2, H2)])
    changed = design.onHostStatusChanged
    assert changed("Whole", H1, "up", "maintenance", HOSTS, on, {}) == {V1: [H2, H3]}
    document = f"<host id='{H1}'/>"
    assert changed("Whole", document, "up", "maintenance", [H2], on, {}) == {V1: [H2]}
    message = refusal(-32602, changed, "Whole", "gone", "up", "maintenance", HOSTS, on, {})
    assert message == (
        "host: 'gone' is not among the hosts; give it with them, or its document here"
    )


@pytest.mark.parametrize(
    ("method", "scheduler", "message"),
    [
        (
            "loadBalance",
            "nobody",
            "no scheduler named 'nobody'; there are Hangs, Misbehaves, OnlyChooses, Whole, default",
        ),
        ("selectHost", "Twice", "there is no scheduler named 'Twice'; there are Hangs"),
        (
            "loadBalance",
            "OnlyChooses",
            "the scheduler OnlyChooses is no LoadBalancer; it is HostSelector",
        ),
        ("onTimerInvoked", "OnlyChooses", "is no TimerInvokedScheduler"),
        ("hasAnyHosts", "Hangs", "is no HostSelector; it is LoadBalancer"),
    ],
)
def test_a_scheduler_that_cannot_do_it_is_told_with_what_there_is(
    design, engine, method, scheduler, message
):
    """A fault in the design form, a plugin error in the engine's (contract 4.3)."""
    assert message in refusal(101, ask, design, method, scheduler, {})
    answer = ask(engine, method, scheduler, {})
    assert answer["result"] == NOTHING.get(method, {})
    assert message in answer["plugin_errors"][scheduler][0]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("Whole", HOSTS, VMS), -32602, "loadBalance takes 4 parameters"),
        ((1, HOSTS, VMS, {}), -32602, "scheduler: expected a string, not an int"),
        (("Whole", 1, VMS, {}), -32602, "hosts: expected an XML document as a string"),
        (("Whole", HOSTS, {}, {}), -32602, "vms: expected an XML document as a string, or an"),
        (("Whole", HOSTS, [""], {}), -32602, "vms[0]: an empty id"),
        (("Whole", HOSTS, [V1, V1], {}), -32602, "is vms[0] already; give it once"),
        (("Whole", HOSTS, VMS, {"a": 1}), -32602, "properties['a']: expected a string"),
        (("Whole", "<hosts>", VMS, {}), 102, "hosts, line 1"),
        (("Whole", HOSTS, "<hosts/>", {}), 102, "VMs, line 1, column 1: "),
        (("Whole", HOSTS, "<vms><vm/></vms>", {}), 102, "VMs"),
        (("Whole", HOSTS, vms_document([(V1, H1), (V1, H2)]), {}), 102, "VMs"),
    ],
)  # fmt: skip
def test_a_bad_call_is_a_fault_that_says_where(design, arguments, code, message):
    """Also where the scheduler would never be asked."""
    assert message in refusal(code, design.loadBalance, *arguments)


@pytest.mark.parametrize("method", ASKED)
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raises", "ValueError: no such luck (misbehaves.py:"),
        ("number", "returned 7"),
        ("dies", "died by SIGKILL"),
    ],
)
def test_a_scheduler_that_fails_has_nothing_to_say(design, engine, method, how, message):
    """In the design form that is all, in the engine form a plugin error tells why."""
    assert ask(design, method, "Misbehaves", {"how": how}) == NOTHING.get(method, {})
    answer = ask(engine, method, "Misbehaves", {"how": how})
    assert (answer["result_code"], answer["result"]) == (1, NOTHING.get(method, {}))
    assert message in answer["plugin_errors"]["Misbehaves"][0]


@pytest.mark.parametrize(
    ("how", "result", "message"),
    [
        ("recurses", {}, "RecursionError"),
        ("exits", {}, "ended its process without an answer (exit status 0)"),
        ("stops_the_answer", {}, "cannot be read"),
        ("text", {}, "load_balance returned 'yes'; expected a dict of VM to hosts"),
        ("no_hosts", {}, "returned nothing; expected the hosts that the VM may go to"),
        ("one_host", {}, "expected the hosts that the VM may go to"),
        ("twice", {}, f"returned the VM {V1} twice"),
        ("strange_vm", {V1: HOSTS}, "VMs that it was not given (1 dropped: a stranger)"),
        ("host_of_none", {}, "hosts that it was not given (1 dropped: a stranger)"),
        ("any_host", {V1: []}, None),
        ("nothing", {}, None),
    ],
)
def test_what_a_load_balancer_may_not_answer(engine, how, result, message):
    """VMs and hosts that were not given are dropped, and said; no hosts mean any host."""
    answer = engine.loadBalance("Misbehaves", HOSTS, VMS, {"how": how})
    assert answer["result"] == result
    problems = answer.get("plugin_errors", {}).get("Misbehaves", [None])
    assert (message or "") in (problems[0] or "")
    assert (problems == [None]) is (message is None)


def test_a_selection_of_strangers_is_dropped_and_said(engine):
    """A failure leaves the selection before it."""
    answer = engine.selectHost("Misbehaves", [H1], V1, {"how": "strange_host"})
    assert answer["result"] == H1
    assert answer["plugin_errors"]["Misbehaves"] == [
        "answered with hosts that it was not given (1 dropped: a stranger)"
    ]
    assert engine.selectHost("Misbehaves", HOSTS, V1, {"how": "none_id"})["result"] == ""
    assert engine.getSelectedHosts("Misbehaves")["result"] == [H1]


def test_a_scheduler_that_hangs_is_killed_at_its_own_limit(design, engine):
    """The limit of its conf file; through schedule that is a fault."""
    problem = engine.loadBalance("Hangs", HOSTS, VMS, {})["plugin_errors"]["Hangs"][0]
    assert problem.startswith("was killed after")
    assert problem.endswith("its timeout is 0.5 s (timeout in hangs.conf)")
    arguments = {"hosts": HOSTS, "vms": VMS}
    message = refusal(105, design.schedule, "hanging", "load_balance", arguments)
    assert message.startswith("scheduler Hangs: load_balance: was killed after")


def test_a_topic_publishes_the_methods_of_an_interface_too(design, engine):
    """With hosts and VMs as everywhere; what they answer is the same."""
    arguments = {"hosts": HOSTS, "vm": V1, "properties": {"filters": "keeps_even"}}
    assert design.schedule("compute", "select_host", arguments) == H1
    assert design.schedule("compute", "candidates", arguments) == [H1, H3]
    assert design.schedule("compute", "get_selected_hosts", {}) == [H1, H3]
    del arguments["properties"]
    assert design.schedule("compute", "has_any_hosts", arguments) is True
    answer = engine.schedule("compute", "load_balance", {"hosts": HOSTS, "vms": [V1]})
    assert answer == {"result_code": 0, "result": {V1: HOSTS}}


def test_the_methods_tell_how_they_are_called(design, engine):
    """Signatures name the envelope in the engine form; every way to give hosts is there."""
    assert design.system.methodSignature("loadBalance") == [
        ["struct", "string", hosts, vms, "struct"]
        for hosts in ("string", "array")
        for vms in ("string", "array")
    ]
    assert engine.system.methodSignature("hasAnyHosts")[0][0] == "struct"
    assert engine.system.methodSignature("schedule") == [["struct", "string", "string", "struct"]]
    assert design.system.methodSignature("getSelectedHosts") == [["array", "string"]]
    assert "filters" in design.system.methodHelp("selectHost")
    assert "plugin_errors" in engine.system.methodHelp("onHostStatusChanged")
    assert {*ASKED, "schedule", "getSchedulers", "getTopics", "getSelectedHosts"} <= set(
        design.system.listMethods()
    )


def test_a_scheduler_is_followed_as_a_unit_is(start_daemon, tmp_path):
    """Dropped in, edited and taken away; its topic goes back."""
    daemon = start_daemon(plugins=tmp_path, settings="ssl = false")
    with daemon.proxy() as proxy:
        text = (SCHEDULERS / "only_chooses.py").read_text("utf-8")
        file = tmp_path / "only_chooses.py"
        file.write_text(text.replace("topic", "# topic"), "utf-8")
        assert [each["name"] for each in proxy.getSchedulers()] == ["OnlyChooses", "default"]
        assert [each["driver"] for each in proxy.getTopics()] == ["OnlyChooses"]
        assert proxy.selectHost("OnlyChooses", HOSTS, V1, {}) == H3
        file.write_text(text.replace("hosts[-1]", "hosts[0]"), "utf-8")
        proxy.getSchedulers()
        assert proxy.selectHost("OnlyChooses", HOSTS, V1, {}) == H1
        file.write_text("syntax error", "utf-8")
        proxy.getSchedulers()
        assert proxy.selectHost("OnlyChooses", HOSTS, V1, {}) == H1
        file.unlink()
        assert [each["driver"] for each in proxy.getTopics()] == ["default"]


def test_ids_are_what_the_engine_knows(start_daemon, tmp_path):
    """VMs by one query, as hosts are (contract 5.2); the one that is among them is not asked for."""
    hosts, vms = [Host("lynx"), Host("puma")], [Vm("web", host="lynx"), Vm("db", host="puma")]
    with RestServer(tmp_path, hosts, vms) as engine:
        daemon = start_daemon(plugins=SCHEDULERS, settings=f"ssl = false\n{engine.conf()}")
        web, db, lynx, puma = (id_of(name) for name in ("web", "db", "lynx", "puma"))
        with daemon.proxy() as proxy:
            assert proxy.loadBalance("Whole", [lynx, puma], [web, db], {}) == {
                web: [puma],
                db: [lynx],
            }
            assert len(engine.asked("vms")) == 1
            proxy.onVmStatusChanged("Whole", web, "up", "paused", [lynx, puma], [web, db], {})
            assert [query.path for query in engine.asked("vms")] == ["vms"]
            assert proxy.selectHost("Whole", [lynx, puma], web, {}) == lynx
            assert engine.asked(f"vms/{web}")
        daemon.stop()
