# SPDX-License-Identifier: Apache-2.0
"""Four PoPs and a campaign over them, of which a test says what becomes of each rollout."""

from __future__ import annotations

import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgetune.base.documents.campaign import Record
from edgetune.fleet.campaign.advance import step_campaign
from edgetune.fleet.campaign.control import (
    abort_campaign,
    approve,
    hold_campaign,
    resume_campaign,
    run_campaign,
)
from edgetune.fleet.campaign.record import read_record, seized
from edgetune.report.steps.campaign_status import campaign_status
from edgetune.rollout.record.heads import all_heads
from edgetune.rollout.record.rollout import read_rollout
from edgetune.rollout.steps.begin_rollback import begin_rollback
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.set_rollout_state import set_rollout_state
from tests.support.builders import inventory_document, write_yaml
from tests.support.scenarios import Scenario
from tests.support.world import EmptyWorld, prove

POPS = {
    "ams1": {"region": "eu", "labels": ["small"]},
    "ams2": {"region": "eu"},
    "fra1": {"region": "eu"},
    "lax1": {"region": "us", "labels": ["small", "new"]},
}
WAYS = {
    "soaking": ("baseline", "changing", "soaking"),
    "held": ("baseline", "changing", "soaking", "held"),
    "rolling_back": ("rolling_back",),
    "rolled_back": ("rolling_back", "rolled_back"),
    "complete": ("baseline", "changing", "soaking", "promoting", "complete"),
}


def inventory_of_four(**pops: dict[str, Any]) -> dict[str, Any]:
    """PoPs with eight hosts each, which answer all by the same names; with more ``pops``, more."""
    document = inventory_document()
    lab1 = document["pops"].pop("lab1")
    for number, (name, more) in enumerate({**POPS, **pops}.items()):
        pop = {**copy.deepcopy(lab1), **more}
        pop["load_balancer"]["address"] = f"tcp://127.0.0.1:{9 + number}"
        for host in pop["hosts"].values():
            host["address"] = host["address"].replace("127.0.9.", f"127.0.{9 + number}.")
        document["pops"][name] = pop
    return document


def campaign_document(**more: Any) -> dict[str, Any]:
    """The campaign ``queue``: canary is ams1, early the rest of the region eu, fleet lax1."""
    return {
        "name": "queue",
        "tuning": "accept_queue",
        "rollout": {"baseline": 600, "soak": 3600, "interval": 10},
        "rings": [
            {"name": "canary", "pops": ["ams1"]},
            {"name": "early", "regions": ["eu"]},
            {"name": "fleet", "labels": ["new"], "soak": 7200},
        ],
        **more,
    }


