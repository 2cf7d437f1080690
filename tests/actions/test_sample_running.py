# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from sample_running import SampleRunning

from tests.support.action_case import EdgetuneActionTestCase


class SampleRunningTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = SampleRunning

    def test_samples_every_pop_with_a_rollout_under_way(self) -> None:
        result = self.assert_succeeds()
        self.assertEqual((result["samples"], result["missing"]), (8, []))
        self.assertEqual(self.world.hosts.changing(), [])

    def test_samples_nothing_once_it_has_ended(self) -> None:
        for state in ("rolling_back", "rolled_back"):
            self.world.mark(state)
        self.assertEqual(self.assert_succeeds()["samples"], 0)
