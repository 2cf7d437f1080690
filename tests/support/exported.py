# SPDX-License-Identifier: Apache-2.0
"""PoPs in several states at once, whose records are exported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from edgetune.base import clock
from edgetune.base.documents.batch import Batch, HostStep, batch_key
from edgetune.base.documents.campaign import Record
from edgetune.base.documents.capacity import CapacityRatio
from edgetune.base.documents.congestion import PrefixEffect
from edgetune.base.documents.head import ENDED, Entry, Head, Quarantine, head_key
from edgetune.base.documents.rounds import Decisions, LookTaken, Outcome, decisions_key
from edgetune.base.documents.steps import StepsTaken, StepTaken, steps_key
from edgetune.fleet.campaign.record import put_record
from edgetune.rollout.gates.pause import EXECUTION, Pause, save_pause
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.rollout.steps.pause_pop import pause_pop
from edgetune.rollout.store.heartbeat import GUARD, Heartbeat
from tests.support.builders import as_samples, concluded, inventory_document, samples
from tests.support.soaking import Soaking
from tests.support.world import EmptyWorld

STAMP = "20261124T100727-7a54"


def put(world: EmptyWorld, pop: str, *states: str, stamp: str = STAMP, **more: Any) -> str:
    """A rollout of ``nic_ring`` on a PoP that was in each state for 60 s, its last one from now on;
    its id."""
    now, rollout = clock.wall(), f"{pop}-{stamp}"
    history = [Entry(now - 60 * n, state, "ana", "so") for n, state in enumerate(states[::-1])]
    named = {"id": rollout, "pop": pop, "tuning": "nic_ring"}
    more = more if "plan" in more else {**more, "plan": world.plan.digest}
    rest = {"epoch": 1, "owner": "run-1", "by": "ana", "created": now - 60 * len(states)}
    head = Head(**{**named, **rest, "state": states[-1], "history": history[::-1], **more})
    world.context.store.put(head_key(rollout), head.document())
    return rollout


def put_one(
    world: EmptyWorld, pop: str, state: str, minutes: float = 5, owned: bool = True, **more: Any
) -> str:
    """A rollout on a PoP that entered its state so many minutes ago; its id."""
    at = clock.wall() - 60 * minutes
    told = {"plan": "", "created": at, "history": [Entry(at, state, "ana", "so")], **more}
    rollout = put(world, pop, state, **told)
    if owned and state not in ENDED:
        world.context.claims.take(pop, rollout, world.context.config.claim_ttl)
    return rollout


def put_steps(world: EmptyWorld, rollout: str, **steps: StepTaken) -> None:
    """What the tasks of a rollout counted of its steps."""
    kept = StepsTaken(rollout, 1, steps)
    world.context.store.put(steps_key(rollout), kept.document())


class Sampled(Soaking):
    """It has no samples of the future."""

    def count(self, rates: dict[str, float], start: float, window: int) -> None:
        taken = samples(rates, start, 600, f"boot {window}", seed=self.seeds[window])
        past = [row for row in taken if row["time"] < self.now]
        self.context.samples.add("lab1", as_samples(past))


def fleet(folder: Path) -> Soaking:
    """lab1 soaks and was looked at once; ams1 changes hosts, one of which failed; b1 is held;
    c1 was rolled back and left two hosts in quarantine; d1 is complete."""
    world = Sampled(folder)
    world.soak(test=3.0, began=200)
    compare_groups(world.context, world.rollout)
    changes = put(world, "ams1", "claimed", "baseline", "changing")
    world.context.claims.take("ams1", changes, world.context.config.claim_ttl)
    _put_batches(world, changes)
    put_steps(world, changes, drain_hosts=StepTaken(4, 10.0, {"drain": 1, "failed": 2}))
    put(world, "b1", "soaking", "held", verdict=concluded("hold", "inconclusive", "few events"))
    world.context.claims.take("b1", f"b1-{STAMP}", world.context.config.claim_ttl)
    stuck = {"e000": Quarantine("gone", out_of_service=True), "e001": Quarantine("serves")}
    put(world, "c1", "changing", "rolling_back", "rolled_back", quarantined=stuck)
    carries = {"ratios": {"listen_drops": 0.02}, "headroom": {"request_p99": 1.23}}
    improved = replace(concluded("promote", "improved"), **carries)
    carried = CapacityRatio(1.4, 2, "at_least", metric="listen_drops")
    put(world, "d1", "soaking", "promoting", "complete", verdict=improved, capacity=carried)
    pause_pop(world.context, "lab1", reason="peak", requested_by="ana")
    held = Pause(True, clock.wall(), "ana", "it is paused", changes, "run-1")
    save_pause(world.context, "ams1", EXECUTION, held)
    world.context.heartbeats.beat(GUARD, Heartbeat(clock.wall() - 20))
    put_record(world.context, campaign())
    tune(world)
    return world


def tune(world: EmptyWorld) -> None:
    """The congestion control of lab1 is tuned; its rounds were compared once."""
    document = inventory_document()
    document["pops"]["lab1"]["congestion"] = {}
    world.change_inventory(document)
    now = clock.wall()
    effect = PrefixEffect("delivery_rate", 40, 10, 1.2, (1.1, 1.3), 0.01, 0.99, 0.05)
    newest = Outcome(now, now - 60, now + 600, 7, 40, 10, ["e001"], new=3, since=now - 900)
    looks = [LookTaken(1, now, [effect], [])]
    decided = Decisions("lab1", "salt", 1, since=now - 900, looks=looks, newest=newest)
    world.context.store.put(decisions_key("lab1"), decided.document())


def campaign() -> Record:
    """One that runs, without rings."""
    return Record("queue-1", "queue", "accept_queue", "sha256:0", "sha256:1", "ana", 1.0)


def _put_batches(world: EmptyWorld, rollout: str) -> None:
    """The first batch is done, in the second one host is out since 100 s and another has failed."""
    now, planned = clock.wall(), world.plan.batches
    first, second = planned[0].hosts, planned[2].hosts
    done = {name: HostStep("done", now - 60, out_at=now - 150, boot_took=42.0) for name in first}
    out = HostStep("drained", now, lb_before="ready", out_at=now - 100)
    failed = HostStep("applying", now, lb_before="ready", out_at=now - 80, error="no answer")
    steps = dict(zip(second, (out, failed)))
    for number, hosts in ((0, done), (2, {name: steps.get(name, HostStep()) for name in second})):
        batch = Batch(rollout, number, "change", "test", hosts, checked=number == 0)
        world.context.store.put(batch_key(rollout, number), batch.document())
