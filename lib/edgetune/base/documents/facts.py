# SPDX-License-Identifier: Apache-2.0
"""What the judge has to know of the hosts in a window, beside the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import Number


@dataclass(frozen=True)
class Measured:
    """In how much of a window each metric was measured on each host, all in seconds.

    ``seconds`` is the length of the window, ``watched`` the time between samples of one boot, by
    host. ``known`` is by metric and host the part of it in which the metric is known, ``unread``
    by counter or gauge and host the part in which that was not read; only what is more than
    nothing is kept of it.
    """

    seconds: float
    watched: dict[str, Number]
    known: dict[str, dict[str, Number]]
    unread: dict[str, dict[str, Number]]


@dataclass(frozen=True)
class Load:
    """Packets per second of all hosts together; None if they cannot be known."""

    median: Number | None
    peak: Number | None


@dataclass(frozen=True)
class Facts:
    """Each by host: in how many slots it was sampled, the time of its ``newest`` sample (None
    without any), the first of its ``flaws`` in words, its mean ``packets`` per second (None if
    unknown), the share of its slots in which it was ``idle``, and that of its idlest block.

    ``boots`` holds those of its first and of its last sample. Versions before 0.8 kept neither
    that nor ``idlest`` nor what was ``measured``.
    """

    samples: dict[str, int]
    newest: dict[str, float | None]
    flaws: dict[str, str]
    packets: dict[str, Number | None]
    idle: dict[str, float]
    load: Load
    idlest: dict[str, float] | None = None
    boots: dict[str, list[str]] = field(default_factory=dict)
    measured: Measured | None = None

    @property
    def at_idlest(self) -> Mapping[str, float]:
        """``idlest``, or ``idle`` where that is all that is known."""
        return self.idle if self.idlest is None else self.idlest
