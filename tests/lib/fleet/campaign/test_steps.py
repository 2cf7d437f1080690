# SPDX-License-Identifier: Apache-2.0
"""Campaigns step by step: rings in order, what holds them, and that nothing is begun twice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, Callable
from unittest import mock

import pytest

from edgetune.base.documents.ahead import SampledAhead
from edgetune.base.documents.capacity import Capacity, CapacityPlan, CapacityRatio
from edgetune.base.documents.head import Head, Quarantine, head_key
from edgetune.base.documents.look import Look, Spent
from edgetune.base.documents.steps import StepsTaken, StepTaken, steps_key
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.errors import FencedError, InputError, RefusedError, StoreError
from edgetune.base.numbers import share
from edgetune.fleet.campaign import advance
from edgetune.fleet.campaign import rings as the_rings
from edgetune.fleet.campaign.advance import step_campaign
from edgetune.fleet.campaign.control import (
    abort_campaign,
    approve,
    hold_campaign,
    resume_campaign,
    run_campaign,
)
from edgetune.fleet.campaign.record import seized
from edgetune.intent.metrics.catalogue import metrics_of
from edgetune.judge import ring as ring_judge
from edgetune.judge.measured import measure_baseline, measure_block
from edgetune.judge.series import read_window
from edgetune.report.answers import text_of
from edgetune.report.campaign import told_over
from edgetune.report.steps.campaign_status import campaign_status
from edgetune.report.steps.report_campaign import report_campaign
from edgetune.report.steps.rollout_status import rollout_status
from edgetune.rollout.evidence.sampling import pops_under_way
from edgetune.rollout.evidence.soak import Soak
from edgetune.rollout.gates import approval
from edgetune.rollout.ownership.lease import Rollout, as_owner
from edgetune.rollout.record.capacity import save_capacity
from edgetune.rollout.record.heads import all_heads
from edgetune.rollout.steps.begin_rollback import begin_rollback
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.rollout.steps.pause_pop import pause_pop
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.set_rollout_state import set_rollout_state
from tests.lib.rollout.steps.moves import Holds
from tests.support import ROOT
from tests.support.builders import concluded, samples, table_of
from tests.support.campaign_world import CampaignMoves, CampaignWorld, campaign_document
from tests.support.exported import put_one, put_steps
from tests.support.scenarios import scenarios
from tests.support.virtual_clock import VirtualClock
from tests.support.world import dies


def begun(folder: Path, **more: Any) -> CampaignWorld:
    world = CampaignWorld(folder, **more)
    world.begin_campaign()
    return world


class JudgedMoves(CampaignMoves, Holds):
    """Moves of a campaign whose rings are judged as a test says."""

    def __init__(
        self, world: CampaignWorld, clock: VirtualClock, patch: pytest.MonkeyPatch
    ) -> None:
        super().__init__(world, clock)
        self._patch = patch
        self.says("promote")

    def says(self, decision: str, held: tuple[str, ...] = ()) -> None:
        def decide_ring(records: dict[str, str], hindered: dict[str, str]) -> ring_judge.Ruling:
            reason = f"seen on {', '.join(records)}"
            look = Look(Verdict.IMPROVED, Decision(decision), reason, draws=1)
            contrary = dict.fromkeys(held, "it goes the other way")
            return ring_judge.Ruling(look, {**contrary, **hindered}, ring_judge.Over())

        self._patch.setattr(Soak, "for_ring", lambda soak: "")
        self._patch.setattr(Soak, "hindrance", "")
        self._patch.setattr(ring_judge, "over_all", lambda records: ring_judge.Over())
        self._patch.setattr(ring_judge, "decide_ring", decide_ring)

    def splits(self, held: list[str]) -> None:
        """The judge promotes rings from now on, and holds these PoPs of them."""
        self.says("promote", tuple(held))

    def soaked(self, pops: list[str]) -> None:
        """The soaks of these PoPs end, without harm."""
        for pop in pops:
            rollout = self._soaking(pop)
            head = as_owner(self.world.context, rollout).head
            self._looked(
                rollout, Look(Verdict.NO_DIFFERENCE, Decision.WAIT, "", until=head.soak[1])
            )
        assert self._clock
        self._clock.wait(3601)

    def harmed(self, spent: dict[str, float]) -> None:
        """The judge alone takes these PoPs back, once it has spent so much of alpha."""
        for pop, alpha in spent.items():
            rollout = self._soaking(pop)
            test = Spent(0.01, 0.05, alpha, alpha / 0.05, 3.0, True, 0.0, "")
            reason = "Test hosts dropped 90 % more"
            look = Look(Verdict.DEGRADED, Decision.ROLL_BACK, reason, tests={"harm": test})
            self._looked(rollout, replace(look, until=1.0))
            epoch = as_owner(self.world.context, rollout).head.epoch
            begin_rollback(self.world.context, rollout, epoch, reason=f"degraded: {reason}")
            self.world.mark(rollout, "rolled_back")
            self.world.forget(pop)

    def stuck(self, pops: list[str]) -> None:
        """A host of each of these PoPs could not be brought back."""
        for pop in pops:
            opened = as_owner(self.world.context, self.world.record.pops[pop].rollout)
            opened.head.quarantined = {"e000": Quarantine("no answer")}
            self.world.context.store.put(head_key(opened.head.id), opened.head.document())

    def _soaking(self, pop: str) -> str:
        rollout = self.world.record.pops[pop].rollout
        if as_owner(self.world.context, rollout).head.state == "claimed":
            self.world.bring(pop, "soaking")
        return rollout

    def ticks(self, _: object) -> None:
        """A step of all campaigns that want one."""
        step_campaign(self.world.context)

    def _looked(self, rollout: str, look: Look) -> None:
        opened = as_owner(self.world.context, rollout)
        opened.save_look(replace(look, number=opened.head.looks))
        opened.head.looks += 1
        opened.head.verdict = look.conclusion
        opened.save()

    def act(self, pops: dict[str, str]) -> None:
        """Whoever advances soaking rollouts finds these decisions, and acts on them."""
        ways = {
            "promote": "promoting complete",
            "hold": "held",
            "roll_back": "rolled_back",
            "wait": "",
        }
        for pop, decision in pops.items():
            rollout = self.world.record.pops[pop].rollout
            said = compare_groups(self.world.context, rollout)
            assert said["decision"] == decision, f"{self.where}: {pop}: {said['message']}"
            for state in ways[decision].split():
                epoch = as_owner(self.world.context, rollout).head.epoch
                if state == "rolled_back":
                    begin_rollback(self.world.context, rollout, epoch, reason=said["message"])
                    epoch = as_owner(self.world.context, rollout).head.epoch
                set_rollout_state(self.world.context, rollout, epoch, state)

    def at_time(self, moment: str) -> None:
        assert self._clock
        self._clock.set_to(datetime.fromisoformat(moment).timestamp())

    def file(self, more: dict[str, Any] | None) -> None:
        """The campaign's file is another one, or gone."""
        self.world.write(campaign_document(**(more or {})))
        if more is None:
            (self.world.folder / "campaigns" / "queue.yaml").unlink()

    def damaged(self, text: str) -> None:
        self.world.context.store.put(self.world.key, text)

    def again(self, _: object) -> None:
        self.world.begin_campaign()

    def promoted_by(self, decisions: dict[str, str]) -> None:
        """The rollouts of PoPs are promoted, and their records have these decisions."""
        for pop, decision in decisions.items():
            self.world.bring(pop, "soaking")
            rollout = self.world.record.pops[pop].rollout
            self.world.mark(rollout, "promoting")
            opened = as_owner(self.world.context, rollout)
            opened.head.verdict = concluded(decision) if decision else None
            opened.save()
            self.world.mark(rollout, "complete")
            self.world.forget(pop)

    def two(self, _: object) -> None:
        """Two campaigns more, over all of eu at once, and over us."""
        abort_campaign(self.world.context, self.world.id, requested_by="ana")
        begin_two(self.world)

    def starts(self, number: int) -> None:
        """A step of all campaigns begins so many rollouts."""
        assert len(step_campaign(self.world.context)["start"]) == number, self.where

    @property
    def heads(self) -> list[Head]:
        return all_heads(self.world.context)

    @property
    def size(self) -> int:
        """That of the record."""
        return len(json.dumps(self.world.context.store.get(self.world.key)))

    def truly(self, _: object) -> None:
        """Rings are judged as they are."""
        self._patch.undo()


