# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from unittest.mock import patch

from drain_hosts import DrainHosts

from tests.support.action_case import BatchActionTestCase


class DrainHostsTestCase(BatchActionTestCase):
    __test__ = True
    action_cls = DrainHosts

    def test_drains_the_hosts_of_the_batch_once(self) -> None:
        (host,) = self.world.at(0)
        for _ in range(2):
            result = self.assert_succeeds(**self.of_batch(0))
            self.assertEqual(result["hosts"], [host])
            self.assertEqual((result["waiting"], result["next"]), (0, "apply_tuning"))
        self.assertEqual(self.world.balancer.log, [(host, "drain"), (host, "maint")])
        self.assertEqual(self.world.at(0), {host: "drained"})

    def test_hosts_with_sessions_are_for_another_task(self) -> None:
        (host,) = self.world.at(0)
        self.world.balancer.sessions[host] = 3
        with patch("edgetune.rollout.steps.drain_hosts.AT_ONCE", 0):
            result = self.assert_succeeds(**self.of_batch(0))
        self.assertEqual((result["waiting"], result["next"]), (1, "check_drained"))
        self.assertEqual(self.world.at(0), {host: "draining"})

    def test_a_server_the_load_balancer_does_not_know_is_named(self) -> None:
        (host,) = self.world.at(0)
        del self.world.balancer.state[host]
        self.assert_refused("drain", f"has no server '{host}'", **self.of_batch(0))

    def test_the_kill_switch_stops_it(self) -> None:
        self.world.context.store.put("edgetune.stop_all", "true")
        self.assert_refused("refused", "everything is stopped", **self.of_batch(0))
