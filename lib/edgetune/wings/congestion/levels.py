# SPDX-License-Identifier: Apache-2.0
"""What one round showed of treated and of held-out prefixes, to be looked at by people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgetune.agent.vocabulary.prefixes import number_of
from edgetune.base.documents.congestion import Chosen, Thresholds
from edgetune.base.documents.rounds import Levels
from edgetune.wings.congestion.rows import PrefixRows

PERCENTILES = (5, 10)
LEVELS = ("delivery_rate", "goodput")
"""Measures of which low percentiles are shown, where the source has them; bytes a second."""


def levels_of(
    chosen: Sequence[Chosen], rows: PrefixRows, thresholds: Thresholds
) -> dict[str, Levels]:
    """By measure, PERCENTILES over the prefixes that are past their warm-up."""
    past = [own for own in chosen if rows.round - own.since > thresholds.warmup]
    groups = [
        _places([own for own in past if own.held_out is held], rows) for held in (False, True)
    ]
    return {
        name: Levels(*(_percentiles(rows.measures[name][places]) for places in groups))
        for name in LEVELS
        if name in rows.measures
    }


def _places(chosen: Sequence[Chosen], rows: PrefixRows) -> Any:
    keys = np.array([number_of(own.prefix) for own in chosen], dtype=np.uint64)
    if not len(rows) or not len(keys):
        return np.empty(0, dtype=np.intp)
    at = np.minimum(np.searchsorted(rows.prefixes, keys), len(rows) - 1)
    return at[rows.prefixes[at] == keys]


def _percentiles(values: Any) -> list[float] | None:
    known = values[~np.isnan(values)]
    return [float(own) for own in np.percentile(known, PERCENTILES)] if len(known) else None
