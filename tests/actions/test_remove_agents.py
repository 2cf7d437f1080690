# SPDX-License-Identifier: Apache-2.0
"""The last step of uninstall_agent; what a host does is in test_lib_agent_uninstall."""

from __future__ import annotations

from remove_agents import RemoveAgents

from edgetune.documents.rounds import Decisions, decisions_key
from tests.support.action_case import EdgetuneActionTestCase, taken_back


class RemoveAgentsTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = RemoveAgents
    make_world = staticmethod(taken_back)

    def complete(self) -> str:
        self.world.begin_planned(self.world.plan.digest)
        for state in ("baseline", "changing", "soaking", "promoting", "complete"):
            self.world.mark(state)
        return self.world.rollout

    def test_every_host_is_as_before(self) -> None:
        result = self.assert_succeeds(pop="lab1")
        self.assertEqual(result["done"], [f"e00{i}" for i in range(8)])
        self.assertEqual(result["removed"]["e003"], ["/var/lib/edgetune/epoch"])
        left = "; not ours, and left: /etc/edgetune"
        self.assertEqual(result["message"], f"edgetune is removed from 8 of 8 hosts of lab1{left}")
        self.assertEqual(self.world.context.claims.holder("lab1"), None)
        asked = [own for _, verb, own in self.world.hosts.asked if verb == "uninstall"]
        self.assertEqual([own["dry_run"] for own in asked], [True] * 8 + [False] * 8)
        self.assertGreater(asked[-1]["epoch"], self.world.epoch)

    def test_a_rollout_under_way_holds_the_pop(self) -> None:
        self.world.begin_planned(self.world.plan.digest)
        says = f"lab1 has a rollout that is claimed: {self.world.rollout}"
        self.assert_refused("refused", says, pop="lab1")
        self.assert_refused("refused", says, pop="lab1", dry_run=True, take_back=True)

    def test_a_tuning_that_stands_is_named(self) -> None:
        rollout = self.complete()
        says = f"there stand on lab1: accept_queue by {rollout}; "
        back = "uninstall_agent pop=lab1 take_back=true takes them back first"
        self.assert_refused("refused", says, pop="lab1")
        self.assert_refused("refused", back, pop="lab1")
        result = self.assert_succeeds(pop="lab1", dry_run=True, take_back=True)
        self.assertIn("would be removed after taking back what stands", result["message"])
        self.assertIn(rollout, result["message"])

    def test_clients_that_are_treated_keep_it(self) -> None:
        decisions = Decisions("lab1", "0" * 32)
        self.world.context.store.put(decisions_key("lab1"), decisions.document())
        self.assert_refused("refused", "roll_back_congestion pop=lab1 ends that", pop="lab1")
