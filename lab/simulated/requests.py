# SPDX-License-Identifier: Apache-2.0
"""The access log of a simulated host: requests that nobody sent, in the time that some took."""

from __future__ import annotations

import math
import random
from pathlib import Path

LOG = "/var/log/nginx/access.log"
FORMAT = "{status} {bytes} {time} "
# Per second, of a host with its even share of the PoP's traffic: seconds have enough for a p99.
REQUESTS = 600.0
MEDIAN, SPREAD = 0.02, 0.6  # s, and the standard deviation of the logarithm
LONGEST = 1 << 22  # bytes; then it is renamed
_LINES = 1000


class AccessLog:
    """Written as web servers do: to the end, and a new file once it is long."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        times = (MEDIAN * math.exp(SPREAD * chance.gauss(0, 1)) for _ in range(_LINES))
        self._lines = [f"200 1200 {time:.3f} \n" for time in times]

    def grow(self, root: Path, seconds: float, load: float) -> None:
        """Answer requests for that long; `load` is as in `Counters.grow`."""
        mean = REQUESTS * seconds * load
        many = max(0, round(self._chance.gauss(mean, math.sqrt(mean))))
        path = root / LOG[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as log:
            log.write("".join(self._chance.choices(self._lines, k=many)))
            is_long = log.tell() > LONGEST
        if is_long:
            path.replace(path.with_name(path.name + ".1"))
