# SPDX-License-Identifier: Apache-2.0
"""How many segments a new connection may send before the first acknowledgement."""

from __future__ import annotations

import math

USUAL = 10
"""Segments: RFC 6928, and Linux."""
MOST = 40
"""Segments, 58 kB: a burst that buffers of access networks still take."""
_SEGMENT = 1448
_SHARE = 0.5
_MOST_RETRANSMITS = 0.02


def initial_window(delivery_rate: float, rtt_ms: float, retransmits: float) -> int:
    """Segments for a prefix, or 0: then the kernel's own.

    Half of what the path of its median socket carries within a round-trip time (``delivery_rate``
    in bytes a second). A prefix with more than 2 % of its bytes sent again keeps the kernel's: a
    burst would add to that. So does one of which a value is NaN.
    """
    segments = _SHARE * delivery_rate * rtt_ms / 1000 / _SEGMENT
    if not (retransmits <= _MOST_RETRANSMITS and USUAL < segments < math.inf):
        return 0
    return min(MOST, int(segments)) if int(segments) > USUAL else 0
