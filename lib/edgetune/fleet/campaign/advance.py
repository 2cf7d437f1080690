# SPDX-License-Identifier: Apache-2.0
"""One step of a campaign: begin rollouts of its present ring, close the ring, or hold.

A rollout begins with its record: the plan is written into the campaign, the PoP is claimed for
it, and only then does a workflow carry it on. Whoever dies in between leaves either nothing, or a
rollout that is found by its plan and has an owner again soon, like any orphan.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.ahead import SAMPLED_FOR, SampledAhead, ahead_key
from edgetune.base.documents.campaign import Record, RingStep
from edgetune.base.documents.head import ENDED, Head
from edgetune.base.documents.options import Options
from edgetune.base.documents.reading import encoded
from edgetune.base.documents.words import Decision, State, Verdict
from edgetune.base.durations import DAY
from edgetune.base.errors import (
    EdgetuneError,
    FencedError,
    NothingToDo,
    RefusedError,
    StoreError,
)
from edgetune.base.freezes import written
from edgetune.base.sanitize import command
from edgetune.fleet.campaign import rings
from edgetune.fleet.campaign.record import Writer, readable_records, taken_if_free
from edgetune.fleet.campaign.work import Ahead
from edgetune.intent.campaign import Campaign, Ring
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.load_curve import learn_loads
from edgetune.rollout.gates.pause import refuse_if_paused
from edgetune.rollout.ownership.kill_switch import refuse_if_stopped
from edgetune.rollout.status.claimed import refuse_held
from edgetune.rollout.steps.claim_pop import begin_rollout
from edgetune.rollout.steps.plan_rollout import plan_rollout

# Planning asks every host of a PoP. All campaigns share the time; what is not planned by then is
# left to the next step.
_LONGEST = 300.0
# Those of a step in which its PoPs' loads are brought up to date.
_LEARNING = 30.0


class BegunRow(TypedDict):
    """A rollout that wants a workflow, and the epoch of its claim."""

    rollout: str
    epoch: int


class NewsRow(TypedDict):
    """What a chat channel is to be told."""

    channel: str
    text: str


class StepResult(TypedDict):
    """What a step began, what failed by campaign, and what is to be told."""

    start: list[BegunRow]
    errors: list[str]
    news: list[NewsRow]
    message: str


def step_campaign(
    context: Context, campaign: str = "", owner: str = "", requested_by: str = ""
) -> StepResult:
    """Take the next step of a campaign, or of all that are running; safe to repeat at any time.

    ``start`` lists the rollouts that were begun and want a workflow, each with its epoch.
    ``errors`` names campaigns whose step failed, or whose record cannot be read; the others go on.
    ``news`` is what their chat channels are to be told. ``owner`` is the execution that asks.
    """
    refuse_if_stopped(context)
    records, unreadable = readable_records(context)
    running = [record.id for record in records if _goes_on(record)]
    begun: list[BegunRow] = []
    news: list[NewsRow] = []
    messages: dict[str, str] = {}
    errors = [] if campaign else unreadable
    names = [campaign] if campaign else running
    until = clock.monotonic() + _LONGEST
    for ahead, name in zip(range(len(names), 0, -1), names):
        now = clock.monotonic()
        share = now + (until - now) / ahead
        try:
            messages[name] = _Step(context, owner, requested_by, begun, news, share).of(name)
        except FencedError as error:
            messages[name] = str(error)
        except Exception as error:  # noqa: BLE001 - one campaign keeps no other from its step
            # What was begun already still wants its workflow.
            if campaign and not begun:
                raise
            errors.append(f"{name}: {_what(error)}")
    said = [*(f"{name}: {text}" for name, text in messages.items()), *errors]
    return {
        "start": begun,
        "errors": errors,
        "news": news,
        "message": "; ".join(said) or "no campaign is running",
    }


class _Step:
    """One step, in the name of one execution."""

    def __init__(
        self,
        context: Context,
        owner: str,
        requested_by: str,
        begun: list[BegunRow],
        news: list[NewsRow],
        until: float,
    ) -> None:
        self._context, self._owner, self._requested_by = context, owner, requested_by
        self._begun, self._news, self._until = begun, news, until

    def of(self, campaign: str) -> str:
        """Take it; what happened, in one line."""
        with taken_if_free(self._context, campaign) as work:
            record = work.record
            if record.state not in ("running", "held", "aborted"):
                return f"it is {record.state}"
            noted = len(record.history)
            heads: Mapping[str, Head] = {}
            if record.state == "running":
                heads = rings.heads_of(self._context, record)
                said = self._decide(work, heads)
            else:
                said = {"held": self._held, "aborted": self._aborted}[record.state](record)
            work.save()
            whats = [entry.told for entry in record.history[noted:]]
            if record.channel and whats:
                text = f"{record.id}: {'; '.join(whats)}"
                self._news.append({"channel": record.channel, "text": text})
            self._sample_ahead(record, heads)
            return said

    def _sample_ahead(self, record: Record, heads: Mapping[str, Head]) -> None:
        """Have PoPs sampled that begin within the time of their baseline; nobody has to wait for
        it once they begin. Where that fails the step is taken all the same."""
        key = ahead_key(record.id)
        with suppress(EdgetuneError):
            if record.state != "running":
                self._context.store.delete(key)
                return
            campaign = rings.unchanged(self._context, record)
            soon = Ahead(self._context, campaign, [*heads.values()]).soon(record, heads)
            until = clock.wall() + SAMPLED_FOR
            self._context.store.put(key, SampledAhead(soon, until).document())

    def _held(self, record: Record) -> str:
        """A person has to decide, and is reminded each day."""
        if record.present and _rules_out(record.present):
            heads = rings.heads_of(self._context, record)
            owes = rings.owed(self._context, record.present, heads)
            rings.conclude(self._context, record.present, owes, 0)
        if reminds(record):
            how = command("campaign_status", campaign=record.id)
            record.note(self._requested_by, f"is held still: {how} shows why", self._owner)
        return f"it is {record.state}"

    def _aborted(self, record: Record) -> str:
        """No ring of it gets a verdict any more: who waits for one is held, unless it is ruled out
        already."""
        heads = rings.heads_of(self._context, record)
        for ring in record.rings:
            rings.conclude(self._context, ring, rings.owed(self._context, ring, heads), 0)
            why = f"campaign {record.id} was aborted before ring {ring.name} had a verdict"
            for name in rings.waiting(self._context, ring, heads):
                about = (Verdict.INCONCLUSIVE, Decision.HOLD, why)
                rings.end_soak(self._context, ring.pops[name].rollout, *about)
        own = [heads[pop.rollout] for pop in record.pops.values() if pop.rollout in heads]
        record.over = not any(head.ring and head.state not in ENDED for head in own)
        return f"it is {record.state}"

    def _decide(self, work: Writer, heads: Mapping[str, Head]) -> str:
        record, ring = work.record, work.record.present
        owes = rings.owed(self._context, ring, heads) if ring else []
        if ring and owes:
            # Nobody keeps a tuning that is ruled out, whatever else holds the campaign by now.
            return self._conclude(record, ring, heads, owes, 0)
        try:
            definition = rings.unchanged(self._context, record)
        except RefusedError as error:
            return self._hold(record, str(error))
        for told in rings.ask_rings(self._context, record, definition, heads):
            record.note(self._requested_by, told, self._owner)
        if ring is None:
            return self._complete(record)
        stuck = rings.unwell(record, heads)
        if stuck:
            return self._hold(record, "; ".join(stuck))
        own = definition.ring(ring.name)
        waits = rings.waiting(self._context, ring, heads)
        if any(heads[ring.pops[name].rollout].soak[0] > ring.judged for name in waits):
            # One that was held has soaked again: that is another verdict.
            ring.verdict = {}
        if waits and (ring.verdict or rings.is_settled(ring, waits, heads)):
            return self._decide_ring(work, ring, definition, heads, waits)
        if rings.is_settled(ring, [], heads):
            return self._close(record, ring, own, heads)
        late = rings.overdue(record, ring, own.gates, waits, heads) if waits else ""
        if late:
            return self._hold(record, late)
        return self._go_on(work, ring, definition, heads, waits)

    def _decide_ring(
        self,
        work: Writer,
        ring: RingStep,
        campaign: Campaign,
        heads: Mapping[str, Head],
        waits: list[str],
    ) -> str:
        """Judge a ring whose PoPs all wait for it, once, and let them have its verdict."""
        record, own = work.record, campaign.ring(ring.name)
        if not ring.ruling:
            ring.verdict = encoded(rings.verdict_of(self._context, ring, own.gates, heads))
            ring.judged = clock.wall()
            record.note(self._requested_by, _judged(ring), self._owner)
            work.save()
        room = own.gates.room(len(_under_way(record, heads, waits)))
        if 0 < room < len(waits) and own.gates.max_load and not _rules_out(ring):
            # Who is promoted out of its hours would keep a place from others.
            ahead = Ahead(self._context, campaign, [*heads.values()])
            waits = [name for name in waits if ahead.is_open(own, name)]
        return self._conclude(record, ring, heads, waits, room)

    def _conclude(
        self,
        record: Record,
        ring: RingStep,
        heads: Mapping[str, Head],
        waits: list[str],
        room: float,
    ) -> str:
        """Let PoPs have the verdict of their ring; hold once all have one that promotes none."""
        concluded = rings.conclude(self._context, ring, waits, room)
        if _rules_out(ring) and len(concluded) == len(waits):
            return self._hold(record, _judged(ring))
        told = "; ".join(f"{name} {decision}" for name, decision in concluded)
        return f"ring {ring.name}: {told or _progress(ring, heads)}"

    def _go_on(
        self,
        work: Writer,
        ring: RingStep,
        campaign: Campaign,
        heads: Mapping[str, Head],
        awaiting: list[str],
    ) -> str:
        """Begin as many PoPs of the ring as its gates permit, in the order of the schedule."""
        own = campaign.ring(ring.name)
        record, gates = work.record, own.gates
        under_way = _under_way(record, heads, awaiting)
        ahead = [name for name, pop in ring.pops.items() if not (pop.rollout or pop.left_out)]
        waits = rings.closed_gates(self._context, record, ring, gates) if ahead else []
        if waits:
            return self._wait(record, f"ring {ring.name} waits: {'; '.join(waits)}")
        room = gates.room(len(under_way))
        if ahead and room > 0:
            ahead = self._begin_some(work, ring, campaign, heads, ahead, room)
        refused = [
            f"{name}: {ring.pops[name].refused}" for name in ahead if ring.pops[name].refused
        ]
        if refused and not under_way and len(refused) == len(ahead):
            self._wait(record, f"ring {ring.name} waits for its PoPs: ", "; ".join(refused))
        return rings.awaited(ring, awaiting, heads) or _progress(ring, heads)

    def _begin_some(
        self,
        work: Writer,
        ring: RingStep,
        campaign: Campaign,
        heads: Mapping[str, Head],
        names: list[str],
        room: float,
    ) -> list[str]:
        """Begin PoPs of these, as long as there is room; all of them in their order."""
        own = campaign.ring(ring.name)
        if own.gates.max_load:
            learn_loads(self._context, [*ring.pops], _LEARNING)
        ahead = Ahead(self._context, campaign, [*heads.values()])
        if room < len(names):
            planned = ahead.order(own, ring, heads, room)
            # Those of which there is no figure come after the others.
            names = [*planned, *(name for name in names if name not in planned)]
        # Those that were refused last time come last, so that they keep no other from its turn.
        names = sorted(names, key=lambda name: bool(ring.pops[name].refused))
        if own.gates.max_load and room < len(names):
            # Of a large ring not all were learnt, and those without hours have the first turn.
            learn_loads(self._context, names[: int(room)], _LEARNING)
            ahead = Ahead(self._context, campaign, [*heads.values()])
        for name in names:
            if room > 0 and clock.monotonic() < self._until:
                room -= self._begin(work, ring, name, own, ahead)
        return names

    def _wait(self, record: Record, what: str, more: str = "") -> str:
        """Tell people that nothing goes on, and again each day for which that lasts."""
        told = [entry.at for entry in record.history if entry.what.startswith(what)]
        if clock.wall() - max(told, default=0.0) >= DAY:
            record.note(self._requested_by, what + more, self._owner)
        return what + more

    def _begin(
        self, work: Writer, ring: RingStep, name: str, definition: Ring, ahead: Ahead
    ) -> bool:
        """Begin the rollout of a PoP; False, and the record says why, if it is refused."""
        record, pop = work.record, ring.pops[name]
        try:
            shut = written(ahead.shut(definition, name))
            plan = self._plan(name, record.tuning, ahead.options(definition, name))
            self._open(record, ring, definition)
        except NothingToDo as error:
            pop.refused, pop.left_out = "", str(error)
            record.note(self._requested_by, f"{name} is left out: {error}", self._owner)
            return False
        except StoreError:
            raise
        except EdgetuneError as error:
            pop.refused = str(error)
            return False
        pop.plans.append(plan)
        work.save()
        asked = f"campaign {record.id} of {record.by}"
        try:
            head = begin_rollout(
                self._context,
                plan=plan,
                owner=self._owner,
                requested_by=asked,
                approved=ring.approved,
                channel=record.channel,
                freezes=written(definition.gates.closed),
                shut=shut,
                ring=f"{record.id}/{ring.name}" if definition.gates.verdict == "pooled" else "",
            )
        except RefusedError as error:
            pop.refused = str(error)
            return False
        pop.rollout, pop.refused = head.id, ""
        self._begun.append({"rollout": head.id, "epoch": head.epoch})
        record.note(self._requested_by, f"{name} begins: rollout {pop.rollout}", self._owner)
        work.save()
        return True

    def _open(self, record: Record, ring: RingStep, definition: Ring) -> None:
        """Write down that a ring begins. Until its first rollout does, an approval can expire."""
        if not ring.begun:
            ring.approve(rings.approval_of(self._context, record, ring, definition.gates))
            ring.begun = clock.wall()
            approved = f", approved by {ring.approved_by}" if ring.approved_by else ""
            record.note(self._requested_by, f"ring {ring.name} begins{approved}", self._owner)

    def _plan(self, name: str, tuning: str, options: Options) -> str:
        """The digest of a new plan for a PoP that is free."""
        refuse_if_paused(self._context, name)
        refuse_held(self._context, name)
        made = plan_rollout(self._context, name, tuning, **asdict(options))
        return str(made["plan"])

    def _close(
        self, record: Record, ring: RingStep, definition: Ring, heads: Mapping[str, Head]
    ) -> str:
        """Leave a ring whose PoPs have all ended, if its verdict lets us."""
        held = rings.held_by(ring, heads)
        if held:
            return self._hold(record, "; ".join(f"{name}: {why}" for name, why in held.items()))
        verdict = rings.verdict_of(self._context, ring, definition.gates, heads)
        ring.verdict, ring.judged = encoded(verdict), clock.wall()
        alone = [f"; {name} {pop.alone}" for name, pop in ring.pops.items() if pop.alone]
        why = verdict.reason + "".join(alone)
        if verdict.decision is not Decision.PROMOTE and not ring.accepted:
            return self._hold(record, f"ring {ring.name}: {why}")
        ring.closed = clock.wall()
        accepted = f" (accepted by {ring.accepted})" if ring.accepted else ""
        record.note(self._requested_by, f"ring {ring.name} is closed{accepted}: {why}", self._owner)
        return self._complete(record) if record.present is None else record.history[-1].what

    def _complete(self, record: Record) -> str:
        record.become("complete", self._requested_by, "every ring is closed", self._owner)
        return record.history[-1].what

    def _hold(self, record: Record, why: str) -> str:
        record.become("held", self._requested_by, why, self._owner)
        return f"held: {why}"


def _goes_on(record: Record) -> bool:
    """Whether a step has something to do for a campaign."""
    lingers = record.state == "aborted" and not record.over
    owes = record.state == "held" and record.present is not None and _rules_out(record.present)
    return record.state == "running" or lingers or owes or reminds(record)


def _rules_out(ring: RingStep) -> bool:
    """Whether the verdict of a ring promotes none of its PoPs."""
    ruling = ring.ruling
    return ruling is not None and ruling.decision is not Decision.PROMOTE


def reminds(record: Record) -> bool:
    """Whether people are to hear again of a campaign that is held."""
    return record.state == "held" and clock.wall() - record.history[-1].at >= DAY


def _what(error: Exception) -> str:
    return str(error) if isinstance(error, EdgetuneError) else f"{type(error).__name__}: {error}"


def _under_way(record: Record, heads: Mapping[str, Head], awaiting: list[str]) -> list[str]:
    """The PoPs on which something goes on."""
    still = (*ENDED, State.HELD)
    return [
        name
        for name, pop in record.pops.items()
        if pop.rollout and not pop.left_out and name not in awaiting
        if heads[pop.rollout].state not in still
    ]


def _judged(ring: RingStep) -> str:
    return f"ring {ring.name}: {ring.verdict.get('reason', '')}"


def _progress(ring: RingStep, heads: Mapping[str, Head]) -> str:
    """How the PoPs of a ring stand, in one line."""
    parts = []
    for name, pop in ring.pops.items():
        state = heads[pop.rollout].state if pop.rollout in heads else ""
        said = (
            "left out" if pop.left_out else pop.alone or state or ("begun" if pop.rollout else "")
        )
        parts.append(f"{name} {said or pop.refused or 'waits for its turn'}")
    return f"ring {ring.name}: {'; '.join(parts)}"
