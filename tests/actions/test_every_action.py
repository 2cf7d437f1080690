# SPDX-License-Identifier: Apache-2.0
"""What every action promises, and what each does: a case of StackStorm's classes for each.

An action returns ``(True, all its output schema names)``, or ``(False, ...)`` with one line that
says why. What is wrong or unknown is named, an older epoch is fenced out, and before the pack is
configured nothing is done; each touches nothing. To run an action again is safe.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from edgetune.base import clock
from edgetune.base.documents.head import Quarantine
from edgetune.base.documents.look import Look
from edgetune.base.documents.rounds import Decisions, decisions_key
from edgetune.base.documents.words import Decision, Verdict
from edgetune.rollout.ownership.lease import as_owner
from tests.lib.report.test_report import effect, said
from tests.support import ROOT
from tests.support.action_case import EdgetuneActionTestCase, complete, taken_back
from tests.support.builders import reading
from tests.support.campaign_world import CampaignMoves, CampaignWorld
from tests.support.carrying import Carrying, CarryingMoves
from tests.support.metadata.values import documents
from tests.support.rounds_world import RoundsMoves, RoundsWorld, treating
from tests.support.scenarios import Scenario, read_scenarios
from tests.support.soaking import Soaking
from tests.support.world import BiosWorld, EmptyWorld, changing

OWN = ("world", "begins", "wrong", "unconfigured", "diagnoses")
"""Fields of the table that are no cases."""
TABLE = read_scenarios(Path(__file__).with_name("every_action.yaml"))
ACTIONS = documents(ROOT, "actions")
WITH_CODE = [name for name, own in ACTIONS.items() if own["runner_type"] == "python-script"]
USUAL = {"execution": "run-1", "tuning": "accept_queue", "state": "soaking"}


def campaign(folder: Path, **more: Any) -> CampaignWorld:
    """A world whose campaign has begun."""
    world = CampaignWorld(folder, **more)
    world.begin_campaign()
    return world


def entered(folder: Path) -> BiosWorld:
    """A rollout of a BIOS setting that is about to change its first host."""
    world = BiosWorld(folder)
    world.enter()
    return world


WORLDS: dict[str, Any] = {
    "changing": changing,
    "empty": EmptyWorld,
    "soaking": Soaking,
    "complete": complete,
    "taken_back": taken_back,
    "bios": entered,
    "campaign": campaign,
    "approving": lambda folder: campaign(folder, gates={"approval": {"required": True}}),
    "congestion": treating,
    "carrying": Carrying,
}


class Moves(CampaignMoves, RoundsMoves, CarryingMoves, Scenario):
    """The moves of a table, and runs of the action of a case."""

    def __init__(self, case: Promises) -> None:
        patch = pytest.MonkeyPatch()
        case.addCleanup(patch.undo)
        super().__init__(case.world, patch=patch)
        self.case, self.given_last = case, dict[str, Any]()

    def usual(self, **given: Any) -> dict[str, Any]:
        """Parameters that the action needs, beside those that are given."""
        world, wanted = self.world, self.case.metadata["parameters"]
        known = {"rollout": world.rollout, "epoch": world.epoch, "batch": self._batch}
        known.update(USUAL, pop="lab1", plan=self._names.get("PLAN"), host=self._names.get("HOST"))
        if isinstance(world, CampaignWorld):
            known.update(campaign=world.id, digest=world.record.rings[0].digest)
        needed = {name: known[name] for name, own in wanted.items() if own.get("required")}
        self.given_last = {**needed, **given}
        return self.given_last

    def run(self, given: dict[str, Any]) -> None:
        self.result = self.case.assert_succeeds(**self.usual(**given))

    def fails(self, given: dict[str, Any]) -> None:
        self.result = self.case.assert_fails(**self.usual(**given))

    def answers(self, given: dict[str, Any]) -> None:
        ok, self.result = self.case.run_action(**self.usual(**given))
        self.case.assertTrue(ok, self.result)
        self.case.assert_fits(self.result)

    def refused(self, why: dict[str, str]) -> None:
        ((reason, says),) = why.items()
        self.case.assert_refused(reason, says, **self.usual(**self.move.get("with", {})))

    def wrong(self, fields: dict[str, dict[str, Any]]) -> None:
        for field, given in fields.items():
            with self.case.subTest(field):
                self.case.assert_wrong(field, **self.usual(**given))

    def site(self, options: dict[str, Any]) -> None:
        """The configuration that the action is given has these options."""
        self.world.config.update(options)

    def claim_planned(self, _: object) -> None:
        """The PoP is claimed for the plan that was rolled out before."""
        self.world.begin_planned(self.world.plan.digest)
        self._names["ROLLOUT"] = self.world.rollout

    def treats(self, _: object) -> None:
        """Clients of the PoP are treated."""
        decisions = Decisions("lab1", "0" * 32)
        self.store({decisions_key("lab1"): decisions.document()})

    def quarantine(self, host: str) -> None:
        self.world.set_head(quarantined={host: Quarantine("lost")})

    def drifted(self, rows: list[list[float]]) -> None:
        """So many seconds ago e001 and e002 had so many settings that drifted."""
        for ago, *counts in rows:
            for name, number in zip(("e001", "e002"), counts):
                own = reading(name, clock.wall() - ago, drifted=number)
                self.world.context.samples.add("lab1", [own])

    def measured(self, ratio: float) -> None:
        """The rollout of the canary begins, and a look found this ratio."""
        self.advance(["ams1"])
        opened = as_owner(self.world.context, self.world.record.pops["ams1"].rollout)
        found = Look(Verdict.IMPROVED, Decision.PROMOTE, "so", metrics=[effect(ratio)])
        opened.save_look(replace(found, until=1.0))
        opened.head.looks, opened.head.verdict = 1, found.conclusion
        opened.save()

    def damaged_look(self, text: str) -> None:
        self.store({f"edgetune.look.{self.world.record.pops['ams1'].rollout}.0": text})

    @property
    def html(self) -> str:
        return Path(self.result["path"]).read_text(encoding="utf-8")

    @property
    def page(self) -> str:
        """What is read on the page."""
        return said(self.html)

    @property
    def index(self) -> str:
        return said(Path(self.result["path"]).with_name("index.html").read_text(encoding="utf-8"))

    def drop(self, host: str) -> None:
        """A host lost its tuning."""
        self.world.hosts.tuned.discard(host)


class Promises(EdgetuneActionTestCase):
    """One class for each action is made of it below."""

    __test__ = False
    name: str

    def setUp(self) -> None:
        super().setUp()
        if isinstance(self.world, RoundsWorld):
            at_work = self.world.at_work()
            at_work.__enter__()
            self.addCleanup(at_work.__exit__, None, None, None)
        self.own = TABLE.get(self.name, {})
        self.moves = Moves(self)

    def make_world(self, folder: Path) -> EmptyWorld:
        made: EmptyWorld = WORLDS[TABLE.get(self.name, {}).get("world", "changing")](folder)
        made.config["report_dir"] = f"{folder}/reports"
        return made

    def test_what_is_wrong_or_unknown_is_named_and_nothing_is_touched(self) -> None:
        self.moves.play(self.own.get("begins", []))
        wanted = self.metadata["parameters"]
        unknown = {
            field: {field: value}
            for field, value in (("rollout", "nothing"), ("campaign", "nothing"), ("batch", 99))
            if wanted.get(field, {}).get("required")
        }
        if wanted.get("pop", {}).get("required"):
            unknown["pop"] = {"pop": "nowhere"}
        self.moves.play([{"wrong": {**unknown, **self.own.get("wrong", {})}}])
        if wanted.get("epoch", {}).get("required"):
            older = {"epoch": self.world.epoch - 1}
            self.moves.play([{"refused": {"fenced": "lost its claim on lab1"}, "with": older}])
        self.world.config["claim_ttl"] = "a day"
        if "diagnoses" not in self.own:
            self.assert_wrong("claim_ttl")

    def test_before_the_configuration_nothing_is_done(self) -> None:
        given, self.world.config = self.moves.usual(), {}
        if "unconfigured" not in self.own:
            self.assert_refused("unconfigured", "is not there", **given)
            return
        self.moves.play([{"answers": given, "gives": {"message": self.own["unconfigured"]}}])

    def play(self, moves: list[dict[str, Any]]) -> None:
        """A case; then the action is run again, which changes no host and no load balancer."""
        self.moves.play([*self.own.get("begins", []), *moves])
        before = self._stands()
        _, result = self.run_action(**self.moves.given_last)
        if "reason" not in result:
            self.assert_fits(result)
        self.assertEqual(self._stands(), before)

    def _stands(self) -> tuple[Any, ...]:
        hosts = self.world.hosts
        return set(hosts.tuned), set(hosts.not_ready), dict(self.world.balancer.state)


def _case(name: str) -> type[Promises]:
    """The class of an action, with a test for each of its cases."""
    words = "".join(word.capitalize() for word in name.split("_"))
    cases = {
        sentence: moves for sentence, moves in TABLE.get(name, {}).items() if sentence not in OWN
    }
    tests = {
        f"test_{sentence.replace(' ', '_')}": lambda self, moves=moves: self.play(moves)
        for sentence, moves in cases.items()
    }
    own = {"__test__": True, "name": name, "action_cls": getattr(import_module(name), words)}
    return type(f"{words}TestCase", (Promises,), {**own, **tests, "__module__": __name__})


globals().update({made.__name__: made for made in map(_case, WITH_CODE)})


ALONE = ("approve", "release_record", "resume_campaign", "run_campaign")
"""Whoever asks for these is asked for a name by nobody."""


SIGNED = [name for name in WITH_CODE if "requested_by" in ACTIONS[name]["parameters"]]


@pytest.mark.parametrize("name", SIGNED)
def test_nobody_gives_another_name_than_his_own(name: str) -> None:
    """Who signs stands in the context of the execution, whatever name a workflow hands on."""
    signs = ACTIONS[name]["parameters"]["requested_by" if name in ALONE else "caller"]
    assert signs["immutable"] and "action_context.api_user" in signs["default"]
