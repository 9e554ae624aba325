"""A plugin's conf file, and what it says of a filter that does not load."""

from __future__ import annotations

from pathlib import Path

import pytest

from ovirt_scheduler.errors import PluginError
from ovirt_scheduler.model.units import Kind, OnFailure
from ovirt_scheduler.settings import plugin_conf
from ovirt_scheduler.settings.table import PluginConf
from tests.support.paths import PROJECT


@pytest.fixture
def parsed(tmp_path):
    """Write a file and read it as the conf file of the plugin Memory."""

    def read(text: str) -> PluginConf:
        file = tmp_path / "Memory.conf"
        file.write_text(text, encoding="utf-8")
        return plugin_conf.parse(file.read_bytes(), file)

    return read


def test_a_plugin_conf_is_read(parsed):
    """Every key has its field."""
    text = (
        "name = Heat\n"
        r"customProperties = ip=\d{1,3}\.\d{1,3};t={0-99};w=a,b=c%(d)s # two" + "\n"
        "defaultValues = '1.1;70'\nkinds = filter, balance\ntimeout = 2.5\n"
        "memory_limit = 64 MiB\non_failure = reject\nenabled = no\n"
    )
    assert parsed(text) == PluginConf(
        name="Heat",
        custom_properties=r"ip=\d{1,3}\.\d{1,3};t={0-99};w=a,b=c%(d)s",
        default_values="1.1;70",
        kinds=frozenset({Kind.FILTER, Kind.BALANCE}),
        timeout=2.5,
        memory_limit=64 * 1024**2,
        on_failure=OnFailure.REJECT,
        enabled=False,
    )


def test_the_sample_plugin_conf_is_the_one_of_the_design_page():
    """The filter alone has the properties (contract 2.1)."""
    file = PROJECT / "etc" / "plugins" / "Memory.conf"
    conf = plugin_conf.parse(file.read_bytes(), file)
    assert conf == PluginConf(
        name="Heat",
        custom_properties=r"server_ip=\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b;threshold={0-99}",
        default_values="127.0.0.1;70",
        kinds=frozenset({Kind.FILTER}),
    )


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("customproperties = a=b", 1, "did you mean customProperties?"),
        ("default_values = 1", 1, "did you mean defaultValues?"),
        ("\nkinds = filter, score", 2, "kinds: expected one or more, with commas between, of"),
        ("on_failure = stop", 1, "on_failure: expected one of ignore, reject"),
        ("timeout = 0", 1, "timeout: expected seconds"),
        ("defaultValues = 1", 1, "no customProperties"),
        ("customProperties = a=[#]", 1, "needs quotes"),
        ("[engine]\nname = x", 1, "no such section"),
    ],
)
def test_a_mistake_in_a_plugin_conf_is_the_plugins(parsed, tmp_path, text, line, words):
    """It names file, line and key, as for scheduler.conf (contract 5.5)."""
    with pytest.raises(PluginError) as caught:
        parsed(text)
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "Memory.conf"), line)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("conf", "default", "rejects"),
    [
        ("on_failure = reject", "ignore", True),
        ("on_failure = ignore", "reject", False),
        ("timeout = 3", "reject", True),
        ("timeout = 3", "ignore", False),
        ("on_failure = reject\nenabled = false", "reject", False),
        ("on_failure = reject\nshadow = true", "reject", False),
        ("on_failure = reject\ntmeout = 3", "ignore", True),
        ("on_failure = 'reject' # of course\ntimeout = soon", "ignore", True),
        ("on_failure = rejct", "ignore", True),
        ("on_falure = reject", "ignore", True),
        ("tmeout = 3", "reject", True),
        ("tmeout = 3", "ignore", False),
        ("on_failure = ignore\ntmeout = 3", "ignore", False),
        ("#on_failure = reject\ntmeout = 3", "ignore", False),
        ("on_failure = reject\nshadow = true\ntimeout = soon", "reject", False),
        ("on_failure: reject", "ignore", True),
        ("timeout = 3\n  On_Failure :'reject'", "ignore", True),
        ("on_failure reject", "ignore", True),
        ("on-failure => reject", "ignore", True),
        ("on_failure", "ignore", True),
        ("on_failure: ignore", "ignore", False),
        ("on_failure: ignore", "reject", True),
        ("# on_failure: reject\ntmeout = 3", "ignore", False),
        ("customProperties = mode=accept|reject\ntmeout = 3", "ignore", False),
        ("on_failure: reject\nshadow: true", "ignore", False),
    ],
)
def test_whether_a_filter_rejects_is_read_of_a_conf_file_with_mistakes_too(conf, default, rejects):
    """A mistake elsewhere in it does not change what it says of that (contract 4.2)."""
    default = OnFailure(default)
    assert plugin_conf.rejects(conf.encode(), Path("/guard.conf"), default) is rejects


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("text", ["on_failure = reject\n", "timeout = 3 # f\u00fcr\n"])
def test_a_conf_file_that_is_no_text_counts_as_reject(encoding, text):
    """As Windows writes one: nobody can say that it does not say so (contract 4.2)."""
    data = text.encode(encoding)
    assert plugin_conf.rejects(data, Path("/guard.conf"), OnFailure.IGNORE)


def test_a_conf_file_with_an_invisible_character_counts_as_reject():
    """It may be in the very word."""
    data = "on\u200b_failure = re\u200bject\n".encode()
    assert plugin_conf.rejects(data, Path("/guard.conf"), OnFailure.IGNORE)
