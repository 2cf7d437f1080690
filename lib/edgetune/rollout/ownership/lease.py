# SPDX-License-Identifier: Apache-2.0
"""May this process still act on a rollout: its claim, and the kill switch.

One owner at a time holds the claim of a PoP, under an epoch. Each owner that follows has a larger
epoch, and hosts refuse what comes with a smaller one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Callable, TypedDict

from edgetune import RECORD_SCHEMA
from edgetune.base import clock
from edgetune.base.documents.baseline import Baseline
from edgetune.base.documents.batch import Batch, batch_key
from edgetune.base.documents.head import Head, head_key
from edgetune.base.documents.look import Look
from edgetune.base.documents.reading import digest_of, encoded
from edgetune.base.errors import FencedError, InputError, RefusedError
from edgetune.net.traffic import DrainDriver
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.kill_switch import refuse_if_stopped
from edgetune.rollout.record.rollout import Record, baseline_key, look_key, read_rollout
from edgetune.rollout.store.claims import Claim
from edgetune.site.inventory import Host

if TYPE_CHECKING:
    from edgetune.net.result import HostResult


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
        self._kept[number] = encoded(batch)
        return batch

    def save_batch(self, batch: Batch) -> None:
        """Write a batch's document, as its owner only."""
        self.renew()
        self.context.store.put(batch_key(self.head.id, batch.number), batch.document())
        self._kept[batch.number] = encoded(batch)

    def settle(self, batch: Batch) -> None:
        """The same, unless that would write what is written."""
        if encoded(batch) != self._kept.get(batch.number):
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
