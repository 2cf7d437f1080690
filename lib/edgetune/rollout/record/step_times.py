# SPDX-License-Identifier: Apache-2.0
"""How long the steps of a rollout took and how they failed, added to its record by each task.

The document is apart from those on which a rollout rests: no step reads it, and none fails for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Callable

from edgetune.base import clock
from edgetune.base.clock import Reading
from edgetune.base.dataclass import dataclass
from edgetune.base.documents import steps
from edgetune.base.errors import DamagedError, EdgetuneError, FencedError, StoreError
from edgetune.base.names import NAME
from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import has_record
from edgetune.rollout.store.records import value_of

PATIENCE = 5.0
"""Seconds that a task gives the store at its end; what is not written then is not counted."""

_AWAITS = {
    "check_drained": "check_drained",
    "check_rebooted": "check_rebooted",
    "wait_for_hosts": "check_rebooted",
}
"""By task, the step that waits for what the step before it began."""


@dataclass(frozen=True)
class _Taken:
    """One run of a step: the clocks when it ``began`` and ended, and why it failed, or "".

    Of one that ``waits`` the next task takes more. ``begins`` is what it began, or "".
    """

    name: str
    began: Reading
    ended: Reading
    failed: str = ""
    waits: bool = False
    begins: str = ""


class StepTimes:
    """The steps that one task took."""

    def __init__(self) -> None:
        self.taken: list[_Taken] = []
        self.is_lost = False

    def take(
        self,
        step: Callable[..., Mapping[str, object]],
        context: Context,
        given: Mapping[str, object],
    ) -> Mapping[str, object]:
        """Take a step, and see how long it takes and how it ends."""
        began = clock.reading()
        try:
            result = step(context, **given)
        except (StoreError, FencedError):
            # There is no record, or it is another owner's.
            self.is_lost = True
            raise
        except Exception as error:
            why = error.reason if isinstance(error, EdgetuneError) else ""
            self._note(step.__name__, began, why if why in steps.REASONS else "other", {})
            raise
        self._note(step.__name__, began, "failed" if result.get("failed") else "", result)
        return result

    def _note(self, name: str, began: Reading, failed: str, result: Mapping[str, object]) -> None:
        if name not in steps.STEPS or (not failed and _did_nothing(name, result)):
            return
        waits = name != "drain_hosts" and bool(result.get("waiting")) and not failed
        begins = "" if waits or failed else _AWAITS.get(str(result.get("next", "")), "")
        self.taken.append(_Taken(name, began, clock.reading(), failed, waits, begins))

    def add_to(self, kept: steps.StepsTaken) -> None:
        """Count them on top of those before."""
        for taken in self.taken:
            since = kept.awaited.setdefault(taken.name, taken.began)
            if taken.waits:
                continue
            del kept.awaited[taken.name]
            step = kept.steps.setdefault(taken.name, steps.StepTaken())
            step.count += 1
            # Seconds, whatever was done to the wall clock meanwhile.
            step.seconds = round(
                step.seconds + max(0.0, taken.ended.wall - since.wall - clock.shift_since(since)), 3
            )
            if taken.failed:
                step.failures[taken.failed] = step.failures.get(taken.failed, 0) + 1
            if taken.begins:
                kept.awaited[taken.begins] = taken.ended


@contextmanager
def counted(context: Context, given: Mapping[str, object]) -> Iterator[StepTimes]:
    """Within it a task takes its steps; at its end they stand in the record of the ``rollout`` that
    it was ``given``, unless its ``epoch`` is past."""
    times = StepTimes()
    try:
        yield times
    finally:
        rollout, epoch = str(given.get("rollout", "")), given.get("epoch", 0)
        is_id = re.fullmatch(NAME, rollout) and isinstance(epoch, int)
        if is_id and times.taken and not times.is_lost:
            # A store that hangs keeps no step from telling its result.
            writing = Thread(target=_write, args=(context, rollout, epoch, times), daemon=True)
            writing.start()
            writing.join(PATIENCE)


def _write(context: Context, rollout: str, epoch: int, times: StepTimes) -> None:
    began = clock.monotonic()
    with suppress(EdgetuneError):
        kept = steps_of(context, rollout)
        # A person may give an id that is none, and the step then fails.
        if not kept.steps and not has_record(context, rollout):
            return
        if epoch and epoch != kept.epoch:
            if epoch < kept.epoch:
                return
            # What another owner awaited ended at nobody knows when.
            kept.epoch, kept.awaited = epoch, {}
        times.add_to(kept)
        if clock.monotonic() - began < PATIENCE:
            context.store.put(steps.steps_key(rollout), kept.document())


def steps_of(context: Context, rollout: str) -> steps.StepsTaken:
    """The steps of a rollout until now; where they are damaged they are counted anew.

    StoreError if the store is away, RefusedError if a later version wrote them.
    """
    text = value_of(context.store, steps.steps_key(rollout))
    try:
        return steps.StepsTaken(rollout) if text is None else steps.read_steps(rollout, text)
    except DamagedError:
        return steps.StepsTaken(rollout)


def _did_nothing(name: str, result: Mapping[str, object]) -> bool:
    """Whether a batch may not begin yet, or a soak has no look to be taken."""
    if name == "drain_hosts":
        return result.get("next") in ("drain_hosts", "restore_live")
    return name == "compare_groups" and not result.get("verdict")
