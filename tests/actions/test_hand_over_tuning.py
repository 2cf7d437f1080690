# SPDX-License-Identifier: Apache-2.0
"""A step of retire_tuning; what a host does is in test_lib_agent_hand_over."""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from hand_over_tuning import HandOverTuning

from edgetune.documents.head import Quarantine
from edgetune.errors import InputError, RefusedError
from edgetune.rollout.lease import as_owner
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.hand_over_tuning import hand_over_tuning
from edgetune.rollout.steps.list_applied import list_applied
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.rollout.steps.set_rollout_state import set_rollout_state
from edgetune.rollout.steps.take_over_for_rollback import take_over_for_rollback
from edgetune.rollout.steps.take_over_rollout import take_over_rollout
from edgetune.rollout.steps.watch_drift import watch_drift
from tests.support.action_case import EdgetuneActionTestCase, complete
from tests.support.world import World, dies

NAMES = [f"e00{i}" for i in range(8)]


class HandOverTuningTestCase(EdgetuneActionTestCase):
    __test__ = True
    action_cls = HandOverTuning
    own = {"pop": "lab1", "tuning": "accept_queue"}
    make_world = staticmethod(complete)
    world: World

    @property
    def state(self) -> str:
        return self.world.head.state

    def test_every_host_keeps_it_and_the_record_says_so(self) -> None:
        result = self.assert_succeeds(**self.own, requested_by="ana", reason="moving out")
        self.assertEqual(result["rollouts"], [self.world.rollout])
        self.assertEqual(sorted(result["files"]), NAMES)
        self.assertEqual(self.world.hosts.handed_over, {*NAMES})
        self.assertEqual(self.state, "handed_over")
        told = [(entry.state, entry.by, entry.reason) for entry in self.world.head.history][-2:]
        self.assertEqual(told[0], ("handing_over", "ana", "moving out"))
        self.assertEqual(told[1][:2], ("handed_over", "ana"))
        self.assertEqual(self.world.context.claims.holder("lab1"), None)
        asked = [own for _, verb, own in self.world.hosts.asked if verb == "hand_over"]
        self.assertEqual([own["dry_run"] for own in asked], [True] * 8 + [False] * 8)
        self.assertGreater(asked[-1]["epoch"], self.world.epoch)
        self.assertEqual(asked[-1]["rollout"], self.world.rollout)

    def test_a_quarantined_host_comes_first(self) -> None:
        opened = as_owner(self.world.context, self.world.rollout)
        opened.head.quarantined["e001"] = Quarantine("lost")
        opened.save()
        says = "e001 is quarantined: release or adopt it"
        self.assert_refused("refused", says, **self.own)
        self.assertEqual((self.state, self.world.hosts.handed_over), ("complete", set()))

    def test_a_host_that_fails_then_leaves_it_begun_and_another_call_ends_it(self) -> None:
        self.world.hosts.errors["e005", "hand_over"] = ""
        asks, real = [], self.world.hosts._one

        def fails(name: str, verb: str, request: dict[str, Any]) -> Any:
            asks.append(verb)
            away = name == "e005" and verb == "hand_over" and not request["dry_run"]
            if away:
                self.world.hosts.errors["e005", "hand_over"] = "no space left"
            else:
                self.world.hosts.errors.pop(("e005", "hand_over"), None)
            return real(name, verb, request)

        with mock.patch.object(self.world.hosts, "_one", fails):
            result = self.assert_fails(**self.own)
        self.world.hosts.errors.clear()
        self.assertEqual((result["failed"], result["rollouts"]), (["e005"], []))
        self.assertIn("e005: no space left", result["message"])
        again = "retire_tuning pop=lab1 tuning=accept_queue hand_over=true carries it on"
        self.assertIn(again, result["message"])
        self.assertEqual(self.state, "handing_over")
        self._refused_while_begun()
        result = self.assert_succeeds(**self.own)
        self.assertEqual((result["rollouts"], self.state), ([self.world.rollout], "handed_over"))
        self.assertEqual(self.world.hosts.handed_over, {*NAMES})

    def _refused_while_begun(self) -> None:
        """Nothing else begins, it cannot be taken back, and the status names what ends it."""
        context, rollout = self.world.context, self.world.rollout
        with self.assertRaisesRegex(RefusedError, "is being handed over: nothing is to be taken"):
            take_over_for_rollback(context, rollout)
        with self.assertRaisesRegex(RefusedError, "has a rollout that is handing_over"):
            claim_pop(context, self.world.plan.digest)
        left = take_over_rollout(context, rollout)
        self.assertFalse(left["claimed"])
        self.assertIn("hand_over=true carries it on", left["message"])
        text = rollout_status(context)["text"]
        self.assertIn("HANDING OVER", text)
        ways_on = (
            "over:\n    st2 run edgetune.retire_tuning pop=lab1 tuning=accept_queue hand_over=true"
        )
        self.assertIn(ways_on, rollout_status(context, rollout=rollout)["text"])
        self.assertEqual(list_applied(context, "lab1", "accept_queue")["rollouts"], [])

    def test_what_was_handed_over_is_not_taken_back(self) -> None:
        self.assert_succeeds(**self.own)
        context, rollout = self.world.context, self.world.rollout
        with self.assertRaisesRegex(RefusedError, "was handed over at .*: nothing is to be taken"):
            take_over_for_rollback(context, rollout)
        told = list_applied(context, "lab1", "accept_queue")
        self.assertEqual(told["rollouts"], [])
        self.assertIn(f"rollout {rollout} was handed over at", told["message"])
        self.assertEqual(list_applied(context, "lab1", every=True)["rollouts"], [])
        self.assertFalse(take_over_rollout(context, rollout)["claimed"])
        self.assertEqual(watch_drift(context)["samples"], 0)
        self.assert_refused("refused", "was handed over at", **self.own)

    def test_no_other_action_enters_its_states(self) -> None:
        for state in ("handing_over", "handed_over"):
            with self.assertRaisesRegex(InputError, "is none of"):
                set_rollout_state(self.world.context, self.world.rollout, self.world.epoch, state)

    def test_a_death_at_any_moment_is_made_up_for(self) -> None:
        """Another call ends it, and nobody is asked twice."""
        for deaths in count():
            with tempfile.TemporaryDirectory() as folder:
                world = complete(Path(folder))
                died = dies(
                    world, 7 * deaths, lambda own: hand_over_tuning(own.context, **self.own)
                )
                if world.hosts.handed_over:
                    self.assertNotEqual(world.head.state, "complete")
                if world.head.state == "handed_over":
                    self.assertEqual(world.hosts.handed_over, {*NAMES})
                else:
                    hand_over_tuning(world.context, **self.own)
                self.assertEqual(world.head.state, "handed_over")
                self.assertEqual(world.hosts.handed_over, {*NAMES})
            if not died:
                break
        self.assertGreater(deaths, 2)