@pytest.mark.parametrize("case", scenarios(__file__))
def test_a_campaign_goes_on_ring_by_ring(case: Any, tmp_path: Path, clock: VirtualClock) -> None:
    world = begun(tmp_path, **case[0].pop("campaign", {}))
    with pytest.MonkeyPatch.context() as patch:
        JudgedMoves(world, clock, patch).play(case)


def test_a_dry_run_touches_nothing_and_says_who_is_refused(tmp_path: Path) -> None:
    world = CampaignWorld(tmp_path)
    taken = plan_rollout(world.context, "fra1", "accept_queue")["plan"]
    claim_pop(world.context, plan=taken)
    before = dict(world.context.store.list("edgetune."))
    shown = run_campaign(world.context, "queue")
    assert dict(world.context.store.list("edgetune.")) == before
    assert [ring["pops"] for ring in shown["rings"]] == [["ams1"], ["ams2", "fra1"], ["lax1"]]
    assert "fra1 is held by rollout fra1-" in shown["rings"][1]["refused"]["fra1"]
    assert shown["message"] == "a dry run: 4 PoPs in 3 rings, 1 refused now"
    assert re.search(r"fra1  .*\)  refused now: fra1 is held by rollout", text_of(shown["text"]))
    assert world.hosts.changing() == []


