# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from typing import Any

from rollout_status import RolloutStatus

from edgetune.errors import StoreError
from edgetune.rollout.claims import Claim
from tests.support.action_case import EdgetuneActionTestCase
from tests.support.builders import reading


class Away:
    """Samples in a store that does not answer."""

    def window(self, *given: Any) -> None:
        raise StoreError("Redis: is away")


class RolloutStatusTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = RolloutStatus

    def test_one_that_is_held_says_how_a_person_may_decide(self) -> None:
        own = self.world.rollout
        longer = f"look again:\n    st2 run edgetune.rollout_pop rollout={own} wait=true"
        back = f"take it back:\n    st2 run edgetune.roll_back_pop rollout={own}"
        text = self.assert_succeeds(rollout=own)["text"]
        self.assertFalse(longer in text or back in text, text)
        for state in ("soaking", "held"):
            self.world.mark(state)
        text = self.assert_succeeds(rollout=own)["text"]
        self.assertTrue(longer in text and back in text, text)

    def test_those_with_a_host_in_quarantine_and_those_without_an_owner(self) -> None:
        for given in ({"host": "e003"}, {"orphaned": True}):
            self.assertEqual(self.assert_succeeds(**given)["ids"], [])
        claim = Claim(self.world.rollout, self.world.epoch)
        self.world.context.claims.release("lab1", claim)
        self.assertEqual(self.assert_succeeds(orphaned=True)["ids"], [self.world.rollout])

    def test_hosts_with_drift_stand_below_their_rollout(self) -> None:
        now = time.time()
        for at, counts in ((now - 2000, (9, 9)), (now - 60, (1, 3)), (now, (0, 2))):
            for host, drifted in zip(("e001", "e002"), counts):
                gauges = {"drifted": drifted}
                self.world.context.samples.add("lab1", [reading(host, at, **gauges)])
        says = "st2 run edgetune.sample_hosts pop=lab1 says which"
        told = f"settings that have drifted: e002 (2); {says}"
        text = self.assert_succeeds(rollout=self.world.rollout)["text"]
        self.assertEqual(text.splitlines()[-1].strip(), told)
        self.assertNotIn("drift", self.assert_succeeds()["text"])

    def test_drift_that_cannot_be_known_hides_nothing_else(self) -> None:
        self._replace("samples", Away())
        text = self.assert_succeeds(rollout=self.world.rollout)["text"]
        self.assertIn("changing", text)
        self.assertTrue(text.endswith("drift is not known: Redis: is away"))
