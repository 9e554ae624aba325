"""How unequally the hosts of a cluster are used: one number, from 0 to 100 percent.

::

                       standard deviation of what is used of the hosts
    imbalance = 100 × ──────────────────────────────────────────────────
                       the largest that any hosts of the same mean have

The largest is √(mean × (1 - mean)): some hosts are full, and all others are empty. So 0 is a
cluster whose hosts are used alike. Little use makes little imbalance, also of two hosts of which
one is empty: 2 % and 0 % are 10 % imbalance, 50 % and 0 % are 58 %, 100 % and 0 % are 100 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


def imbalance(used: Iterable[float]) -> float:
    """The imbalance in percent.

    Args:
        used: of each host, the part that is used: 0 to 1, beyond which it counts as 0 or 1.
    """
    parts = [min(1.0, max(0.0, part)) for part in used]
    mean = math.fsum(parts) / max(1, len(parts))
    largest = mean * (1 - mean) * len(parts)
    if largest <= 0:  # no host, or all of them full or empty
        return 0.0
    return min(100.0, 100 * math.sqrt(math.fsum((part - mean) ** 2 for part in parts) / largest))
