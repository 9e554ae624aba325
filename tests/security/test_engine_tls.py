"""The certificate of our making, and the trust store of a JVM such as the engine's."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import engine_reader
from tests.support.paths import JAVA, PROJECT

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not shutil.which("java") or not shutil.which("keytool"), reason="there is no JVM here"
    ),
]

CLIENT = JAVA / "Discover.java"


@pytest.fixture(scope="module")
def daemon(start_daemon):
    return start_daemon(settings="root_api = engine")


def ask(url: str, store: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["java", f"-Djavax.net.ssl.trustStore={store}",
         "-Djavax.net.ssl.trustStorePassword=changeit", str(CLIENT), f"{url}/"],
        capture_output=True, timeout=90, check=False,
    )  # fmt: skip


def test_a_jvm_believes_the_daemon_after_the_manuals_command(daemon, tmp_path):
    """The keytool line of docs/engine.md, with the paths of this test, is all it takes."""
    page = (PROJECT / "docs" / "engine.md").read_text("utf-8")
    command = re.search(r"keytool -importcert(?:.*\\\n)*.*", page).group()
    store = tmp_path / "cacerts"
    command = re.sub(r'-keystore "[^\n]*"', f"-keystore {store}", command)
    command = re.sub(r"-file \S+", f"-file {daemon.certificate}", command)
    subprocess.run(["bash", "-euc", command], check=True, capture_output=True, timeout=60)
    answered = ask(daemon.url, store)
    assert answered.returncode == 0, answered.stderr.decode()
    assert "keeps_all" in engine_reader.discovery(answered.stdout)["filters"]


def test_a_jvm_refuses_the_daemon_without_it(daemon, tmp_path):
    """Nothing is believed by default: an empty store refuses the handshake."""
    certificate = tmp_path / "other"
    subprocess.run(
        ["keytool", "-genkeypair", "-alias", "other", "-dname", "CN=localhost", "-keyalg", "EC",
         "-storepass", "changeit", "-keystore", str(certificate)],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    refused = ask(daemon.url, certificate)
    assert refused.returncode != 0
    assert b"SSLHandshakeException" in refused.stderr
