# SPDX-License-Identifier: Apache-2.0
"""What was counted between two looks at a soak."""

from __future__ import annotations

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.facts import Facts


@dataclass(frozen=True)
class Counted:
    """One metric: ``rows`` of the block's hosts (see ``documents.rows``, ``judge.measured``)."""

    rows: str


@dataclass(frozen=True)
class Block:
    """The span from ``start`` to ``end`` in slots of ``slot`` seconds, by metric.

    ``resumed`` says that a person resumed this soak after it had been held.
    """

    start: float
    end: float
    slot: float
    hosts: list[str]
    metrics: dict[str, Counted]
    facts: Facts
    resumed: bool = False
