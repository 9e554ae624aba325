"""What an administrator is told of certificates."""

from __future__ import annotations

import dataclasses
import datetime
import json

import pytest

from ovirt_scheduler.daemon.certificate_report import report
from ovirt_scheduler.security import certificates
from ovirt_scheduler.settings import scheduler_conf
from tests.support.certificates import write_pair
from tests.support.command import run

pytestmark = pytest.mark.usefixtures("one_executor")

NOW = datetime.datetime.now(datetime.timezone.utc)


@pytest.fixture
def settings():
    return scheduler_conf.load(None, {})


@pytest.mark.parametrize(
    ("days", "problem"),
    [(300, ""), (31, ""), (10, "10 days left; put a new one"), (-2, "expired on ")],
)
def test_days_left_are_told_and_too_few_are_a_problem(tmp_path, settings, days, problem):
    """Thirty, unless said."""
    files = write_pair(tmp_path / "own", days)
    settings = dataclasses.replace(settings, ssl_certificate=files.certificate, ssl_key=files.key)
    (told,) = report(settings, tmp_path)
    assert told.described.days_left == days
    assert told.described.names == ("scheduler.example.org",)
    assert told.problem.startswith(problem)
    assert bool(told.problem) == bool(problem)
    assert (problem or f"{days} days left") in told.line()
    assert told.fields()["days_left"] == days
    assert told.described.fingerprint in told.text()


def test_check_is_not_content_with_one_that_ends_soon(tmp_path):
    """Though nothing else is wrong."""
    (tmp_path / "state").mkdir(mode=0o700)
    write_pair(tmp_path / "state" / "certificate", 10)
    (tmp_path / "plugins").mkdir()
    status, out, _ = run(tmp_path, "check", "--plugins", str(tmp_path / "plugins"))
    assert (status, out.splitlines()[-1]) == (1, "1 to mend")
    assert "10 days left" in out
    status, out, _ = run(tmp_path, "check", "--plugins", str(tmp_path / "plugins"), "-o", "json")
    assert (status, json.loads(out)["ok"]) == (1, False)


def test_a_certificate_without_names_is_described(tmp_path):
    """Old ones have a subject only."""
    files = write_pair(tmp_path / "own", 100, names=())
    described = certificates.describe(files.certificate)
    assert (described.subject, described.names) == ("CN=scheduler", ())


def test_a_pair_that_does_not_match_is_a_problem(tmp_path, settings):
    """What serve would refuse to start with."""
    one, other = write_pair(tmp_path / "one", 100), write_pair(tmp_path / "other", 100)
    settings = dataclasses.replace(settings, ssl_certificate=one.certificate, ssl_key=other.key)
    (told,) = report(settings, tmp_path)
    assert "is not the key of" in told.problem
    assert told.described is None


def test_what_is_made_on_first_start_is_no_problem(tmp_path, settings):
    """It is not there yet, and nothing is made by looking."""
    (told,) = report(settings, tmp_path)
    assert (told.described, told.problem) == (None, "")
    assert list(tmp_path.iterdir()) == []


def test_the_clients_authority_is_looked_at_too(tmp_path, settings):
    """Clients are refused when it has expired."""
    files = write_pair(tmp_path / "ca", -1)
    settings = dataclasses.replace(settings, ssl_client_ca=files.certificate)
    _, told = report(settings, tmp_path)
    assert told.setting == "ssl_client_ca"
    assert "expired" in told.problem


def test_without_tls_there_is_nothing_to_tell(tmp_path, settings):
    """ssl = false."""
    assert report(dataclasses.replace(settings, ssl=False), tmp_path) == ()


def test_a_certificate_that_is_not_valid_yet_is_a_problem(tmp_path, settings):
    """The clock is wrong, or the certificate."""
    files = write_pair(tmp_path / "own", 300, begins=2)
    settings = dataclasses.replace(settings, ssl_certificate=files.certificate, ssl_key=files.key)
    (told,) = report(settings, tmp_path)
    assert told.problem.startswith("not valid before ")


def test_for_one_that_was_made_here_the_command_is_named(tmp_path, settings):
    """There is nobody else who could issue it."""
    write_pair(tmp_path / "certificate", 10)
    (told,) = report(settings, tmp_path)
    assert told.problem.startswith("10 days left; ovirt-scheduler cert renew before ")
