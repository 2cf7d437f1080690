# SPDX-License-Identifier: Apache-2.0
"""How many examples a property is tried with: all of them, or under the profile ``quick`` few.

``make check`` and ``make test`` name that profile of Hypothesis; ``make test-all`` runs properties
once more without one.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings

USUAL, FEW = 100, 25
"""Examples of a property that says nothing else: without a profile, and under ``quick``."""


def examples(most: int, **more: Any) -> settings:
    """At most so many, or a quarter of them; ``more`` as of Hypothesis."""
    share = min(1.0, settings.default.max_examples / USUAL)
    return settings(max_examples=max(5, round(most * share)), deadline=None, **more)
