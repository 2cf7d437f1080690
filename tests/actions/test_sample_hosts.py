# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from unittest import mock

from sample_hosts import SampleHosts

from edgetune import RECORD_SCHEMA
from edgetune.rollout.sampling import pops_under_way
from tests.support.action_case import EdgetuneActionTestCase


class SampleHostsTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = SampleHosts

    def test_samples_every_pop_with_a_rollout_under_way(self) -> None:
        result = self.assert_succeeds()
        self.assertEqual((result["samples"], result["missing"]), (8, []))
        kept = self.world.context.samples.window("lab1", 0, time.time())
        self.assertEqual({*kept.hosts}, set(self.world.balancer.state))
        self.assertEqual(self.world.hosts.changing(), [])

    def test_samples_the_pop_of_a_rollout_also_after_its_end(self) -> None:
        for state in ("rolling_back", "rolled_back"):
            self.world.mark(state)
        self.assertEqual(self.assert_succeeds()["samples"], 0)
        self.assertEqual(self.assert_succeeds(rollout=self.world.rollout)["samples"], 8)

    def test_a_pop_that_is_no_more_stops_no_sampling(self) -> None:
        gone = replace(self.world.head, id="gone", pop="gone1")
        text = json.dumps({"schema": RECORD_SCHEMA, **asdict(gone)})
        self.world.context.store.put("edgetune.rollout.gone", text)
        self.assertEqual(self.assert_succeeds()["samples"], 8)

    def test_no_pop_is_always_the_last(self) -> None:
        """An action that is killed at its timeout leaves out those that were to come."""
        context = self.world.context
        names = ["lab1", "lab2", "lab3"]
        heads = [replace(self.world.head, pop=name) for name in names]
        with (
            mock.patch("edgetune.rollout.sampling.all_heads", return_value=heads),
            mock.patch.object(type(context.inventory), "pop_names", return_value=names),
        ):
            drawn = {tuple(pops_under_way(context)) for _ in range(60)}
        self.assertEqual({pops[0] for pops in drawn}, set(names))

    def test_a_silent_host_is_named_and_the_others_are_kept(self) -> None:
        self.world.hosts.errors["e003", "sample"] = "timed out"
        result = self.assert_succeeds(pop="lab1")
        self.assertEqual((result["samples"], result["missing"]), (7, ["e003"]))

    def test_drift_is_told_and_is_no_failure(self) -> None:
        row = {"id": "sysctl:a.b", "wanted": "4096", "runtime": "128", "persistent": None}
        self.world.hosts.drift["e002"] = [{**row, "tuning": "t", "reason": "differs"}]
        result = self.assert_succeeds(pop="lab1")
        told = "t: sysctl:a.b: wants 4096; now 128, after a boot not set: differs"
        self.assertEqual(result["drift"], {"e002": [told]})
        self.assertEqual(result["message"], "8 hosts sampled; 1 with drift: e002")

    def test_an_unknown_pop_is_named(self) -> None:
        self.assert_wrong("pop", pop="nowhere")
