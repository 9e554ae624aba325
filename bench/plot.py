"""Line charts as SVG, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 860, 480
_LEFT, _TOP, _RIGHT, _BOTTOM = 76, 48, 610, 424  # the axes; names stand to their right
_APART = 15  # between two names
_SVG = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
    'font-family="sans-serif" font-size="12" fill="#333">'
)

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A series; ``points`` are positive numbers, from left to right."""

    name: str
    points: Sequence[Point]
    colour: str
    dashed: bool = False


def chart(title: str, across: str, up: str, lines: Sequence[Line]) -> str:
    """The SVG document.

    Args:
        across, up: what the axes show, with the unit.
    """
    lines = [line for line in lines if line.points]
    xs = sorted({x for line in lines for x, _ in line.points})
    ys = [y for line in lines for _, y in line.points] or [1.0]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    left, right = math.log10(xs[0] if xs else 1), math.log10(xs[-1] if xs else 10)

    def place(point: Point) -> Point:
        x = _LEFT + (_RIGHT - _LEFT) * (math.log10(point[0]) - left) / max(right - left, 0.1)
        y = _BOTTOM - (_BOTTOM - _TOP) * (math.log10(point[1]) - low) / max(high - low, 1)
        return x, y

    parts = [
        _SVG,
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        _text(_LEFT, 24, title, 'font-size="15"'),
        _text((_LEFT + _RIGHT) / 2, _HEIGHT - 14, across, 'text-anchor="middle"'),
        _text(_LEFT - 60, _TOP - 10, up),
    ]
    for power in range(low, high + 1):
        _, y = place((xs[0] if xs else 1, 10.0**power))
        parts.append(_stroke([(_LEFT, y), (_RIGHT, y)], "#ddd", 1))
        parts.append(_text(_LEFT - 8, y + 4, f"{10.0**power:,g}", 'text-anchor="end"'))
    for x in xs:
        at, _ = place((x, 10.0**low))
        parts.append(_stroke([(at, _TOP), (at, _BOTTOM)], "#eee", 1))
        parts.append(_text(at, _BOTTOM + 18, f"{x:,g}", 'text-anchor="middle"'))
    ends = sorted(((place(line.points[-1]), line) for line in lines), key=lambda end: end[0][1])
    lowest = float(_TOP)
    for (x, y), line in ends:
        placed = [place(point) for point in line.points]
        parts.append(_stroke(placed, line.colour, 2, dashed=line.dashed))
        parts += [
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{line.colour}"/>' for a, b in placed
        ]
        at = max(y, lowest)
        lowest = at + _APART
        parts.append(_stroke([(x + 6, y), (_RIGHT + 14, at)], line.colour, 0.5))
        parts.append(_text(_RIGHT + 18, at + 4, line.name, f'style="fill:{line.colour}"'))
    return "\n".join([*parts, "</svg>", ""])


def _stroke(points: Sequence[Point], colour: str, width: float, *, dashed: bool = False) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>'


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'
