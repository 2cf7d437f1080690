# SPDX-License-Identifier: Apache-2.0
"""The record of a rollout: small documents that outlive every workflow.

edgetune.plan.DIGEST            the plan (``documents.plan``)
edgetune.rollout.ID             the head: who, what, state, epoch, history (``documents.head``);
                                once it has ended, it leaves for the archive (``archive``)
edgetune.baseline.ID            what was measured before anything was changed
edgetune.batch.ID.NUMBER        one batch: where each host stands (``documents.batch``)
edgetune.look.ID.NUMBER         one look: what was counted since the last one, and the verdict

Here they are read. Only the owner of the rollout's claim writes them (``lease``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Callable

from edgetune import PACK
from edgetune.base.documents.baseline import Baseline, read_baseline
from edgetune.base.documents.batch import (
    SETTLED_STEPS,
    Batch,
    HostStep,
    Wait,
    batch_key,
    read_batch,
)
from edgetune.base.documents.head import PROMOTED, Head, batch_name, head_key, numbers_of, read_head
from edgetune.base.documents.look import Look, read_look
from edgetune.base.documents.plan import Plan, read_plan
from edgetune.base.documents.reading import check_is, digest_of, read_document
from edgetune.base.documents.schema import refuse_schema
from edgetune.base.errors import InputError, RefusedError
from edgetune.base.names import NAME
from edgetune.intent.plan import settings_by_bmc
from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import find_text, is_released, read_all_heads
from edgetune.rollout.record.kept_inventory import pop_of_rollout
from edgetune.site.config import Config
from edgetune.site.inventory import Host, Pop

if TYPE_CHECKING:
    from edgetune.net.result import HostResult


class Record:
    """What is known of one rollout: its head, plan, PoP, batches, baseline and looks."""

    def __init__(self, context: Context, head: Head) -> None:
        self.context = context
        self.head = head

    @property
    def config(self) -> Config:
        """The configuration that it is looked at with."""
        return self.context.config

    @cached_property
    def plan(self) -> Plan:
        """The plan that is being carried out."""
        return load_plan(self.context, self.head.plan)

    @cached_property
    def drains(self) -> bool:
        """Whether hosts are drained. What was rolled out later may be suspended for it."""
        if self.head.state not in (*PROMOTED, "rolling_back", "rolled_back"):
            # While it goes forward none begins after it.
            return self.plan.disruption != "live"
        goes_back = self.head.state == "rolling_back"
        if goes_back and self.sets_bios:
            # A BIOS that held all of it already may go back now: a tuning below it is gone.
            return True
        heads, unreadable = read_all_heads(self.context, self.head.pop)
        above = [each for each in unreadable if goes_back and each.may_stand_on(self.head)]
        if not all(is_released(self.context, each) for each in above):
            # It may be one that drains.
            return True
        later = [head for head in heads if head.created > self.head.created]
        standing = [head for head in later if head.state == "complete"]
        plans = [self.plan, *(load_plan(self.context, head.plan) for head in standing)]
        return any(plan.disruption != "live" for plan in plans)

    @cached_property
    def pop(self) -> Pop:
        """The PoP as the inventory has it now, with the hosts that it had for the plan."""
        return pop_of_rollout(self.context, self.head.plan, self.head.pop)

    @cached_property
    def sets_bios(self) -> bool:
        """Whether the BIOS of hosts is looked after, be it as wanted already."""
        rows = [row for profile in self.plan.profiles for row in profile.before]
        return bool(settings_by_bmc(rows))

    def hosts(self, names: Sequence[str]) -> list[Host]:
        """The inventory's hosts of these names."""
        return [self.pop.host(name) for name in names]

    def ask(
        self,
        names: Sequence[str],
        verb: str,
        request: Callable[[Host], Mapping[str, object]] = lambda host: {},
        timeout: float = 60,
        patience: float = 0,
    ) -> dict[str, HostResult]:
        """Ask the agents of hosts something that changes nothing, as ``Fleet.ask`` does."""
        return self.context.fleet.ask(self.hosts(names), verb, request, timeout, patience)

    def numbers(self, state: str) -> range:
        """Numbers of the batches that are taken in a state."""
        return numbers_of(self.head, self.plan, state)

    def name_of(self, batch: Batch) -> str:
        """A batch as people count, such as ``batch 2 of 4``."""
        return batch_name(self.head, self.plan, batch.number)

    def batches(self) -> Iterator[Batch]:
        """Every batch there is or will be, the planned ones first."""
        planned = len(self.plan.every_batch)
        kept = self.context.store.list(batch_key(self.head.id))
        for number in range(planned + self.head.restore_batches):
            yield self._batch(number, kept.get(batch_key(self.head.id, number)))

    @property
    def begun_batches(self) -> list[Batch]:
        """Those that have a document, the planned ones first; the plan is not read.

        DamagedError if one cannot be read, or one of a rollback is missing.
        """
        start = batch_key(self.head.id)
        kept = self.context.store.list(start)
        texts = {key[len(start) :]: text for key, text in kept.items()}
        numbers = sorted(int(number) for number in texts if number.isdecimal())
        batches = [read_batch(self.head.id, number, texts[str(number)]) for number in numbers]
        planned = [batch for batch in batches if batch.batch_type != "restore"]
        # A rollback that died before it had written the head may have left more of them.
        restored = batches[len(planned) :][: self.head.restore_batches]
        whole = len(restored) == self.head.restore_batches
        check_is(head_key(self.head.id), "restore_batches", whole, "counts more than there are")
        return [*planned, *restored]

    def batch(self, number: int) -> Batch:
        """A batch as its document has it, or as planned.

        InputError if there is none, DamagedError if its document cannot be read.
        """
        return self._batch(number, self.context.store.get(batch_key(self.head.id, number)))

    def _batch(self, number: int, text: str | None) -> Batch:
        if text is not None:
            return read_batch(self.head.id, number, text)
        planned = self.plan.every_batch
        if not 0 <= number < len(planned):
            raise InputError("parameter", "batch", f"rollout {self.head.id} has no batch {number}")
        planned_batch, reboot = planned[number], self.plan.reboots
        hosts = {host: HostStep(reboot=reboot) for host in planned_batch.hosts}
        return Batch(self.head.id, number, planned_batch.batch_type, planned_batch.group, hosts)

    @property
    def wait(self) -> Wait | None:
        """What the present state waits for, if it waits."""
        numbers = self.numbers(self.head.state)
        waits = [batch.wait for batch in self.batches() if batch.number in numbers and batch.wait]
        return waits[-1] if waits else None

    def baseline(self) -> Baseline | None:
        """The baseline, None before it was measured; DamagedError if it is damaged."""
        key = baseline_key(self.head.id)
        document = self._document(key)
        return None if document is None else read_baseline(key, document)

    def look(self, number: int) -> Look:
        """A look; RefusedError if it is not there, DamagedError if it is damaged."""
        key = look_key(self.head.id, number)
        document = self._document(key)
        if document is None:
            raise RefusedError(f"the record of rollout {self.head.id} lacks look {number}")
        return read_look(key, document)

    def _document(self, key: str) -> dict[str, Any] | None:
        """What is stored there, without what tells that it is whole and of this rollout."""
        text = self.context.store.get(key)
        if text is None:
            return None
        document = read_document(key, text)
        refuse_schema(key, document.get("schema"))
        digest = document.pop("digest", None)
        # Earlier versions wrote none.
        good = digest in (None, digest_of(document)) and document.get("rollout") == self.head.id
        check_is(key, "digest", good, "is of another document")
        return {n: value for n, value in document.items() if n not in ("schema", "rollout")}