def test_a_dry_run_names_the_freezes_and_events_of_the_configuration(tmp_path: Path) -> None:
    release = {"name": "release", "from": "2026-03-06", "to": "2026-03-07", "timezone": "UTC"}
    weekend = {"name": "weekend", "days": ["sat"], "timezone": "UTC"}
    world = CampaignWorld(tmp_path, freezes=[weekend], events=[release])
    lines = text_of(run_campaign(world.context, "queue")["text"]).splitlines()
    assert lines[1] == "  every ring: not during release, weekend (configuration)"
    assert "every ring" not in text_of(
        run_campaign(CampaignWorld(tmp_path / "open").context, "queue")["text"]
    )


def test_what_a_dead_step_began_is_not_left_out(tmp_path: Path) -> None:
    world = begun(tmp_path)
    with seized(world.context, world.id) as work:
        plan = plan_rollout(world.context, "ams1", "accept_queue")["plan"]
        pop = work.record.pops["ams1"]
        pop.plans, pop.refused = [plan], "a host was away"
        work.save()
    rollout = claim_pop(world.context, plan=plan)["rollout"]
    resume_campaign(world.context, world.id, accept=True, requested_by="ben")
    found = world.record.pops["ams1"]
    assert (found.rollout, found.left_out) == (rollout, "")


def test_a_tuning_that_changed_holds(tmp_path: Path) -> None:
    own = tmp_path / "tunings"
    own.mkdir()
    text = (ROOT / "tunings" / "accept_queue.yaml").read_text()
    (own / "accept_queue.yaml").write_text(text)
    world = begun(tmp_path, tunings=[str(own)])
    (own / "accept_queue.yaml").write_text(text.replace("1.0.0", "1.0.1"))
    assert world.advance() == []
    assert "the tuning accept_queue has changed since the campaign began" in world.last
    assert (world.record.state, world.begun()) == ("held", [])


def test_who_takes_it_at_the_same_moment_fences_the_other_out(tmp_path: Path) -> None:
    world = begun(tmp_path)
    with seized(world.context, world.id) as first:
        with seized(world.context, world.id) as second:
            second.record.note("ben", "something")
            second.save()
        first.record.note("ana", "something else")
        with pytest.raises(FencedError), seized(world.context, world.id):
            first.save()


def test_earlier_epochs_are_deleted_once_a_later_one_is_written(tmp_path: Path) -> None:
    world = begun(tmp_path)
    store, prefix = world.context.store, f"edgetune.campaign.{world.id}."

    def write(reason: str) -> list[int]:
        with seized(world.context, world.id) as work:
            work.record.note("ana", reason)
            work.save()
        return [int(key[len(prefix) :]) for key in store.list(prefix)]

    (first,) = write("one")
    # What earlier versions left; and one that lost the campaign, but wrote all the same.
    for epoch in range(first + 1, first + 4):
        world.context.claims.take(f"campaign/{world.id}", world.id, 60)
        store.put(f"{prefix}{epoch}", "{}")
    store.put(f"{prefix}{first - 1}", "{")
    (last,) = write("two")
    assert last > first + 3
    assert world.record.history[-1].what == "two"
    # Whoever dies before they are deleted has written what counts.
    with pytest.raises(StoreError), seized(world.context, world.id) as work:
        work.record.note("ana", "three")
        with mock.patch.object(store, "delete", side_effect=StoreError("it is away")):
            work.save()
    assert world.record.history[-1].what == "three"
    assert len(write("four")) == 1


