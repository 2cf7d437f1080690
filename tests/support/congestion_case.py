# SPDX-License-Identifier: Apache-2.0
"""What tests of the actions on congestion control share: a PoP whose hosts treat prefixes."""

from __future__ import annotations

from pathlib import Path

from tests.support.action_case import EdgetuneActionTestCase
from tests.support.rounds_world import RoundsWorld, treating


class CongestionActionTestCase(EdgetuneActionTestCase):
    """``world`` has had four rounds, and the action runs in its time."""

    __test__ = False
    world: RoundsWorld

    def setUp(self) -> None:
        super().setUp()
        at_work = self.world.at_work()
        at_work.__enter__()
        self.addCleanup(at_work.__exit__, None, None, None)

    def make_world(self, folder: Path) -> RoundsWorld:
        return treating(folder)

    def test_an_unknown_pop_is_named(self) -> None:
        self.world.hosts.heard.clear()
        self.assert_wrong("pop", pop="lab2")
        self.assertEqual(self.world.hosts.heard, [])
