# SPDX-License-Identifier: Apache-2.0
"""What a BMC is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from edgetune.base.dataclass import dataclass

Values = Mapping[str, object]
"""Attributes of a BIOS by name."""


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
