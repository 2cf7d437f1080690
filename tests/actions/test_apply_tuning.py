# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from apply_tuning import ApplyTuning

from edgetune.rollout.steps.apply_tuning import apply_tuning
from tests.support.action_case import BatchActionTestCase


class ApplyTuningTestCase(BatchActionTestCase):
    __test__ = True
    action_cls = ApplyTuning

    def setUp(self) -> None:
        super().setUp()
        self.world.roll(0, until=apply_tuning)
        (self.host,) = self.world.at(0)

    def test_changes_the_drained_hosts_and_no_others(self) -> None:
        result = self.assert_succeeds(**self.of_batch(0))
        row = {"changed": True, "failed": False, "diff": [], "error": ""}
        self.assertEqual(result["hosts"], {self.host: row})
        self.assertEqual(self.world.hosts.tuned, {self.host})
        self.assertEqual((result["next"], result["retry_after"]), ("check_rebooted", 2))
        self.assertEqual(self.world.at(0), {self.host: "rebooting"})

    def test_changes_nothing_before_the_drain(self) -> None:
        self.assertEqual(self.assert_succeeds(**self.of_batch(2))["hosts"], {})
        self.assertNotIn("apply", self.world.hosts.changing())

    def test_what_a_host_says_is_never_a_template(self) -> None:
        self.world.hosts.errors[self.host, "apply"] = "{{ st2kv.system.key }} <% ctx() %>"
        result = self.assert_fails(**self.of_batch(0))
        self.assertEqual(result["failed"], [self.host])
        self.assertEqual(result["error"], f"{self.host}: {{ {{ st2kv.system.key }}}} < % ctx() %>")
