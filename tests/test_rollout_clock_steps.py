# SPDX-License-Identifier: Apache-2.0
"""The clock of the machine is set back by hours while times of the record lie before that."""

from __future__ import annotations

import time
from pathlib import Path

from edgetune.rollout import lifecycle
from edgetune.rollout.record import read_rollout
from tests.world import changing


def test_a_clock_that_was_set_back_keeps_a_pop_no_longer_than_its_grace(tmp_path: Path) -> None:
    world = changing(tmp_path)
    for state in ("rolling_back", "rolled_back"):
        world.mark(state)
    opened = read_rollout(world.site, world.rollout)
    opened.head.taken_over = time.time() + 7200
    opened.save()
    assert lifecycle.release_pop(world.site, world.rollout, world.epoch)["released"]
    left = world.site.claims.expiries(["lab1"])["lab1"]
    assert 0 < left <= world.site.config.claim_grace
