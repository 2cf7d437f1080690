# SPDX-License-Identifier: Apache-2.0
"""Rounds of congestion control: their age, prefixes, hosts and effect."""

from __future__ import annotations

from collections.abc import Iterable

from edgetune.documents.rounds import ROLLED_BACK
from edgetune.export.under_way import UNREADABLE
from edgetune.export.values import Values
from edgetune.rollout.rounds_seen import SeenRounds


def tell_rounds(values: Values, found: Iterable[SeenRounds]) -> None:
    """Of each PoP with such rounds; of one that left the inventory only what is not taken back."""
    for own in found:
        if own.decisions is None:
            values.put("edgetune_congestion_state", 1, own.pop, UNREADABLE)
            continue
        values.put("edgetune_congestion_hosts_not_taken_back", len(own.pending), own.pop)
        if own.entry:
            _tell(values, own)


def _tell(values: Values, own: SeenRounds) -> None:
    decided, pop = own.decisions, own.pop
    assert decided
    values.put("edgetune_congestion_state", 1, pop, decided.state)
    held_out = decided.newest.held_out if own.treated else 0
    values.put("edgetune_congestion_prefixes", own.treated, pop, "treated")
    values.put("edgetune_congestion_prefixes", held_out, pop, "held_out")
    values.put("edgetune_congestion_prefixes_new", decided.newest.new, pop)
    values.put("edgetune_congestion_hosts_without", len(own.missing), pop)
    if own.treated:
        told = "edgetune_congestion_configuration_timestamp_seconds"
        values.put(told, decided.newest.since, pop)
    is_back, is_harm = decided.state == ROLLED_BACK, bool(own.taken_back)
    for cause, is_cause in (("harm", is_harm), ("request", is_back and not is_harm)):
        values.put("edgetune_congestion_taken_back", is_cause, pop, cause)
    if own.is_tuning:
        last = max(decided.newest.good, decided.since)
        values.put("edgetune_congestion_last_round_timestamp_seconds", last, pop)
    for effect in decided.looks[-1].effects if decided.looks else []:
        if effect.ratio is not None:
            values.put("edgetune_congestion_effect_ratio", effect.ratio, pop, effect.metric)
