"""What a real Java makes of regular expressions."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import List, Sequence

import pytest

_PROGRAM = Path(__file__).resolve().parent / "java" / "Match.java"

needs_java = pytest.mark.skipif(
    shutil.which("java") is None, reason="needs a JDK, which the engine has"
)


def java_matches(patterns: Sequence[str], values: Sequence[str] = ()) -> List[str]:
    """A text for each pattern: ``refused``, or 0 and 1 for each value that it does not match or does."""
    ran = subprocess.run(
        ["java", str(_PROGRAM), *values],
        input="\n".join(patterns) + "\n",
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    answers = ran.stdout.splitlines()
    assert len(answers) == len(patterns)
    return answers
