"""Small charts as SVG, drawn here: no script and no font is needed to see them."""

from __future__ import annotations

from typing import List, Sequence

from ovirt_scheduler.history.tally import Minute

_WIDTH, _HEIGHT = 120.0, 24.0


def last_hour(minutes: Sequence[Minute], large: bool = False) -> str:
    """Bars, one for each minute: how many calls there were, and how many of them failed.

    Its text says the same to a screen reader.
    """
    calls = sum(minute.calls for minute in minutes)
    failures = sum(minute.failures for minute in minutes)
    text = f"{calls} calls in the last hour, {failures} of them failed" if calls else "no calls"
    size = "chart large" if large else "chart"
    bars = "".join(_bars(minutes)) or f'<path class="none" d="M0 {_HEIGHT - 0.5}H{_WIDTH:g}"/>'
    return (
        f'<svg class="{size}" role="img" aria-label="{text}" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" '
        f'preserveAspectRatio="none"><title>{text}</title>{bars}</svg>'
    )


def _bars(minutes: Sequence[Minute]) -> List[str]:
    most = max((minute.calls for minute in minutes), default=0)
    step = _WIDTH / max(1, len(minutes))
    bars = []
    for place, minute in enumerate(minutes):
        for count, kind in ((minute.calls, "calls"), (minute.failures, "failed")):
            if count:
                height = max(1.0, _HEIGHT * count / most)
                bars.append(
                    f'<rect class="{kind}" x="{place * step:g}" y="{_HEIGHT - height:.2f}" '
                    f'width="{step * 0.8:.2f}" height="{height:.2f}"/>'
                )
    return bars
