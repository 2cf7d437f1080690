# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pause_pop import PausePop

from edgetune.rollout.lease import as_owner
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.rollout_status import rollout_status
from tests.support.action_case import EdgetuneActionTestCase


class PausePopTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = PausePop

    def test_nothing_more_begins_and_status_says_why(self) -> None:
        opened = as_owner(self.world.context, self.world.rollout)
        opened.head.channel = "edge"
        opened.save()
        result = self.assert_succeeds(pop="lab1", reason="a final tonight", requested_by="ana")
        why = "lab1 is paused (asked, by ana: a final tonight)"
        self.assertEqual(
            result,
            {
                "pop": "lab1",
                "changed": True,
                "channel": "edge",
                "message": f"{why}; no further batch begins there",
            },
        )
        self.assertEqual(self.world.step(drain_hosts, 0)["waiting"], 1)
        text = rollout_status(self.world.context, self.world.rollout)["text"]
        self.assertTrue(
            text.startswith(f"{why}; st2 run edgetune.resume_pop pop=lab1 lets it go on.\n\n"), text
        )

    def test_a_second_time_changes_nothing(self) -> None:
        self.assert_succeeds(pop="lab1", cause="surge", reason="2.4 times its usual load")
        result = self.assert_succeeds(pop="lab1", cause="surge", reason="3.1 times")
        said = "lab1 is paused already (surge, by unknown: 2.4 times its usual load)"
        self.assertEqual((result["changed"], result["channel"]), (False, ""))
        self.assertEqual(result["message"], said)

    def test_what_is_unknown_is_named(self) -> None:
        self.assert_wrong("pop", pop="lab2")
        self.assert_wrong("cause", pop="lab1", cause="rain")
