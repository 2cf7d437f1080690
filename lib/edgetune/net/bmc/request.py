# SPDX-License-Identifier: Apache-2.0
"""What a BMC is asked, and how it restarts its machine. Plans are shown without a client."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from edgetune.base.dataclass import dataclass

Values = Mapping[str, object]
"""Attributes of a BIOS by name."""


RESTART, SHUTDOWN, FORCED, ON = "GracefulRestart", "GracefulShutdown", "ForceRestart", "On"
"""Values of ResetType (DMTF DSP0268, Resource)."""


@dataclass(frozen=True)
class Request:
    """What a verb is to do, or to look at; each reads what is its own.

    system          -- the UUID of the machine that is meant; empty for any
    attributes      -- what ``set`` makes of a BIOS, and ``check`` looks for
    ours            -- what else may be pending, as it is of ours
    job             -- the job that ``set`` made, for ``check``
    settings        -- those of a plan, for ``plan``
    kind            -- of a ``reset``; ``machine`` is what the host tells of itself, ``known`` what
                       its BMC told the plan, ``os_answers`` and ``disbelieve_post`` as there
    """

    system: str = ""
    attributes: Values = field(default_factory=dict)
    ours: Values = field(default_factory=dict)
    job: str = ""
    settings: Sequence[Mapping[str, object]] = ()
    kind: str = ""
    os_answers: bool = False
    disbelieve_post: bool = False
    machine: Mapping[str, object] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)


def ladder(taken: Collection[str], force: bool) -> list[str]:
    """The ways to restart a machine whose BMC takes these resets, the gentlest first.

    A shutdown is a way only where the machine can be turned on again. ``force`` allows the last.
    """
    shuts_down = RESTART not in taken and ON in taken
    ways = (RESTART, *([SHUTDOWN] if shuts_down else []), *([FORCED] if force else []))
    return [way for way in ways if way in taken]
