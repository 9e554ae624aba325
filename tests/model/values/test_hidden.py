"""Texts without the secrets that this process has used."""

from __future__ import annotations

import html
import json
from urllib.parse import quote, quote_plus

import pytest

from ovirt_scheduler.model.values import hidden
from ovirt_scheduler.model.values.text import shortened

SECRET = 'a "horse" & <batterie>/stäple'


@pytest.mark.parametrize(
    "written",
    [SECRET, quote(SECRET), quote(SECRET, ""), quote_plus(SECRET), html.escape(SECRET),
     json.dumps(SECRET)[1:-1]],
)  # fmt: skip
def test_a_secret_is_hidden_however_it_is_written(written):
    hidden.remember(SECRET)
    assert hidden.without_secrets(f"bad {written}, and {written}") == "bad …, and …"


def test_secrets_are_hidden_wherever_a_text_is():
    hidden.remember("former-token")
    hidden.remember("former-token-and-more")
    said = {"former-token": ["a former-token-and-more", 7, None, ("former-token",)]}
    assert hidden.without_secrets(said) == {"…": ["a …", 7, None, ["…"]]}


@pytest.mark.parametrize("limit", [205, 210])
def test_a_secret_that_is_cut_off_is_hidden_too(limit):
    hidden.remember("correct horse")
    text = f"{'x' * 200}correct horse"
    assert hidden.without_secrets(text[:limit]) == "x" * 200
    assert hidden.without_secrets(f"'{shortened(text, limit)}'") == f"'{'x' * 200}…'"


def test_what_is_too_short_to_be_told_from_other_texts_is_not_looked_for():
    hidden.remember("")
    hidden.remember("abc")
    assert hidden.without_secrets("abcd") == "abcd"


def test_the_oldest_secrets_are_forgotten(monkeypatch):
    monkeypatch.setattr(hidden, "_MOST", 3)
    for secret in ("password", "token-1", "token-2", "password", "token-3"):
        hidden.remember(secret)
    said = "password token-1 token-2 token-3"
    assert hidden.without_secrets(said) == "… token-1 … …"
