# SPDX-License-Identifier: Apache-2.0
"""May this process still act on a rollout: its claim, and the kill switch; and is anybody there.

One owner at a time holds the claim of a PoP, under an epoch. Each owner that follows has a larger
epoch, and hosts refuse what comes with a smaller one.

The kill switch is two keys in the store, read before every side effect:

edgetune.stop_all    set by anybody on call, also by hand: st2 key set edgetune.stop_all true
edgetune.resumed     set by edgetune alone: the one text of the other key that permits changes

Every text of the first key stops, but for the permit that ``resume_all`` wrote under both. So who
may write the first key alone can stop and not lift: another text, such as "false", is a stop, and
so is no text. A step that meets a stop takes the permit away, and no copy of it lifts that stop.

StackStorm tells how the execution stands that carries a rollout on:

| its status | what follows |
|---|---|
| requested, scheduled, delayed, running, resuming, canceling | an orphan once it is silent |
| pausing, paused, pending | a person decides: no orphan, and its claim is kept |
| succeeded, failed, timeout, canceled, abandoned | an orphan at once |
| not known | an orphan once it is silent |

Silent is an owner whose action gives no sign of life, or that made no step for ``owner_timeout``.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Callable, TypedDict

from edgetune import CAMPAIGN_SCHEMA, PACK, RECORD_SCHEMA
from edgetune.base import clock
from edgetune.base.documents.baseline import Baseline
from edgetune.base.documents.batch import Batch, batch_key
from edgetune.base.documents.head import Head, head_key
from edgetune.base.documents.look import Look
from edgetune.base.documents.reading import digest_of, read_document
from edgetune.base.documents.stackstorm import OwningExecution
from edgetune.base.errors import DamagedError, FencedError, InputError, RefusedError, StoreError
from edgetune.base.sanitize import command
from edgetune.net.traffic import DrainDriver
from edgetune.rollout.context import Context
from edgetune.rollout.record.rollout import Record, baseline_key, look_key, read_rollout
from edgetune.rollout.store.claims import Claim
from edgetune.rollout.store.heartbeat import SILENT
from edgetune.rollout.store.records import value_of
from edgetune.site.inventory import Host

if TYPE_CHECKING:
    from edgetune.net.result import HostResult


STOP_KEY = f"{PACK}.stop_all"
RESUMED_KEY = f"{PACK}.resumed"
# Until something was stopped or resumed for the first time there is no permit.
_OFF = ("", "false", "0", "no")


def stopped_by(context: Context) -> str:
    """Why everything is stopped; nothing while it is not."""
    text, value = (value_of(context.store, key) for key in (RESUMED_KEY, STOP_KEY))
    if text is None:
        why = (value or "").strip()
        return "" if why.lower() in _OFF else why
    permit, stop = _kept(text)
    if permit and value == permit:
        return ""
    given = (value or "").strip()
    if given.lower() in _OFF or given.startswith("resumed by "):
        lifts = f"{given or 'an empty or missing key'} lifts no stop"
        return f"{stop}; {lifts}" if stop else lifts
    return given


def refuse_if_stopped(context: Context) -> None:
    """RefusedError while everything is stopped."""
    why = stopped_by(context)
    if why:
        take_permit_away(context, why)
        permits = f"{command('resume_all')} permits changes"
        raise RefusedError(f"everything is stopped ({STOP_KEY}: {why}); {permits}")


def take_permit_away(context: Context, why: str) -> None:
    """Remember a stop where those who may only stop cannot write."""
    text = value_of(context.store, RESUMED_KEY)
    if text is not None and not _kept(text)[0]:
        return
    # The stop stands in any case; a user who may not write this key has stopped all the same.
    with contextlib.suppress(StoreError):
        keep_permit(context, "", why)


def keep_permit(context: Context, permit: str, stop: str) -> None:
    """Write the permit down, or the stop that took it away."""
    document = {"schema": CAMPAIGN_SCHEMA, "permit": permit, "stop": stop}
    context.store.put(RESUMED_KEY, json.dumps(document))


def _kept(text: str) -> tuple[str, str]:
    """The permit, and the stop that took it away; neither where the document is damaged."""
    try:
        document = read_document(RESUMED_KEY, text)
    except DamagedError as error:
        return "", str(error)
    permit, stop = document.get("permit"), document.get("stop")
    return permit if isinstance(permit, str) else "", stop if isinstance(stop, str) else ""


# How long a look at the kill switch and the claim holds for further side effects, in seconds.
_PERMIT_HOLDS = 1.0


class Rollout(Record):
    """A record that its owner changes, as long as nobody took the claim of its PoP over: each write
    renews the claim, and fails once it is lost."""

    def __init__(self, context: Context, head: Head) -> None:
        super().__init__(context, head)
        self._permitted_at = float("-inf")
        self._kept: dict[int, dict[str, object]] = {}

    @property
    def claim(self) -> Claim:
        """The claim this record's present epoch stands for."""
        return Claim(self.head.id, self.head.epoch)

    def renew(self) -> None:
        """Keep the claim; FencedError if somebody else owns the rollout by now, and who."""
        context, head = self.context, self.head
        try:
            context.claims.renew(head.pop, self.claim, context.config.claim_ttl)
        except FencedError as error:
            raise FencedError(f"{error}{_who_goes_on(context, head.id)}") from None

    def release(self) -> None:
        """Give the PoP of an ended rollout back.

        That takes ``claim_grace`` from where the rollout was taken from its owner: an action of
        that owner may still be running.
        """
        context, head = self.context, self.head
        grace = head.taken_over + context.config.claim_grace - clock.now()
        context.claims.release(head.pop, self.claim, max(0.0, grace))

    def permit(self) -> None:
        """To be called before every side effect: our claim still holds, nothing is stopped.

        FencedError if somebody else owns the rollout by now, RefusedError while everything is
        stopped; the claim is renewed.
        """
        if clock.monotonic() - self._permitted_at < _PERMIT_HOLDS:
            return
        self.renew()
        refuse_if_stopped(self.context)
        self._permitted_at = clock.monotonic()

    @property
    def load_balancer(self) -> DrainDriver:
        """What steers requests to the hosts; what it changes it does under our epoch."""
        return self.context.load_balancer(self.pop).under(self.head.epoch)

    def ask_hosts(
        self,
        names: Sequence[str],
        verb: str,
        request: Callable[[Host], Mapping[str, object]],
        timeout: float = 60,
        patient: bool = True,
    ) -> dict[str, HostResult]:
        """Have hosts change something, under our epoch and as long as it is permitted.

        A host that cannot be reached is asked again for ``health_deadline`` s: every verb can be
        repeated. ``patient`` False asks once.
        """

        def permitted(host: Host) -> dict[str, object]:
            self.permit()
            return {"epoch": self.head.epoch, **request(host)}

        patience = self.config.health_deadline if patient else 0
        return self.context.fleet.ask(self.hosts(names), verb, permitted, timeout, patience)

    def ask_bmcs(
        self, names: Sequence[str], verb: str, request: Callable[[Host], Mapping[str, object]]
    ) -> dict[str, HostResult]:
        """Ask the BMCs of hosts, as long as it is permitted, be it in the middle of it.

        In a rollback one BMC that refuses a login does not stop the others of its credentials name.
        """

        def permitted(host: Host) -> Mapping[str, object]:
            self.permit()
            return request(host)

        refusals = 2 if self.head.state == "rolling_back" else 1
        ask, hosts, permit = self.context.bmcs.ask, self.hosts(names), self.permit
        return ask(hosts, verb, permitted, permit=permit, refusals=refusals) if names else {}

    def save(self) -> None:
        """Write the head, as its owner only."""
        self.renew()
        self.context.store.put(head_key(self.head.id), self.head.document())

    def batch(self, number: int) -> Batch:
        """A batch, see ``Record.batch``; ``settle`` compares with it."""
        batch = super().batch(number)
        self._kept[number] = asdict(batch)
        return batch

    def save_batch(self, batch: Batch) -> None:
        """Write a batch's document, as its owner only."""
        self.renew()
        self.context.store.put(batch_key(self.head.id, batch.number), batch.document())
        self._kept[batch.number] = asdict(batch)

    def settle(self, batch: Batch) -> None:
        """The same, unless that would write what is written."""
        if asdict(batch) != self._kept.get(batch.number):
            self.save_batch(batch)

    def move(self, batch: Batch, names: Sequence[str], step: str) -> None:
        """Write down that these hosts are now at ``step``."""
        for name in names:
            batch.hosts[name].go(step)
        self.save_batch(batch)

    def save_baseline(self, baseline: Baseline) -> None:
        """Write the baseline's document."""
        self._save_document(baseline_key(self.head.id), baseline.document())

    def save_look(self, look: Look) -> None:
        """Write a look's document under its number."""
        self._save_document(look_key(self.head.id, look.number), look.document())

    def _save_document(self, key: str, body: Mapping[str, object]) -> None:
        document = json.loads(
            json.dumps({"schema": RECORD_SCHEMA, "rollout": self.head.id, **body})
        )
        self.context.store.put(key, json.dumps({**document, "digest": digest_of(document)}))


