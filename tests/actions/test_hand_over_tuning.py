# SPDX-License-Identifier: Apache-2.0
"""A step of retire_tuning may die at any moment; what else it does is in every_action.yaml."""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path

import pytest

from edgetune.rollout.steps.hand_over_tuning import hand_over_tuning
from tests.support.action_case import complete
from tests.support.world import dies

NAMES = [f"e00{i}" for i in range(8)]
OWN = {"pop": "lab1", "tuning": "accept_queue"}


@pytest.mark.slow
def test_a_death_at_any_moment_is_made_up_for() -> None:
    """Another call ends it, and nobody is asked twice."""
    for deaths in count():
        with tempfile.TemporaryDirectory() as folder:
            world = complete(Path(folder))
            died = dies(world, 7 * deaths, lambda own: hand_over_tuning(own.context, **OWN))
            if world.hosts.handed_over:
                assert world.head.state != "complete"
            if world.head.state == "handed_over":
                assert world.hosts.handed_over == {*NAMES}
            else:
                hand_over_tuning(world.context, **OWN)
            assert world.head.state == "handed_over"
            assert world.hosts.handed_over == {*NAMES}
        if not died:
            break
    assert deaths > 2