def baseline_key(rollout: str) -> str:
    """The key of a baseline."""
    return f"{PACK}.baseline.{rollout}"


def look_key(rollout: str, number: int) -> str:
    """The key of a look."""
    return f"{PACK}.look.{rollout}.{number}"


def load_plan(context: Context, digest: str) -> Plan:
    """A stored plan; RefusedError if it is not there or damaged."""
    known = re.fullmatch(r"sha256:[0-9a-f]{16}", digest)
    return read_plan(context.store.get(f"{PACK}.plan.{digest}") if known else None, digest)


def save_plan(context: Context, plan: Plan) -> None:
    """Keep a plan under its digest."""
    context.store.put(f"{PACK}.plan.{plan.digest}", json.dumps(plan.document()))


def read_rollout(context: Context, rollout: str) -> Record:
    """A rollout to look at; InputError if there is none of that id, DamagedError if the head
    cannot be read."""
    # What is no name at all is never made a part of a key or of a URL.
    place = find_text(context, rollout) if re.fullmatch(NAME, rollout) else None
    if place is None:
        raise InputError("parameter", "rollout", f"there is no rollout {rollout!r}")
    text, archived = place
    return Record(context, read_head(rollout, text, archived))


def failures_text(opened: Record) -> Iterator[str]:
    """Each host that failed its batch: batch, name, the step where it stands, error."""
    for batch in opened.batches():
        for name, error in batch.failures.items():
            yield f"{opened.name_of(batch)}: {name} ({batch.hosts[name].step}): {error}"


def under_way(batches: Iterable[Batch]) -> Iterator[tuple[str, HostStep]]:
    """Hosts that a batch has in hand, with where each stands."""
    for batch in batches:
        for name, host in batch.hosts.items():
            if host.step not in (*SETTLED_STEPS, "planned"):
                yield name, host


def in_hand(context: Context, head: Head) -> list[str]:
    """Hosts that a rollout has in the middle of a change, or in quarantine; DamagedError if its
    record does not tell."""
    batches = Record(context, head).begun_batches
    return [*(name for name, _ in under_way(batches)), *head.quarantined]


def out_of_service(batches: Iterable[Batch]) -> list[str]:
    """Hosts that a rollout took out of service and has not put back, by its record; a record is
    written before what it names is done."""
    out: dict[str, bool] = {}
    for batch in batches:
        for name, host in batch.hosts.items():
            drained = host.lb_before is not None or host.step == "quarantined"
            if drained or host.step in ("done", "skipped"):
                out[name] = drained and host.step not in ("done", "skipped")
    return [name for name, is_out in out.items() if is_out]