def at_each_moment(
    folder: Path, work: Callable[[CampaignWorld], Any]
) -> Iterator[tuple[CampaignWorld, list[str], Any]]:
    """Worlds in each of which ``work`` comes in at another moment of a step; what both did."""
    # After an effect or before the next one is the same to the world.
    for moment in count(0, 2):
        world = begun(folder / str(moment))
        came: list[Any] = []
        last = len(world.moments.seen) + moment

        def come(what: str, world: Any = world, last: int = last, came: Any = came) -> None:
            if len(world.moments.seen) - 1 == last:
                came.append(work(world))

        world.moments.at = come
        own = world.advance()
        if not came:
            assert moment >= 8
            return
        world.moments.at = lambda what: None
        yield world, own, came[0]


def settled(world: CampaignWorld) -> None:
    """Later there is one rollout of ams1, and the campaign knows it."""
    world.died()
    world.advance()
    assert world.begun() == ["ams1"], world.moments.seen
    assert world.record.pops["ams1"].rollout == all_heads(world.context)[0].id


def test_two_steps_that_do_not_see_each_other_begin_a_pop_once(tmp_path: Path) -> None:
    """Both found nobody at work, whenever the second one comes."""

    def blind(world: CampaignWorld) -> list[str]:
        holder = world.context.claims.holder
        with mock.patch.object(
            world.context.claims, "holder", lambda key: None if "/" in key else holder(key)
        ):
            return world.advance()

    for world, own, others in at_each_moment(tmp_path, blind):
        assert [*own, *others].count("ams1") <= 1
        settled(world)


def test_a_hold_is_never_undone(tmp_path: Path) -> None:
    for world, _, _ in at_each_moment(
        tmp_path, lambda world: hold_campaign(world.context, world.id, requested_by="ben")
    ):
        assert world.record.state == "held"
        resume_campaign(world.context, world.id, requested_by="ben")
        settled(world)


@pytest.mark.slow
def test_a_step_may_die_at_any_moment(tmp_path: Path) -> None:
    """Whoever comes after finds what was begun; no PoP is begun twice, none is forgotten."""
    moments = []
    for moment in count(0, 2):
        world = CampaignWorld(tmp_path / str(moment))
        rings = [{"name": "canary", "pops": ["ams1", "ams2"]}]
        world.write(campaign_document(rings=rings, gates={"max_concurrent": 2}))
        world.begin_campaign()
        if not dies(world, moment, lambda made: made.advance()):
            break
        moments.append(world.moments.seen[-1])
        assert world.advance() == [], "its claim is still there"
        world.died()
        for _ in range(3):
            world.advance()
        assert world.begun() == ["ams1", "ams2"], moments[-1]
        assert {head.id for head in all_heads(world.context)} == {
            pop.rollout for pop in world.record.pops.values() if pop.rollout
        }
        assert all(head.state == "claimed" for head in all_heads(world.context))
    assert len(moments) >= 7
    assert any("edgetune.rollout." in moment for moment in moments)


def test_an_error_of_one_campaign_keeps_no_other_from_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = CampaignWorld(tmp_path)
    rings = campaign_document()["rings"]
    for name, ring in (("one", rings[0]), ("two", rings[2])):
        world.write(campaign_document(name=name, rings=[ring]))
    ids = [
        run_campaign(world.context, name, dry_run=False, requested_by="ana")["campaign"]
        for name in ("one", "two")
    ]
    key = f"edgetune.campaign.{ids[0]}.0"
    broken = json.loads(world.context.store.get(key) or "")
    broken["rings"][0]["pops"]["ams1"]["rollout"] = "gone"
    world.context.store.put(key, json.dumps(broken))
    put = world.context.store.put

    def fails(name: str, value: str) -> None:
        if name.startswith(key[:-1]):
            raise RefusedError("the store does not like it")
        put(name, value)

    monkeypatch.setattr(world.context.store, "put", fails)
    said = step_campaign(world.context)
    assert said["errors"] == [f"{ids[0]}: the store does not like it"]
    assert len(said["start"]) == 1
    assert world.begun() == ["lax1"]


def test_of_two_that_begin_at_the_same_moment_one_is_refused(tmp_path: Path) -> None:
    world = CampaignWorld(tmp_path)
    said: list[str] = []

    def another(moment: str) -> None:
        if not said and moment.startswith("before put edgetune.campaign."):
            said.append("")
            with pytest.raises(RefusedError) as caught:
                run_campaign(world.context, "queue", dry_run=False, requested_by="ben")
            said[0] = str(caught.value)

    world.moments.at = another
    world.begin_campaign()
    assert said == ["another campaign begins at this moment; try again"]


def two_campaigns(folder: Path) -> CampaignWorld:
    world = CampaignWorld(folder)
    begin_two(world)
    return world


