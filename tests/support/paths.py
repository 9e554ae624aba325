"""Where the project, the tests' own files and the recorded documents are."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
DATA = PROJECT / "tests" / "data"
CORPUS = DATA / "corpus"
DOCUMENTS = DATA / "documents"
JAVA = DATA / "java"
OLD_PLUGINS = DATA / "old_plugins"
PLUGINS = DATA / "plugins"
SCHEDULERS = DATA / "schedulers"

# Calls and documents of real engines, which lie beside the checkout on some machines.
SHARED = PROJECT.parent / "shared" / "data"
WIRE = SHARED / "wire"
