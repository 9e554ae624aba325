"""How a plugin call ended, for whoever wrote the plugin: what it printed, and where it failed."""

from __future__ import annotations

from typing import Dict, Iterator

from ovirt_scheduler.model.results import CallResult


def printed(result: CallResult, before: str = "") -> Iterator[str]:
    """Traceback and output, each with a heading; nothing of what is empty.

    Args:
        before: the heading's beginning.
    """
    for heading, text in (
        ("traceback", result.traceback),
        ("stdout", result.stdout),
        ("stderr", result.stderr),
    ):
        if text.strip():
            yield f"{before}{heading}:\n{text.rstrip()}\n"


def fields(result: CallResult) -> Dict[str, object]:
    """For JSON."""
    return {
        "outcome": result.outcome.value,
        "milliseconds": round(result.seconds * 1000, 1),
        "message": result.message,
        "notes": list(result.notes),
        "traceback": result.traceback,
        "stdout": result.stdout,
        "stderr": result.stderr,
    }
