"""What a plugin gains that finds the pipe of its answer and writes into it: an answer of its own."""

from __future__ import annotations

import json

import pytest
from jobs import HOSTS, job_of, only

from ovirt_scheduler.executor import Executor
from ovirt_scheduler.model import CallResult, Document, Outcome, PolicyUnit

FORGED = {
    "type": "result", "position": 0, "unit": "keeps_all", "outcome": "ok", "value": [*HOSTS],
    "message": "", "seconds": 0, "notes": [], "stdout": "", "stderr": "", "traceback": "",
}  # fmt: skip


def forged(executor: Executor, unit: PolicyUnit, answer: str) -> CallResult:
    return only(executor.run(job_of([unit], properties={"answer": answer})))


def test_a_forged_answer_is_an_answer_of_its_own_unit_and_no_more(executor, unit_named):
    """Its name, its notes and its output are not the plugin's to say, and its message is a line."""
    unit = unit_named("forges_an_answer")
    lines = "no\n2026-01-01 00:00:00 ERROR all is lost\0" + "x" * 10_000
    changes = {"outcome": "raised", "message": lines, "notes": ["a", "b"], "stdout": "c"}
    result = forged(executor, unit, json.dumps({**FORGED, **changes}))
    assert (result.unit, result.outcome) == ("forges_an_answer", Outcome.RAISED)
    assert result.message.startswith("no 2026-01-01 00:00:00 ERROR all is lost\ufffdxxx")
    assert len(result.message) == 500
    assert (result.notes, result.stdout) == ((), "")


def test_a_forged_answer_cannot_name_hosts_that_were_not_given(executor, unit_named):
    """They are dropped, and told, as in any answer (contract 3.6)."""
    unit = unit_named("forges_an_answer")
    result = forged(executor, unit, json.dumps({**FORGED, "value": ["host-1", "stranger"]}))
    assert result.value == ("host-1",)
    assert "1 dropped: stranger" in result.notes[0]


@pytest.mark.parametrize(
    "answer",
    [
        "cos\nsystem\n(S'true'\ntR.",  # a pickle
        "[" * 100_000,
        '{"type": "printed", "type": 7}',
        '{"type": "done", "again": true}',
        '{"type": "result", "position": "' + "9" * 5000 + '"}',
    ],
)
def test_an_answer_that_is_none_is_a_failure_of_its_unit(executor, unit_named, answer):
    """It is read as JSON of one shape, and never as anything else."""
    result = forged(executor, unit_named("forges_an_answer"), answer)
    assert result.outcome is Outcome.BAD_ANSWER
    assert result.message.startswith("its answer cannot be read: ")
    assert only(executor.run(job_of([unit_named("keeps_all")]))).value == HOSTS


def test_a_frame_without_end_is_a_failure_before_it_fills_memory(executor, unit_named):
    """Its length is looked at first (64 MiB at most)."""
    unit = unit_named("floods_its_answer")
    result = only(executor.run(job_of([unit])))
    assert result.outcome is Outcome.BAD_ANSWER
    assert "at most 67108864" in result.message


def test_rubbish_on_every_descriptor_is_a_failure_of_that_call_alone(executor, unit_named):
    """A plugin that finds its answer's pipe can spoil only its own answer."""
    bad, good = executor.run(
        job_of([unit_named("writes_to_descriptors"), unit_named("keeps_all")])
    ).results
    assert bad.outcome is Outcome.BAD_ANSWER
    assert bad.message.startswith("its answer cannot be read")
    assert good.value == HOSTS


@pytest.mark.parametrize("hosts", [HOSTS, Document(b"<hosts><host id='a'/></hosts>")])
def test_a_plugin_has_four_descriptors(executor, unit_named, hosts):
    """Whether its process waited for the call or was forked for it: no socket is among them."""
    result = only(executor.run(job_of([unit_named("tells_its_descriptors")], hosts=hosts)))
    targets = [line.split()[1] for line in result.stdout.splitlines()]
    assert targets == ["/dev/null", "pipe", "pipe", "pipe"]
