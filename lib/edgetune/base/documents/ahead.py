# SPDX-License-Identifier: Apache-2.0
"""PoPs that a campaign has sampled before their rollouts begin: their baselines are measured then.

edgetune.ahead.CAMPAIGN
"""

from __future__ import annotations

import json
from dataclasses import asdict

from edgetune import PACK, RECORD_SCHEMA
from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import check_is, decoded
from edgetune.base.documents.schema import read_versioned

SAMPLED_FOR = 3600.0
"""Seconds for which PoPs are sampled ahead, unless the next step puts that off."""


@dataclass(frozen=True)
class SampledAhead:
    """``pops`` that are sampled ``until`` then (epoch seconds); each step of a campaign that goes
    on puts that off."""

    pops: list[str]
    until: float

    def document(self) -> str:
        """As it is stored."""
        return json.dumps({"schema": RECORD_SCHEMA, **asdict(self)})


def ahead_key(campaign: str) -> str:
    """The key of a campaign's; without an id what the keys of all begin with."""
    return f"{PACK}.ahead.{campaign}"


def read_ahead(key: str, text: str) -> SampledAhead:
    """A stored one; DamagedError if it is none, RefusedError if a later version wrote it.

    One that lasts longer than twice ``SAMPLED_FOR`` from now on is none: clocks differ by less.
    """
    found = decoded(key, SampledAhead, read_versioned(key, text))
    check_is(key, "until", found.until <= clock.wall() + 2 * SAMPLED_FOR, "is too far ahead")
    return found
