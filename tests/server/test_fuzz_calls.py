"""XML-RPC calls, built from the methods and types there are and then damaged.

The decoder is asked first, alone; then the same calls go through the dispatcher to the four
operations and the processes behind them.
"""

from __future__ import annotations

import xmlrpc.client

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_scheduler.catalogue.last_good import LastGood
from ovirt_scheduler.catalogue.loader import Loader
from ovirt_scheduler.catalogue.registry import Registry
from ovirt_scheduler.decisions.service import DecisionService
from ovirt_scheduler.errors import NotXmlRpc
from ovirt_scheduler.model.requests import AnswerForm, Caller
from ovirt_scheduler.processes.executor import Executor
from ovirt_scheduler.server.codec import decode_call
from ovirt_scheduler.server.dispatch import Dispatcher
from ovirt_scheduler.server.methods import DecisionMethods
from ovirt_scheduler.settings import scheduler_conf
from tests.support.fuzzed_requests import CALLS, FAULTS
from tests.support.fuzzing import assert_told, bounded, peak_of, tries
from tests.support.paths import PLUGINS


@tries(300)
@given(CALLS)
def test_a_call_is_read_or_refused(body: bytes) -> None:
    """A name and values, or one line that says what is wrong and where."""
    try:
        with bounded():
            name, parameters = decode_call(body)
    except NotXmlRpc as error:
        assert_told(str(error))
    else:
        assert name.strip()
        assert isinstance(parameters, tuple)


@pytest.mark.parametrize(
    "filling",
    [
        b"<value/>", b"<value><int>1</int></value>", b"<value><struct/></value>",
        b"<value>text</value>", b"<value><base64>aGkh</base64></value>", b"<!-- -->",
        b"<value a='1' b='2' c='3'/>", b" ",
    ],
)  # fmt: skip
def test_memory_grows_with_the_body_and_no_faster(filling: bytes) -> None:
    """What Python holds of a megabyte is a bounded multiple of it, whatever it is made of."""
    size = 1 << 20
    inside = filling * (size // len(filling))
    body = b"<methodCall><methodName>m</methodName><params><param><value><array><data>" + inside
    body += b"</data></array></value></param></params></methodCall>"
    assert peak_of(lambda: decode_call(body)) < 64 * size


def test_a_small_call_is_read_in_little_memory() -> None:
    """Room for a text is measured by the call, and not by the largest that there may be."""
    body = xmlrpc.client.dumps(("text",), "m").encode()
    decode_call(body)
    assert peak_of(lambda: decode_call(body)) < 1 << 16


@pytest.fixture(scope="module")
def dispatcher(executor: Executor, tmp_path_factory: pytest.TempPathFactory) -> Dispatcher:
    """The four operations as the daemon puts them together."""
    folder = tmp_path_factory.mktemp("calls")
    file = folder / "scheduler.conf"
    file.write_text(f"plugins_path = {PLUGINS}\nplugins_conf_path = {folder}\n", "utf-8")
    settings = scheduler_conf.load(file, {})
    registry = Registry(Loader(settings, executor.analyse), LastGood(folder / "state"))
    registry.refresh()
    service = DecisionService(registry, executor, 60.0)
    return Dispatcher([*DecisionMethods(service, settings.engine_scores).methods()])


def check_answer(document: bytes) -> None:
    """An answer that a client can read, or a fault of a caller's that says what it is."""
    try:
        xmlrpc.client.loads(document)
    except xmlrpc.client.Fault as fault:
        assert fault.faultCode in FAULTS, fault
        assert_told(fault.faultString)


@tries(150)
@given(CALLS, st.sampled_from(AnswerForm))
def test_a_call_is_answered(dispatcher: Dispatcher, body: bytes, form: AnswerForm) -> None:
    """With what it asks for, or a fault that is not of our own making."""
    with bounded():
        document, _ = dispatcher.answer(Caller("0a1b2c3d", form, "127.0.0.1:50000"), body)
        check_answer(document)
