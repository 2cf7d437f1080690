# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from undrain_hosts import UndrainHosts

from edgetune.rollout.steps.drain_hosts import begin_drain
from edgetune.rollout.steps.undrain_hosts import undrain_hosts
from tests.support.action_case import BatchActionTestCase


class UndrainHostsTestCase(BatchActionTestCase):
    __test__ = True
    action_cls = UndrainHosts

    def test_gives_verified_hosts_their_traffic_back(self) -> None:
        (host,) = self.world.at(0)
        self.world.roll(0, until=undrain_hosts)
        result = self.assert_succeeds(**self.of_batch(0))
        message = "1 of 1 serve again"
        expected = {"done": [host], "failed": [], "error": "", "message": message}
        self.assertEqual(result, {**expected, "next": "check_health"})
        log = [(host, "drain"), (host, "maint"), (host, "ready")]
        self.assertEqual(self.world.balancer.log, log)

    def test_a_host_in_maintenance_goes_back_to_that(self) -> None:
        (host,) = self.world.at(0)
        self.world.balancer.state[host] = "maint"
        self.world.roll(0, until=undrain_hosts)
        self.assertEqual(self.assert_succeeds(**self.of_batch(0))["done"], [host])
        self.assertEqual(self.world.balancer.state[host], "maint")

    def test_hosts_that_are_not_verified_stay_drained(self) -> None:
        (host,) = self.world.at(0)
        self.world.step(begin_drain, 0)
        self.assertEqual(self.assert_succeeds(**self.of_batch(0))["done"], [])
        self.assertEqual(self.world.balancer.state[host], "drain")
