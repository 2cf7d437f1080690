# SPDX-License-Identifier: Apache-2.0
"""Random draws of prefixes that are the same at every round, on every action runner.

A prefix is chosen because it was bad, and what was worst gets better by itself (regression to the
mean). So a random part of the chosen ones is held out: only the difference to it is an effect.
"""

from __future__ import annotations

import hashlib


def is_drawn(prefix: str, salt: str, purpose: str, share: float) -> bool:
    """Whether a prefix is among this share, by a hash that nobody can foresee without the salt.

    ``salt`` is that of the PoP. Draws for different purposes do not depend on each other. A
    larger share holds all of a smaller one.
    """
    text = "\n".join((salt, purpose, prefix)).encode()
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return number < share * 2**64


def is_held_out(prefix: str, salt: str, share: float) -> bool:
    """Whether a chosen prefix stays untreated."""
    return is_drawn(prefix, salt, "hold-out", share)


def has_window(prefix: str, salt: str) -> bool:
    """Whether a treated prefix gets an initial window as well: every other one does."""
    return is_drawn(prefix, salt, "initial window", 0.5)
