"""What a torture came to: as JSON, and in words that read well on a terminal and in Markdown."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict, dataclass
from typing import Optional

from torture.footing import Footing

_WIDTH = 46


@dataclass(frozen=True)
class Report:
    """Everything that is told.

    Attributes:
        seconds: that the torture lasted, start and end of the daemon included.
        before: when it was warm; ``after`` when everybody had gone; None where it had died.
        findings: what did not hold; the first of them at least.
        threads: where the daemon's threads were at the first finding, if gdb is here.
    """

    seed: int
    seconds: float
    clients: dict[str, int]
    counts: dict[str, int]
    before: Footing
    after: Optional[Footing]
    findings: list[str]
    threads: str = ""

    @property
    def holds(self) -> bool:
        return not self.findings

    def as_json(self) -> str:
        return json.dumps({**asdict(self), "holds": self.holds}, indent=1)

    def text(self) -> str:
        lines = [f"seed {self.seed}, {self.seconds:.0f} seconds", ""]
        lines += [_line(f"clients: {kind}", number) for kind, number in self.clients.items()]
        lines += ["", *(_line(what, self.counts[what]) for what in sorted(self.counts)), ""]
        after = dict(self.after.lines()) if self.after else {}
        for what, value in self.before.lines():
            lines.append(f"{what:{_WIDTH}} {value} before, {after.get(what, 'none')} after")
        lines.append("")
        if self.holds:
            lines.append("Everything held.")
        else:
            lines.append("What did not hold:")
            for finding in self.findings:
                lines.append(textwrap.indent(finding.rstrip(), "    ").replace("    ", "  - ", 1))
            if self.threads:
                lines += ["", "The daemon's threads at the first of them:", self.threads]
        return "\n".join(lines)


def _line(what: str, number: int) -> str:
    return f"{what:{_WIDTH}} {number:,}"