def begin_two(world: CampaignWorld) -> None:
    """The campaign ``one`` over all of eu at once, ``two`` over us."""
    for name, region in (("one", "eu"), ("two", "us")):
        rings = [{"name": "all", "regions": [region]}]
        world.write(campaign_document(name=name, rings=rings, gates={"max_concurrent": 9}))
        world.id = run_campaign(world.context, name, dry_run=False, requested_by="ana")["campaign"]


def test_campaigns_share_the_time_of_an_action(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long planning lasts: step_campaign has 600 s, and all campaigns have a turn."""
    world = two_campaigns(tmp_path)
    began = clock.passed

    def slow(*given: Any, **more: Any) -> Any:
        clock.wait(200)
        return plan_rollout(*given, **more)

    monkeypatch.setattr(advance, "plan_rollout", slow)
    step_campaign(world.context)
    assert world.begun() == ["ams1", "lax1"]
    assert 400 <= clock.passed - began < 401
    step_campaign(world.context)
    assert world.begun() == ["ams1", "ams2", "lax1"]


def test_what_nobody_foresaw_in_one_campaign_keeps_no_other_from_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, unchanged = two_campaigns(tmp_path), the_rings.unchanged

    def damaged(context: Any, record: Any) -> Any:
        if record.name == "one":
            raise KeyError("metrics")
        return unchanged(context, record)

    monkeypatch.setattr(the_rings, "unchanged", damaged)
    said = step_campaign(world.context)
    assert world.begun() == ["lax1"]
    assert len(said["start"]) == 1
    assert said["errors"][0].endswith("KeyError: 'metrics'")


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: "{",
        lambda kept: "[]",
        lambda kept: "7",
        lambda kept: json.dumps({**kept, "schema": 99}),
        lambda kept: json.dumps({**kept, "rings": None}),
        lambda kept: json.dumps({**kept, "rings": [{"pops": ["ams1"]}]}),
        lambda kept: json.dumps({**kept, "created": "yesterday"}),
        lambda kept: json.dumps({**kept, "unknown": 1}),
        lambda kept: json.dumps({key: kept[key] for key in kept if key != "created"}),
    ],
)
def test_a_damaged_record_keeps_no_other_campaign_from_its_step(
    tmp_path: Path, damage: Callable[[dict[str, Any]], str]
) -> None:
    world = two_campaigns(tmp_path)
    one, _ = sorted(world.context.store.list("edgetune.campaign.").items())[0]
    kept = json.loads(world.context.store.get(one) or "")
    world.context.store.put(one, damage(kept))
    world.context.store.put("edgetune.campaign.nothing.of_ours", "{")
    said = step_campaign(world.context)
    assert world.begun() == ["lax1"]
    (error,) = said["errors"]
    assert error.startswith(f"campaign {kept['id']}") and error in said["message"]
    status = campaign_status(world.context)
    assert status["message"] == f"1 campaign; {error}"
    assert status["text"].startswith(f"{error}\n\n")
    with pytest.raises(RefusedError, match=kept["id"]):
        abort_campaign(world.context, kept["id"], requested_by="ana")
    with pytest.raises(InputError, match="no plan and no ring"):
        approve(world.context, "sha256:00", requested_by="ana")


def test_who_soaks_is_looked_at_in_turn(tmp_path: Path) -> None:
    """advance_soaking takes 25 at a time: the younger ones would have no look for days."""
    world = two_campaigns(tmp_path)
    step_campaign(world.context)
    for head in all_heads(world.context):
        for state in ("baseline", "changing", "soaking"):
            world.mark(head.id, state)
    *ids, last = rollout_status(world.context, state="soaking")["ids"]
    assert sorted([*ids, last]) == sorted(head.id for head in all_heads(world.context))
    for rollout in ids:
        compare_groups(world.context, rollout)
    assert rollout_status(world.context, state="soaking")["ids"] == [last, *ids]


def test_the_order_of_those_who_soak_does_not_rest_on_when_each_is_read(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """A machine that stands still while claims are read makes none of them look older."""
    world = two_campaigns(tmp_path)
    step_campaign(world.context)
    for head in all_heads(world.context):
        for state in ("baseline", "changing", "soaking"):
            world.mark(head.id, state)
    ids = rollout_status(world.context, state="soaking")["ids"]
    assert len(ids) > 1
    clock.look = 20.0
    for _ in range(3):
        assert rollout_status(world.context, state="soaking")["ids"] == ids


NEEDED = {"approval": {"required": True, "expires": 3600}}


def waiting(folder: Path, **more: Any) -> tuple[CampaignWorld, str]:
    """A campaign whose first ring waits for an approval of this digest."""
    world = begun(folder, gates={"approval": {**NEEDED["approval"], **more}})
    return world, world.record.rings[0].digest


@pytest.mark.parametrize("waits", ["approval", "pops", "held"])
def test_people_are_told_that_a_campaign_waits_and_again_each_day(
    tmp_path: Path, clock: VirtualClock, waits: str
) -> None:
    if waits == "approval":
        world, said = waiting(tmp_path)[0], "ring canary waits: "
    else:
        world, said = begun(tmp_path), "ring canary waits for its PoPs: ams1: ams1 is paused"
        pause_pop(world.context, "ams1", requested_by="ana")
    with seized(world.context, world.id) as work:
        work.record.channel = "edge"
        if waits == "held":
            work.record.become("held", "ana", "of a test")
            said = "is held still: "
        work.save()
    told = []
    for hour in range(50):
        news = step_campaign(world.context)["news"]
        told += [hour for row in news if row["channel"] == "edge" and said in row["text"]]
        clock.wait(3600)
    assert told == ([24, 48] if waits == "held" else [0, 24, 48])


def test_an_approval_of_whoever_asked_counts_by_no_way(tmp_path: Path, clock: VirtualClock) -> None:
    world, digest = waiting(tmp_path)
    made = approval.Approval(digest, "ring", " Ana ", clock.wall(), clock.wall() + 60)
    approval.save_approval(world.context, made)
    assert world.advance() == []


def test_an_approval_is_of_one_digest(tmp_path: Path) -> None:
    """What was approved of one campaign is worth nothing for the next one, nor after a change."""
    world, digest = waiting(tmp_path)
    approve(world.context, digest, requested_by="ben")
    abort_campaign(world.context, world.id, requested_by="ben")
    with pytest.raises(RefusedError, match="needs no approval: it is aborted"):
        approve(world.context, digest, requested_by="ben")
    world.begin_campaign()
    assert world.record.rings[0].digest != digest
    assert world.advance() == []
    world.write(campaign_document(gates={}))
    with pytest.raises(RefusedError, match="has changed since the campaign began"):
        approve(world.context, world.record.rings[0].digest, requested_by="ben")
    with pytest.raises(InputError, match="digest: no plan and no ring has the digest 'sha256:0'"):
        approve(world.context, "sha256:0", requested_by="ben")


def test_a_plan_is_approved_where_the_configuration_asks_for_it(tmp_path: Path) -> None:
    world = CampaignWorld(tmp_path, plan_approval=True)
    plan = plan_rollout(world.context, "ams1", "accept_queue")["plan"]
    with pytest.raises(RefusedError, match=f"plan {plan} waits for an approval"):
        claim_pop(world.context, plan=plan, requested_by="ana")
    assert (
        approve(world.context, plan, requested_by="ben")["of"]
        == f"plan {plan}, accept_queue on ams1"
    )
    with pytest.raises(RefusedError, match="ben asked for it"):
        claim_pop(world.context, plan=plan, requested_by="ben")
    with pytest.raises(RefusedError, match="ben asked for it"):
        claim_pop(world.context, plan=plan, requested_by="ana", caller="ben")
    assert world.begun() == []
    assert claim_pop(world.context, plan=plan, requested_by="ana")["rollout"]


def soaked(world: CampaignWorld, pop: str, test: float) -> None:
    """Baseline and one look of a rollout; control hosts drop three connections a second."""
    opened = as_owner(world.context, world.record.pops[pop].rollout)
    head, strata = opened.head, opened.plan.strata
    split = next(iter(strata.values()))
    before = dict.fromkeys([*split.test, *split.control], 3.0)
    hosts, metrics = list(before), metrics_of(opened.plan)
    taken = samples(before, 0, 600, seed=12)
    baseline = measure_baseline(read_window(table_of(taken), hosts, 0, 600, 10, metrics), strata)
    opened.save_baseline(baseline)
    after = samples({**before, **dict.fromkeys(split.test, test)}, 1000, 600)
    window = read_window(table_of(after), hosts, 1000, 1600, 10, metrics, baseline.exposures)
    block = measure_block(window, strata, baseline)
    opened.save_look(Look(Verdict.INCONCLUSIVE, Decision.WAIT, "", block=block, until=1600))
    head.looks = 1
    Rollout(world.context, head).save()


@pytest.mark.parametrize(("test", "state"), [(1.0, "running"), (3.0, "held")])
def test_the_verdict_of_a_ring_is_the_judges(tmp_path: Path, test: float, state: str) -> None:
    world = begun(tmp_path)
    world.advance()
    world.bring("ams1", "complete")
    soaked(world, "ams1", test)
    world.advance()
    ring = world.record.rings[0]
    assert (world.record.state, bool(ring.closed)) == (state, state == "running")
    assert ring.verdict["verdict"] == {"running": "improved", "held": "no_difference"}[state]
    assert "Test hosts dropped" in ring.verdict["reason"] or state == "held"


def test_the_effect_over_a_ring_is_that_of_all_pops_that_were_judged(tmp_path: Path) -> None:
    """Also of one that was taken back and left out: a mean over the others is too good."""
    gates = {"verdict": "each", "max_concurrent": 5}
    world = begun(tmp_path, gates=gates, together=True, report_dir=str(tmp_path / "reports"))
    drops = dict(zip(world.advance(), (2.0, 2.1, 2.2, 1.9, 6.0)))
    *promoted, harmed = drops
    for pop in drops:
        world.bring(pop, "soaking" if pop == harmed else "complete")
        soaked(world, pop, drops[pop])
    world.bring(harmed, "rolled_back")
    world.advance()
    resume_campaign(world.context, world.id, accept=True, requested_by="ben")
    world.advance()
    assert world.record.state == "complete"
    effect = world.record.rings[0].effect
    assert effect and effect.pops.keys() == drops.keys()
    assert effect.ratio > 0.8 > max(effect.pops[pop].ratio for pop in promoted)
    told = campaign_status(world.context, world.id)["text"]
    assert f"listen_drops {share(effect.ratio)} (" in told
    assert " over 5 PoPs; the next PoP: −" in told
    (row,) = world.record.rings[0].headroom
    assert (row.metric, row.limit, row.over) == ("health_failed", 0.5, None)
    shown = told_over(world.record.rings[0])[1]
    assert shown in told
    rollout = world.record.pops[harmed].rollout
    plan = CapacityPlan(harmed, rollout, "accept_queue", "cpu", None, 0.2, 60, True, 1, [])
    ratio = CapacityRatio(1.4, 2, "at_least", metric="cpu")
    save_capacity(world.context, Capacity(plan, "ana", 1.0, 2.0, ratio=ratio))
    page = Path(report_campaign(world.context, world.id)["path"]).read_text()
    assert "tuned hosts carry at least 40 % more load than untuned ones" in page
    assert " over 5 PoPs; the next PoP: −" in page and shown in page
    assert f"likely {share(effect.pops[harmed].shrunken)}" in page


def test_who_is_skipped_when_all_is_promoted_was_compared(tmp_path: Path) -> None:
    world = begun(tmp_path)
    world.advance()
    world.bring("ams1", "complete")
    soaked(world, "ams1", 1.0)
    opened = as_owner(world.context, world.record.pops["ams1"].rollout)
    for number in (0, len(opened.plan.batches)):
        batch = opened.batch(number)
        first = next(iter(batch.hosts))
        batch.hosts[first].go("skipped")
        opened.save_batch(batch)
    strata = Soak(opened).for_ring().strata
    split = next(iter(strata.values()))
    assert (len(split.test), len(split.control)) == (3, 4)


def test_pops_are_sampled_before_they_begin(tmp_path: Path, clock: VirtualClock) -> None:
    world = CampaignWorld(tmp_path / "x")
    document = campaign_document(gates={"max_concurrent": 2})
    document["rollout"]["baseline"] = 3600
    world.write(document)
    world.begin_campaign()
    assert pops_under_way(world.context) == []
    assert world.advance() == ["ams1"]
    assert pops_under_way(world.context) == ["ams1"]
    world.bring("ams1", "soaking")
    clock.wait(3600 - 300)
    world.advance()
    # Both begin within the hour of a baseline; lax1 is of a later ring.
    for _ in range(9):
        first, *others = pops_under_way(world.context)
        # Where the time of a sweep is short, nothing is lost of what is under way.
        assert (first, sorted(others)) == ("ams1", ["ams2", "fra1"])
    # A campaign that does not go on has nothing sampled: at once, or once its time is over.
    (key,) = world.context.store.list("edgetune.ahead.")
    hold_campaign(world.context, world.id, requested_by="ben")
    clock.wait(3601)
    assert pops_under_way(world.context) == ["ams1"]
    for damaged in ("no JSON", SampledAhead(["fra1"], clock.wall() + 7201).document()):
        world.context.store.put(key, damaged)
        assert pops_under_way(world.context) == ["ams1"]


def test_a_step_is_taken_where_nothing_can_be_sampled_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = begun(tmp_path)
    put = world.context.store.put

    def away(key: str, value: str) -> None:
        if key.startswith("edgetune.ahead."):
            raise StoreError("the store is away")
        put(key, value)

    monkeypatch.setattr(world.context.store, "put", away)
    told = step_campaign(world.context, world.id)
    assert told["errors"] == [] and len(told["start"]) == 1


def test_nothing_is_sampled_ahead_where_the_past_does_not_count(
    tmp_path: Path, clock: VirtualClock
) -> None:
    world = CampaignWorld(tmp_path / "x")
    document = campaign_document()
    document["rollout"]["past_baseline"] = False
    world.write(document)
    world.begin_campaign()
    world.advance()
    world.bring("ams1", "soaking")
    clock.wait(3600 - 300)
    world.advance()
    assert pops_under_way(world.context) == ["ams1"]


def test_the_status_shows_the_present_end(tmp_path: Path, clock: VirtualClock) -> None:
    world = begun(tmp_path / "x")
    world.advance()
    (before,) = campaign_status(world.context)["campaigns"]
    clock.wait(7200)
    # Its baseline was not begun meanwhile: all of it comes later.
    (after,) = campaign_status(world.context)["campaigns"]
    assert after["schedule"]["ends"][0] - before["schedule"]["ends"][0] >= 7000
    assert [own["pop"] for own in after["schedule"]["pops"]] == ["ams1", "ams2", "fra1", "lax1"]
    text = campaign_status(world.context)["text"]
    assert "  ends in " in text and re.search(r"lax1  not begun  20..-..-.. ..:..Z to", text)
    hold_campaign(world.context, world.id, requested_by="ben")
    (held,) = campaign_status(world.context)["campaigns"]
    assert held["schedule"] == {}


def test_a_schedule_knows_how_long_batches_took(tmp_path: Path, clock: VirtualClock) -> None:
    world = begun(tmp_path / "x")
    world.advance()
    rollout = world.record.pops["ams1"].rollout
    taken = {"drain_hosts": (2, 30.0), "check_rebooted": (2, 170.0), "check_health": (2, 0.0)}
    steps = {name: StepTaken(count, seconds) for name, (count, seconds) in taken.items()}
    before = run_campaign(world.context, "queue")["schedule"]
    world.context.store.put(steps_key(rollout), StepsTaken(rollout, steps=steps).document())
    after = run_campaign(world.context, "queue")["schedule"]
    # A batch is 100 s and no longer a reckoned 330 s, at most.
    assert after["ends"][1] < before["ends"][1]
    lax1 = next(own for own in after["pops"] if own["pop"] == "lax1")
    # Until then it has been sampled for longer than a baseline: two more samples do.
    assert abs(lax1["soaked"][0] - lax1["begins"][0] - (20 + 4 * 100 + 7200)) <= 1


def test_what_was_archived_a_year_ago_still_tells_how_long_batches_take(
    tmp_path: Path, clock: VirtualClock
) -> None:
    world = begun(tmp_path / "x")
    reckoned = run_campaign(world.context, "queue")["schedule"]["ends"]
    year = 366 * 1440
    rollout = put_one(world, "sin1", "complete", year, tuning="accept_queue")
    put_steps(world, rollout, undrain_hosts=StepTaken(4, 40.0), check_health=StepTaken(2, 0.0))
    others = put_one(world, "lax1", "complete", year, tuning="nic_ring")
    put_steps(world, others, check_health=StepTaken(1, 9000.0))
    learnt = run_campaign(world.context, "queue")["schedule"]["ends"]
    assert learnt[1] < reckoned[1]
    assert world.run("find_orphans")["archived"] == 2
    assert world.context.store.list(steps_key("")) == {}
    assert run_campaign(world.context, "queue")["schedule"]["ends"] == learnt


def test_the_schedule_counts_what_is_under_way_alone(tmp_path: Path, clock: VirtualClock) -> None:
    world = begun(tmp_path / "x", together=True, gates={"max_concurrent": 5})
    assert len(world.advance()) == 5
    for pop, state in {"ams1": "soaking", "ams2": "complete", "fra1": "soaking"}.items():
        world.bring(pop, state)
    (row,) = campaign_status(world.context)["campaigns"]
    left = {own["pop"]: own for own in row["schedule"]["pops"]}
    assert left.keys() == {"ams1", "fra1", "lax1", "sin1"}
    now = row["schedule"]["start"]
    # Moments are shown in whole seconds.
    assert abs(left["ams1"]["soaked"][0] - now - 3600) <= 1
    assert left["lax1"]["soaked"][0] - now > 600 + 3600