def as_owner(context: Context, rollout: str) -> Rollout:
    """A rollout to act on under the epoch of its record; the first write tells whether it holds.

    Errors as of ``read_rollout``.
    """
    return Rollout(context, read_rollout(context, rollout).head)


def open_rollout(context: Context, rollout: str, epoch: int) -> Rollout:
    """A rollout to act on, called before every side effect.

    FencedError if ``epoch`` is not the claim's any more, RefusedError while everything is
    stopped; the claim is renewed.
    """
    opened = as_owner(context, rollout)
    if epoch < opened.head.epoch:
        # Claims that lost their last write know nothing of who came later; the record does.
        lost = f"{rollout}, epoch {epoch}, has lost its claim on {opened.head.pop}"
        newer = f"its record is at epoch {opened.head.epoch}"
        raise FencedError(f"{lost}: {newer}{_goes_on(opened.head)}")
    opened.head.epoch = epoch
    opened.permit()
    return opened


def _who_goes_on(context: Context, rollout: str) -> str:
    """Who moved a rollout on since, for the line that tells somebody else that it ends there."""
    try:
        return _goes_on(read_rollout(context, rollout).head)
    except (InputError, RefusedError):
        return ""


def _goes_on(head: Head) -> str:
    return f"; {head.last_by} goes on with it ({head.state}), and nothing is left to do here"


