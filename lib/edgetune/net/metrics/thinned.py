# SPDX-License-Identifier: Apache-2.0
"""Few samples of a long time: those around the borders of slots.

Counters tell by them what grew between. All samples of a large PoP over days would be millions.
"""

from __future__ import annotations

import math
from typing import Callable

from edgetune.base.documents.table import SampleTable


def thinned(
    read: Callable[[float, float], SampleTable],
    start: float,
    end: float,
    step: float,
    before: float,
) -> SampleTable:
    """All samples in the ``before`` seconds until ``start``, and until each ``step`` seconds after
    it, up to ``end``; all of the whole time where these nearly touch. ``read`` gives a window."""
    if step <= 1.5 * before:
        return read(start - before, end)
    found = SampleTable()
    for number in range(math.ceil((end - start) / step) + 1):
        border = start + step * number
        found.add_table(read(border - before, border))
    return found
