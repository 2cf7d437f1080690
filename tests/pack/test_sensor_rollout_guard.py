# SPDX-License-Identifier: Apache-2.0
"""The guard dispatches what it finds, and whatever breaks, it lives on and says so."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import requests
from rollout_guard import RolloutGuard
from st2tests.base import BaseSensorTestCase

from edgetune.base import clock
from edgetune.base.files import load_yaml
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.steps.check_health import check_health
from edgetune.rollout.store.records import WITNESS
from tests.support import ROOT
from tests.support.builders import reading
from tests.support.metadata.values import shape
from tests.support.world import World

TRIGGER = load_yaml(ROOT / "triggers" / "health_degraded.yaml")


class RolloutGuardTestCase(BaseSensorTestCase):
    sensor_cls = RolloutGuard

    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.world = World(Path(folder.name))
        self.world.mark("baseline")
        self.world.mark("changing")
        self.world.roll(0)
        self.world.step(check_health, 0)
        (self.sick,) = self.world.plan.batches[0].hosts

    def sample(self, **health_ms: float) -> None:
        """A healthy baseline, and two samples of now with the latencies given for some hosts."""
        opened, now = as_owner(self.world.context, self.world.rollout), clock.wall()
        opened.head.baseline = [now - 1000, now - 900]
        opened.save()
        for at, latency in ((now - 950, {}), (now, health_ms), (clock.wall(), health_ms)):
            rows = [
                reading(host, at, health_failed=0, health_p50_ms=latency.get(host, 1.0))
                for host in self.world.balancer.state
            ]
            self.world.context.samples.add("lab1", rows)

    def poll(self, **config: Any) -> list[dict[str, Any]]:
        return self.poll_again(self.started(), {**self.world.config, **config})

    def started(self) -> Any:
        """Before the pack is configured, as by an installation that follows its page."""
        sensor = self.get_sensor_instance()
        sensor.setup()
        return sensor

    def poll_again(self, sensor: Any, config: dict[str, Any]) -> list[dict[str, Any]]:
        loader = mock.Mock()
        loader.return_value.get_config.return_value = config
        with mock.patch("rollout_guard.ContentPackConfigLoader", loader):
            sensor.poll()
        loader.assert_called_once_with(pack_name="edgetune")
        found: list[dict[str, Any]] = self.get_dispatched_triggers()
        return found

    def logged(self) -> str:
        """The one error that was logged."""
        (call,) = self.sensor_service.get_logger(name="RolloutGuard").error.call_args_list
        return str(call.args[0] % call.args[1:])

    def copy_records(self) -> None:
        kept = {**self.world.context.store.list(""), WITNESS: "written by the first action"}
        for key, value in kept.items():
            self.sensor_service.set_value(key, value, local=False)

    def assert_found(self, dispatched: list[dict[str, Any]]) -> None:
        (found,) = dispatched
        self.assertEqual(found["trigger"], f"{TRIGGER['pack']}.{TRIGGER['name']}")
        payload = found["payload"]
        self.assertEqual(shape(payload, TRIGGER["payload_schema"]), [])
        self.assertEqual(set(payload), set(TRIGGER["payload_schema"]["properties"]))
        self.assertEqual((payload["rollout"], payload["pop"]), (self.world.rollout, "lab1"))
        self.assertEqual(payload["hosts"], [self.sick])
        self.assertEqual(found["trace_context"].trace_tag, payload["id"])

    def test_a_changed_host_that_is_unwell_is_one_trigger_with_one_id(self) -> None:
        self.sample(**{self.sick: 900.0})
        first = self.poll()
        self.assert_found(first)
        self.assertEqual(
            {each["payload"]["id"] for each in self.poll()}, {first[0]["payload"]["id"]}
        )

    def test_records_are_read_through_stackstorm(self) -> None:
        self.sample(**{self.sick: 900.0})
        self.assertEqual(self.poll(records="st2"), [])
        self.assertIn("its user may not list them", self.logged())
        self.copy_records()
        self.assert_found(self.poll(records="st2"))

    def test_the_configuration_of_now_counts(self) -> None:
        self.sample(**{self.sick: 900.0})
        sensor = self.started()
        self.assertEqual(self.poll_again(sensor, {}), [])
        self.assertIn("edgetune.yaml: is not there, or not registered", self.logged())
        self.assert_found(self.poll_again(sensor, self.world.config))

    def test_a_configuration_that_cannot_be_read_is_logged(self) -> None:
        sensor = self.started()
        broken = mock.Mock(side_effect=ValueError("no key of the datastore: edgetune_inventory"))
        with mock.patch("rollout_guard.ContentPackConfigLoader", broken):
            sensor.poll()
        self.assertIn("no key of the datastore", self.logged())

    def test_what_a_look_needs_and_does_not_get_is_logged(self) -> None:
        self.sample(**{self.sick: 900.0})
        gone = "sqlite:////no/such/folder/state.sqlite"
        for name, value, says in (
            ("claim_ttl", "a day", "claim_ttl: "),
            ("records", gone, "/no/such/folder/state.sqlite: "),
            ("coordination", gone, "/no/such/folder/state.sqlite: "),
        ):
            with self.subTest(name):
                self.assertEqual(self.poll(**{name: value}), [])
                self.assertIn(says, self.logged())
                self.sensor_service.get_logger(name="RolloutGuard").error.reset_mock()

    def test_what_keeps_it_from_looking_is_left_in_stackstorm(self) -> None:
        key = "edgetune.guard_problem"
        self.poll()
        self.assertIsNone(self.sensor_service.get_value(key, local=False))
        # With RBAC its user may write nothing.
        refused = mock.Mock(side_effect=requests.HTTPError("403 Client Error"))
        with mock.patch.object(self.sensor_service, "set_value", refused):
            self.poll(claim_ttl="a day")
        refused.assert_called_once_with(key, mock.ANY, ttl=180, local=False)
        self.poll(claim_ttl="a day")
        left = self.sensor_service.get_value(key, local=False)
        self.assertTrue(left.startswith("configuration: claim_ttl: "), left)

    def test_each_look_is_told_with_its_problem(self) -> None:
        self.assertIsNone(self.world.context.heartbeats.last("guard"))
        self.poll()
        last = self.world.context.heartbeats.last("guard")
        self.assertIsNotNone(last)
        self.assertLess(abs(clock.wall() - last.time), 60)
        self.assertEqual(last.problem, "")
        down = mock.Mock(side_effect=requests.ConnectionError("connection refused"))
        with mock.patch.object(self.sensor_service, "list_values", down):
            self.assertEqual(self.poll(records="st2"), [])
        self.assertIn("connection refused", self.logged())
        self.assertIn("connection refused", self.world.context.heartbeats.last("guard").problem)
