# SPDX-License-Identifier: Apache-2.0
"""Four PoPs and a campaign over them, of which a test says what becomes of each rollout."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from edgetune.campaign.advance import step_campaign
from edgetune.campaign.control import abort_campaign, hold_campaign, resume_campaign
from edgetune.campaign.record import Record, read_record
from edgetune.campaign.run import run_campaign
from edgetune.rollout.heads import all_heads
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.begin_rollback import begin_rollback
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


def inventory_of_four() -> dict[str, Any]:
    """PoPs with eight hosts each, which answer all by the same names."""
    document = inventory_document()
    lab1 = document["pops"].pop("lab1")
    for number, (name, more) in enumerate(POPS.items()):
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
    """A context with a campaign; ``begin_campaign`` begins it, nothing more."""

    def __init__(self, folder: Path, gates: dict[str, Any] | None = None, **config: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        (folder / "campaigns").mkdir()
        super().__init__(folder, campaigns=[str(folder / "campaigns")], **config)
        write_yaml(folder / "inventory.yaml", inventory_of_four())
        self.write(campaign_document(gates=gates or {}))
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
        begun = step_campaign(self.context, self.id, owner="run-1", requested_by="cron")["start"]
        return [read_rollout(self.context, each["rollout"]).head.pop for each in begun]

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
        begun = self.world.advance()
        assert begun == expected, f"{self.where}: {begun}, and not {expected}"

    def bring(self, pops: dict[str, str]) -> None:
        """Lead rollouts of PoPs into a state."""
        for pop, state in pops.items():
            self.world.bring(pop, state)

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
