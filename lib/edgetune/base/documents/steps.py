# SPDX-License-Identifier: Apache-2.0
"""How often the steps of a rollout were taken, how long they took, and why some failed.

edgetune.steps.ROLLOUT
"""

from __future__ import annotations

import json
from dataclasses import asdict, field

from edgetune import PACK, RECORD_SCHEMA
from edgetune.base.clock import Reading
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import check_is, decoded
from edgetune.base.documents.schema import read_versioned

STEPS_OF_A_BATCH = (
    "drain_hosts",
    "check_drained",
    "set_bios",
    "apply_tuning",
    "reboot_hosts",
    "check_rebooted",
    "verify_hosts",
    "undrain_hosts",
    "check_health",
)
"""Those that change a batch, in turn."""

STEPS = (
    "check_baseline",
    *STEPS_OF_A_BATCH,
    "compare_groups",
    "restore_live",
    "restore_hosts",
)
"""Those that are counted, by the names of their actions."""

REASONS = ("failed", "input", "refused", "damaged", "source", "drain", "host", "other")
"""Why a step failed: ``failed`` that it did on hosts, else the ``reason`` of its error."""


@dataclass
class StepTaken:
    """A step that ended ``count`` times, after ``seconds`` in all; ``failures`` by their reason."""

    count: int = 0
    seconds: float = 0.0
    failures: dict[str, int] = field(default_factory=dict)


@dataclass
class StepsTaken:
    """The steps of a rollout by name. ``awaited`` are those that are under way over several tasks,
    with the clocks when each began, under the ``epoch`` of an owner (0 before the first)."""

    rollout: str
    epoch: int = 0
    steps: dict[str, StepTaken] = field(default_factory=dict)
    awaited: dict[str, Reading] = field(default_factory=dict)

    def document(self) -> str:
        """As it is stored."""
        return json.dumps({"schema": RECORD_SCHEMA, **asdict(self)})


def steps_key(rollout: str) -> str:
    """The key of a rollout's steps; without an id what the keys of all begin with."""
    return f"{PACK}.steps.{rollout}"


def read_steps(rollout: str, text: str) -> StepsTaken:
    """What is stored; DamagedError if it is none, RefusedError if a later version wrote it."""
    key = steps_key(rollout)
    stored = decoded(key, StepsTaken, read_versioned(key, text))
    check_is(key, "rollout", stored.rollout == rollout, "is that of another rollout")
    for name, step in stored.steps.items():
        counted = (
            step.count >= 0 and step.seconds >= 0.0 and min(step.failures.values(), default=0) >= 0
        )
        check_is(key, f"steps.{name}", counted, "counts less than nothing")
    return stored
