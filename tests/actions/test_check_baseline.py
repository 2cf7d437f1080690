# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from check_baseline import CheckBaseline

from tests.lib.rollout.test_looks import Soaking
from tests.support.action_case import EdgetuneActionTestCase


class CheckBaselineTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = CheckBaseline

    def make_world(self, folder: Path) -> Soaking:
        return Soaking(folder)

    def test_says_what_could_be_seen(self) -> None:
        arguments = {"rollout": self.world.rollout, "epoch": self.world.epoch}
        result = self.assert_succeeds(**arguments)
        self.assertEqual((result["metric"], result["power"]), ("listen_drops", 0.8))
        self.assertEqual(self.assert_succeeds(**arguments), result)

    def test_an_older_epoch_is_refused(self) -> None:
        ok, result = self.run_action(rollout=self.world.rollout, epoch=self.world.epoch - 1)
        self.assertEqual((ok, result["reason"]), (False, "fenced"))

    def test_an_unknown_rollout_is_named(self) -> None:
        self.assert_wrong("rollout", rollout="nothing", epoch=1)