class CampaignWorld(EmptyWorld):
    """A context with a campaign; ``begin_campaign`` begins it, nothing more.

    With ``together`` it has one ring, of five PoPs.
    """

    def __init__(
        self,
        folder: Path,
        gates: dict[str, Any] | None = None,
        together: bool = False,
        **config: Any,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        (folder / "campaigns").mkdir()
        super().__init__(folder, campaigns=[str(folder / "campaigns")], **config)
        pops = inventory_of_four(**({"sin1": {"region": "ap"}} if together else {}))
        write_yaml(folder / "inventory.yaml", pops)
        rings = {"rings": [{"name": "all", "pops": [*pops["pops"]]}]} if together else {}
        self.write(campaign_document(gates=gates or {}, **rings))
        self.id = ""

    def write(self, document: dict[str, Any]) -> None:
        """The campaign's file."""
        write_yaml(self.folder / "campaigns" / f"{document['name']}.yaml", document)

    def begin_campaign(self, by: str = "ana", channel: str = "") -> str:
        begun = run_campaign(self.context, "queue", dry_run=False, requested_by=by, channel=channel)
        self.id = begun["campaign"]
        return self.id

    @property
    def record(self) -> Record:
        """The record as the store has it."""
        return read_record(self.context, self.id)

    @property
    def key(self) -> str:
        """Where the record is, and is read."""
        keys = self.context.store.list(f"edgetune.campaign.{self.id}.")
        return max(
            (key for key in keys if keys[key] != "{}"), key=lambda key: int(key.split(".")[-1])
        )

    @property
    def last(self) -> str:
        """What was written down last."""
        return self.record.history[-1].what

    def advance(self) -> list[str]:
        """One step; the PoPs whose rollouts it began."""
        return self.advanced()[0]

    def advanced(self) -> tuple[list[str], Any]:
        """The same, and what the step says."""
        said = step_campaign(self.context, self.id, owner="run-1", requested_by="cron")
        rollouts = [read_rollout(self.context, each["rollout"]) for each in said["start"]]
        return [opened.head.pop for opened in rollouts], said

    def begun(self) -> list[str]:
        """The PoPs of all rollouts there are."""
        return sorted(head.pop for head in all_heads(self.context))

    def bring(self, pop: str, state: str) -> None:
        """Lead the rollout of a PoP into a state."""
        rollout = self.record.pops[pop].rollout
        for each in WAYS[state]:
            self.mark(rollout, each)
        if state in ("complete", "rolled_back"):
            self.forget(pop)

    def mark(self, rollout: str, state: str) -> None:
        """Lead a rollout into its next state; what is to be promoted is proven to help."""
        if state == "promoting":
            prove(self.context, rollout)
        epoch = read_rollout(self.context, rollout).head.epoch
        if state == "rolling_back":
            begin_rollback(self.context, rollout, epoch)
        else:
            set_rollout_state(self.context, rollout, epoch, state)

    def forget(self, key: str) -> None:
        """A claim has run out."""
        held = self.context.claims.holder(key)
        if held:
            self.context.claims.release(key, held)

    def died(self) -> None:
        """Long enough after whoever was at work died, its claims have run out."""
        self.forget(f"campaign/{self.id}")
        for pop in POPS:
            held = self.context.claims.holder(pop)
            if held and held.rollout not in [head.id for head in all_heads(self.context)]:
                self.context.claims.release(pop, held)


class CampaignMoves(Scenario):
    """Moves of a campaign."""

    world: CampaignWorld

    def advance(self, expected: list[str]) -> None:
        """A step of the campaign, and the PoPs that it begins with."""
        self.result = None
        begun, self.result = self.world.advanced()
        assert begun == expected, f"{self.where}: {begun}, and not {expected}"

    def bring(self, pops: dict[str, str]) -> None:
        """Lead rollouts of PoPs into a state."""
        for pop, state in pops.items():
            self.world.bring(pop, state)

    def lead(self, pops: dict[str, str]) -> None:
        """Lead rollouts of PoPs through these states."""
        for pop, states in pops.items():
            for state in states.split():
                self.world.mark(self.world.record.pops[pop].rollout, state)
            self.world.forget(pop)

    def claimed_by_others(self, pop: str) -> None:
        """Somebody else begins a rollout there."""
        plan = plan_rollout(self.world.context, pop, "accept_queue")["plan"]
        self._others = claim_pop(self.world.context, plan=plan)["rollout"]

    def others(self, states: str) -> None:
        """Their rollout goes through these states."""
        for state in states.split():
            self.world.mark(self._others, state)

    def of_pop(self, pops: dict[str, dict[str, Any]]) -> None:
        """The record has these fields of PoPs, as if a step had written them."""
        with seized(self.world.context, self.world.id) as work:
            for pop, fields in pops.items():
                vars(work.record.pops[pop]).update(fields)
            work.save()

    def of_record(self, fields: dict[str, Any]) -> None:
        with seized(self.world.context, self.world.id) as work:
            vars(work.record).update(fields)
            work.save()

    def approve(self, more: dict[str, Any]) -> None:
        """Approve the first ring."""
        digest = self.world.record.rings[0].digest
        self.result = approve(self.world.context, digest, **more)

    def options_of(self, pop: str) -> dict[str, Any]:
        """The options with which the rollout of a PoP was planned."""
        opened = read_rollout(self.world.context, self.world.record.pops[pop].rollout)
        return asdict(opened.plan.options)

    @property
    def told(self) -> str:
        """The status of all campaigns that go on."""
        shown = campaign_status(self.world.context)
        return shown["text"] if shown["campaigns"] else ""

    @property
    def told_in_full(self) -> str:
        return campaign_status(self.world.context, self.world.id)["text"]

    def begun(self, expected: list[str]) -> None:
        """The PoPs of all rollouts there are."""
        found = self.world.begun()
        assert found == expected, f"{self.where}: {found}, and not {expected}"

    def hold(self, more: dict[str, Any]) -> None:
        self.result = hold_campaign(self.world.context, self.world.id, **more)

    def resume(self, more: dict[str, Any]) -> None:
        self.result = resume_campaign(self.world.context, self.world.id, **more)

    def abort(self, more: dict[str, Any]) -> None:
        self.result = abort_campaign(self.world.context, self.world.id, **more)

    def follow(self, _: object) -> None:
        """What comes next is of the campaign that was begun last."""
        self.world.id = self.result["campaign"]
