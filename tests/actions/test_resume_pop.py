# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from resume_pop import ResumePop

from edgetune.rollout.pause import why_paused
from edgetune.rollout.steps.drain_hosts import drain_hosts
from edgetune.rollout.steps.pause_pop import pause_pop
from tests.support.action_case import EdgetuneActionTestCase


class ResumePopTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = ResumePop

    def test_it_goes_on_once_every_cause_is_lifted(self) -> None:
        for cause in ("surge", "lost_host"):
            pause_pop(self.world.context, "lab1", cause, requested_by="a rule")
        result = self.assert_succeeds(pop="lab1", cause="surge", requested_by="ana")
        still = "lab1 is still paused (lost_host, by a rule)"
        self.assertEqual(result["message"], f"{still}; it was paused (surge, by a rule)")
        self.assertTrue(result["changed"])
        self.assertEqual(self.world.step(drain_hosts, 0)["waiting"], 1)
        self.assert_succeeds(pop="lab1", requested_by="ana")
        self.assertEqual(why_paused(self.world.context, "lab1"), "")
        self.assertEqual(self.world.step(drain_hosts, 0)["waiting"], 0)

    def test_without_a_cause_all_are_lifted(self) -> None:
        for cause in ("asked", "lost_host"):
            pause_pop(self.world.context, "lab1", cause, requested_by="ana")
        message = self.assert_succeeds(pop="lab1")["message"]
        said = "lab1 goes on; it was paused (asked, by ana; lost_host, by ana)"
        self.assertEqual(message, said)

    def test_a_second_time_changes_nothing(self) -> None:
        pause_pop(self.world.context, "lab1", requested_by="ana")
        self.assertFalse(self.assert_succeeds(pop="lab1", cause="surge")["changed"])
        self.assertTrue(self.assert_succeeds(pop="lab1")["changed"])
        result = self.assert_succeeds(pop="lab1")
        self.assertEqual((result["changed"], result["message"]), (False, "lab1 is not paused"))

    def test_what_is_unknown_is_named(self) -> None:
        self.assert_wrong("pop", pop="lab2")
        self.assert_wrong("cause", pop="lab1", cause="rain")