def enter_state(opened: Rollout, state: str, owner: str, requested_by: str, reason: str) -> None:
    """Let a rollout enter a state under a new epoch; the caller saves it.

    RefusedError if that state cannot follow. Of two callers with the same epoch one wins, the
    other gets FencedError.
    """
    head, context = opened.head, opened.context
    before, epoch = head.state, head.epoch
    head.enter(state, requested_by, reason)
    ttl = context.config.claim_ttl
    head.epoch = context.claims.take(head.pop, head.id, ttl, after=epoch, above=epoch).epoch
    head.owner = owner or head.owner
    if state != before:
        head.recoveries = 0


class BatchesResult(TypedDict):
    """A rollout, its ``epoch``, and the batches of its state: from ``first_batch``, which is not
    finished, to before ``end_batch``. ``batches`` is how many it has, with those that are."""

    rollout: str
    epoch: int
    first_batch: int
    end_batch: int
    batches: int
    channel: str
    message: str


def batches_result(opened: Record, message: str) -> BatchesResult:
    """The result of an action that let a rollout enter its state."""
    head, numbers = opened.head, opened.numbers(opened.head.state)
    first, end = numbers.start, numbers.stop
    while first < end - 1 and opened.batch(first).finished:
        first += 1
    return {
        "rollout": head.id,
        "epoch": head.epoch,
        "first_batch": first,
        "end_batch": end,
        "batches": len(numbers),
        "channel": head.channel,
        "message": message,
    }


def idle_time(context: Context, pop: str) -> float:
    """Seconds since the owner of a PoP made its last step: each one renews the claim."""
    return idle_times(context, [pop])[pop]


def idle_times(context: Context, pops: Sequence[str]) -> dict[str, float]:
    """The same of several PoPs, all at one moment, so that they can be put in order."""
    left = context.claims.expiries(pops)
    return {pop: context.config.claim_ttl - left[pop] for pop in pops}


def owner_of(context: Context, head: Head) -> OwningExecution | None:
    """The execution that carries a rollout on, or did last.

    None where nobody has to carry it on, in the local runner, and where StackStorm does not know
    that execution. NoAnswerError where StackStorm does not answer.
    """
    if not (head.wants_a_workflow and head.owner and context.executions):
        return None
    return context.executions.owner(head.owner)


def is_orphaned(context: Context, head: Head) -> bool:
    """Whether somebody should be carrying the rollout on, and nobody is; errors as ``owner_of``."""
    if not head.wants_a_workflow:
        return False
    owner = owner_of(context, head)
    if owner and (owner.is_paused or owner.has_ended):
        return owner.has_ended
    try:
        interval: float = Record(context, head).plan.options.interval
    except RefusedError:
        # A damaged plan must not hide the other orphans.
        interval = 0
    idle = idle_time(context, head.pop)
    if idle >= context.config.claim_ttl or idle > context.config.owner_timeout + interval:
        return True
    if idle <= SILENT or not context.executions:
        return False
    return head.owner in context.executions.dead_workflows
