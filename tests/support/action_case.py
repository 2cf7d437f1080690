# SPDX-License-Identifier: Apache-2.0
"""What tests of actions share: a world to act on, and what every action promises."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from st2tests.base import BaseActionTestCase

from edgetune.base.files import load_yaml
from edgetune.report.action import Result
from edgetune.rollout.context import Context
from tests.support import ROOT
from tests.support.metadata.values import own_parameters, shape
from tests.support.world import EmptyWorld, World, changing

ACTIONS = ROOT / "actions"


def complete(folder: Path) -> World:
    """A rollout that stands on every host of its PoP."""
    world = changing(folder)
    world.roll_all({"first_batch": 0, "end_batch": len(world.plan.batches)})
    for state in ("soaking", "promoting"):
        world.roll_all(world.mark(state))
    world.mark("complete")
    return world


def taken_back(folder: Path) -> World:
    """A PoP whose rollout is over, and taken back."""
    world = changing(folder)
    world.roll_all({"first_batch": 0, "end_batch": 2})
    world.roll_back()
    held = world.context.claims.holder("lab1")
    if held:
        world.context.claims.release("lab1", held)
    return world


class EdgetuneActionTestCase(BaseActionTestCase):
    """Set ``action_cls``, and ``__test__ = True``. ``world`` has a rollout that is changing."""

    __test__ = False
    world: EmptyWorld

    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.world = self.make_world(Path(folder.name))
        self._replace("fleet", self.world.hosts)
        self._replace("bmcs", self.world.bmcs)
        self._replace("load_balancer", lambda context, pop: self.world.balancer)
        self.metadata = load_yaml(ACTIONS / f"{self.action_cls.__module__}.yaml")

    def make_world(self, folder: Path) -> EmptyWorld:
        """A rollout that is changing."""
        return changing(folder)

    def run_action(self, **parameters: Any) -> Result:
        """Run it as StackStorm does: a parameter that was not given is None."""
        missing = dict.fromkeys(own_parameters(self.metadata))
        action = self.get_action_instance(self.world.config)
        result: Result = action.run(**{**missing, **parameters})
        return result

    def assert_succeeds(self, **parameters: Any) -> dict[str, Any]:
        """The result of an action that does all it can: everything its output schema names."""
        ok, result = self.run_action(**parameters)
        self.assertTrue(ok, result)
        self.assert_fits(result)
        self.assertEqual(set(result), set(self.metadata["output_schema"]["properties"]))
        return result

    def assert_fails(self, **parameters: Any) -> dict[str, Any]:
        """The result of an action that did a part of its work; it fits the output schema, too."""
        ok, result = self.run_action(**parameters)
        self.assertFalse(ok, result)
        self.assert_fits(result)
        return result

    def assert_refused(self, reason: str, says: str, **parameters: Any) -> None:
        """One line that says why, and nothing was touched."""
        asked, log = self.world.hosts.changing(), list(self.world.balancer.log)
        ok, result = self.run_action(**parameters)
        self.assertEqual((ok, result.get("reason")), (False, reason), result)
        for part in says.split("..."):
            self.assertIn(part, result["error"])
        self.assertNotIn("\n", result["error"])
        self.assertEqual((self.world.hosts.changing(), self.world.balancer.log), (asked, log))

    def assert_wrong(self, field: str, **parameters: Any) -> None:
        """One line that names the field, and nothing was touched."""
        self.assert_refused("input", f"{field}: ", **parameters)

    def assert_fits(self, result: dict[str, Any]) -> None:
        self.assertEqual(shape(result, self.metadata["output_schema"]), [])
        # `st2 run` prints all of it.
        pages = [text for text in result.values() if isinstance(text, str) and "\n" in text]
        self.assertEqual(pages[1:], [])

    def _replace(self, name: str, fake: Any) -> None:
        patched = mock.patch.object(Context, name, fake)
        patched.start()
        self.addCleanup(patched.stop)
