# SPDX-License-Identifier: Apache-2.0
"""Which rollouts a status is about, and what is known of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import ENDED, Head
from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import Unreadable


@dataclass
class Seen:
    """Rollouts, the oldest first, as they are ``now`` (epoch seconds).

    ``damaged`` are those that cannot be read, ``unknown`` has a sentence for what could not be
    asked, ``stopped`` says why everything is. ``filtered``: somebody asked for rollouts of a kind.
    """

    context: Context
    heads: Sequence[Head]
    damaged: Sequence[Unreadable]
    unknown: list[str]
    stopped: str
    filtered: bool
    now: float = field(default_factory=clock.wall)

    @property
    def open(self) -> list[Head]:
        """Those that have not ended, or left hosts in quarantine."""
        return [head for head in self.heads if head.state not in ENDED or head.quarantined]

    @property
    def closed(self) -> list[Head]:
        """Those of which nothing is left to do."""
        return [head for head in self.heads if head.state in ENDED and not head.quarantined]


def counted(ended: int) -> str:
    """So many ended rollouts, in words."""
    return f"{ended} ended rollout{'' if ended == 1 else 's'}"
