"""Files are analysed as the daemon does it, in a process of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest

from ovirt_scheduler.model.analysis import Analysis
from ovirt_scheduler.model.plugins import Candidate, Source

PACKAGES = ("package", "package.inner")


@pytest.fixture
def analyse(executor, tmp_path: Path) -> Callable[..., Analysis]:
    """Analyses ``plugin.py`` of a text, beside other files by name."""

    def run(text: object, folder: Path = tmp_path, **helpers: str) -> Analysis:
        def source(name: str, text: object) -> Source:
            data = text if isinstance(text, bytes) else str(text).encode()
            own = f"{name}/__init__" if name in PACKAGES else name.replace(".", "/")
            return Source(name, str(folder / f"{own}.py"), data)

        others = tuple(source(name, helper) for name, helper in helpers.items())
        return executor.analyse(Candidate(source("plugin", text), str(folder), others))

    return run
