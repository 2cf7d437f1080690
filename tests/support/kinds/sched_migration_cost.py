# SPDX-License-Identifier: Apache-2.0
"""How `sched.migration_cost` is tried."""

from __future__ import annotations

from edgetune.vocabulary.kinds.sched_migration_cost import OLD
from tests.support.trials import Trial, any_of

TRIAL = Trial(
    target={},
    taken=["500000"],
    refused=["5 ms"],
    settings=lambda build: [any_of("sched.migration_cost", {}, "5000", "5000000")],
    files=lambda build: {OLD[1:]: "500000\n"} if build.old else {},
    file=".*migration_cost",
)
