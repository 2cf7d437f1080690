# SPDX-License-Identifier: Apache-2.0
"""Looking often at one alpha: a group-sequential permutation test.

The draws are the same at every look. As the soak goes on, more and more of them may be taken
out, those with the largest scores first, up to ``alpha`` times their number at its end; the test
rejects once the draw that happened is taken out. If the tuning does nothing, every draw is as
likely to be taken out as any other, so that comes to pass with a probability of at most alpha,
whatever the scores, however often and whenever they were looked at, and however they depend on
each other (Zhang, Rosenberger, Sequential monitoring of randomization tests).
"""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

from edgetune.base.errors import InputError
from edgetune.judge.permutation import TIE

Array = Any


def budget(alpha: float, spent: float, draws: int) -> int:
    """How many of the draws may be out once this share of alpha is spent."""
    return math.floor(alpha * spent * draws + TIE)


def spent(alpha: float, passed: float, draws: int, looks: int) -> float:
    """The share of alpha that harm may have cost once this share of the soak has ``passed``.

    It is the same, or, where there are fewer draws to take out than looks, a little less at
    first: the few are worth more when more is known.
    """
    return passed if budget(alpha, 1.0, draws) >= looks else passed**1.5


def take_out(scores: Array, alive: Array, most: int) -> Array:
    """The draws still alive when at most ``most`` in all may be out.

    Draws that tie stay together: none is taken out unless all of them can be. A score of -inf
    is never taken out.
    """
    left = most - int(np.sum(~alive))
    if left <= 0:
        return alive
    ranked = np.sort(scores[alive])[::-1]
    stays = ranked[left] if left < len(ranked) else -math.inf
    return alive & ~(scores > stays + TIE)


def pack(alive: Array) -> str:
    """The draws alive as text, for the record of a look."""
    return base64.b64encode(np.packbits(alive).tobytes()).decode("ascii")


def unpack(text: str, draws: int) -> Array:
    """Back from ``pack``; InputError when it is of another number of draws."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text), dtype=np.uint8))
    if not draws <= len(bits) < draws + 8:
        raise InputError("look", "alive", f"is of {len(bits)} draws, not of {draws}")
    return bits[:draws].astype(bool)
