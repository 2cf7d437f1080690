# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from assess_orphan import AssessOrphan

from edgetune.rollout.steps.drain_hosts import begin_drain
from tests.support.action_case import EdgetuneActionTestCase


class AssessOrphanTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = AssessOrphan

    def of_rollout(self, **more: Any) -> dict[str, Any]:
        return {"rollout": self.world.rollout, "epoch": self.world.epoch, **more}

    def test_a_vanished_owner_says_nothing_against_the_tuning(self) -> None:
        self.world.step(begin_drain, 0)
        (host,) = self.world.at(0)
        result = self.assert_succeeds(**self.of_rollout())
        self.assertEqual((result["decision"], result["state"]), ("carry_on", "changing"))
        found = f"{host} was draining; drain in the load balancer, with 0 sessions, "
        self.assertEqual(result["findings"], {host: found + "accept_queue not there"})

    def test_a_canceled_one_is_taken_back(self) -> None:
        result = self.assert_succeeds(**self.of_rollout(ended="canceled"))
        self.assertEqual(result["decision"], "roll_back")
        self.assertIn("ended as canceled", result["message"])

    def test_it_changes_no_host(self) -> None:
        self.assert_succeeds(**self.of_rollout())
        self.assertEqual((self.world.hosts.changing(), self.world.balancer.log), ([], []))

    def test_an_older_epoch_is_fenced_out(self) -> None:
        older = self.of_rollout(epoch=self.world.epoch - 1)
        self.assert_refused("fenced", "has lost its claim on lab1", **older)

    def test_an_unknown_rollout_is_named(self) -> None:
        self.assert_wrong("rollout", **self.of_rollout(rollout="nothing"))
