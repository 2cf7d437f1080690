# SPDX-License-Identifier: Apache-2.0
"""One number for each draw: how bad, or how good, the test group looks if it were the real one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgetune.base.dataclass import dataclass

Array = Any

HANDICAP = {"soak": 0.0, "quarter": 0.6, "last": 1.2}
"""The windows of the soak in which harm is looked for: all of it so far, its last quarter, and
what came since the last look; and what a window has to be ahead of the whole soak by, in
standard deviations, because short windows win by chance more often."""
_NOTHING = 1e-9


@dataclass(frozen=True)
class Column:
    """Changes of hosts for one metric in one window, positive where it got worse.

    ``margin`` is the change that is no harm yet, as a logarithm.
    """

    metric: str
    window: str
    changes: Array
    margin: float = 0.0


def work_margin(margin: float, lasted: float, planned: float) -> float:
    """What may be lost of the work in a window that ``lasted`` so long, as a logarithm.

    The margin is of the whole soak that is ``planned``: hosts that were drained, and whose
    connections live long, get their traffic back by and by.
    """
    return margin * max(planned / lasted, 1.0)


def harm(statistics: Array, columns: Sequence[Column]) -> Array:
    """The harm that each draw shows in each column, shape (draws, columns).

    ``statistics`` are those of the columns' changes. In units of a statistic's own spread over
    the draws; -inf where it is within its margin. The test of the largest is one of "nothing
    got worse at all"; the margin is what the estimate has to be beyond. So wide margins leave
    more of alpha to the other columns.
    """
    margins = np.array([column.margin for column in columns])
    handicaps = np.array([HANDICAP[column.window] for column in columns])
    spread = statistics.std(axis=0)
    spread = np.where(spread > _NOTHING, spread, math.inf)
    beyond = (statistics > margins + _NOTHING) & np.isfinite(spread)
    return np.where(beyond, statistics / spread - handicaps, -math.inf)
