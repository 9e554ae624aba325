"""The command, run on a folder that stands for a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest

from ovirt_scheduler.command import cli
from tests.support import setup_root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return setup_root.made(tmp_path)


@pytest.fixture
def setup(
    root: Path, capsys: pytest.CaptureFixture[str], one_executor: None
) -> Callable[..., tuple[int, str]]:
    """Gives the exit status and the lines of a run."""

    def run(*arguments: str, root: Path = root) -> tuple[int, str]:
        status = cli.main(["setup", "--root", str(root), *arguments])
        said = capsys.readouterr()
        return status, said.out + said.err

    return run
