# SPDX-License-Identifier: Apache-2.0
"""A rollout as a whole: who, what, state, epoch, history; its phases, and how its batches count.

edgetune.rollout.ID    while it is under way, and until the next one of its PoP begins
edgetune.archive.ID    afterwards
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import field
from itertools import groupby

from edgetune import PACK, RECORD_SCHEMA
from edgetune.base import clock
from edgetune.base.clock import Reading, shifted
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.capacity import CapacityRatio
from edgetune.base.documents.look import Conclusion
from edgetune.base.documents.plan import Plan
from edgetune.base.documents.reading import check_is, decoded, encoded
from edgetune.base.documents.schema import read_versioned
from edgetune.base.documents.words import State
from edgetune.base.durations import utc
from edgetune.base.errors import DamagedError, RefusedError
from edgetune.base.freezes import in_force, read_written
from edgetune.base.names import NAME
from edgetune.base.sanitize import shortened

FORWARD = {
    "claimed": ("baseline", "rolling_back"),
    "baseline": ("baseline", "changing", "rolling_back"),
    "changing": ("changing", "soaking", "rolling_back"),
    "soaking": ("soaking", "promoting", "held", "rolling_back"),
    "held": ("soaking", "promoting", "rolling_back"),
    "promoting": ("promoting", "complete", "rolling_back"),
    "complete": ("rolling_back", "handing_over"),
    "rolling_back": ("rolling_back", "rolled_back"),
    "rolled_back": (),
    "handing_over": ("handing_over", "handed_over"),
    "handed_over": (),
}
"""Which states may follow which; entering the present one again carries it on."""

ENDED = ("complete", "rolled_back", "handed_over")
PROMOTED = ("complete", "handing_over", "handed_over")
"""Every host of its plan was changed, and the changes stand."""
CHANGES_HOSTS = ("changing", "promoting", "rolling_back")
CARRIED_ON_BY_A_WORKFLOW = ("claimed", "baseline", *CHANGES_HOSTS)

ID = re.compile(rf"({NAME})-(\d{{8}}T\d{{6}})-[0-9a-f]{{4}}")
"""Ids of rollouts: the PoP, when it was claimed (UTC), and four digits of chance."""
LARGEST_EPOCH = 10**12
# Characters of a reason in the history: it may name every host of a batch.
_LONGEST_REASON = 2_000
_MOST_DOCUMENTS = 100_000

_STILL = (State.HELD, State.COMPLETE, State.ROLLED_BACK, State.HANDED_OVER)


@dataclass(frozen=True)
class Entry:
    """Who (``by``) moved a rollout into a ``state`` or said something in it, and why.

    ``at`` is in epoch seconds.
    """

    at: float
    state: str
    by: str
    reason: str

    @property
    def told(self) -> str:
        """The reason, and who gave it; the steps of a workflow name nobody."""
        who = f" ({self.by})" if self.by else ""
        return self.reason if who and self.reason.endswith(who) else self.reason + who


@dataclass
class Quarantine:
    """Why a host is quarantined: ``since`` when (epoch seconds), in which ``batch`` at which
    ``step``, its last known ``boot_id`` and state in the ``load_balancer`` before, and what its
    ``bmc`` said.

    ``out_of_service`` says whether the load balancer was seen to send it nothing, ``seen`` in
    words, and ``noted`` what hinders that. What is None, version 0.6 did not write down.
    """

    reason: str
    since: float | None = None
    batch: int | None = None
    step: str | None = None
    boot_id: str | None = None
    load_balancer: str | None = None
    bmc: dict[str, object] = field(default_factory=dict)
    out_of_service: bool | None = None
    seen: str = ""
    noted: str = ""


@dataclass(frozen=True)
class Approved:
    """Who approved a rollout (``by``, empty: nobody had to), when (epoch seconds), and why.

    ``at`` is 0, and ``reason`` empty, where they were not written down.
    """

    by: str = ""
    at: float = 0.0
    reason: str = ""


@dataclass
class Lent:
    """The weight that a server had ``before`` it was lent others, and those ``given`` in turn: it
    may have any of these, wherever a process died."""

    before: int
    given: list[int] = field(default_factory=list)


@dataclass
class Measuring:
    """A measurement of capacity that is under way, by the execution ``owner``; ``lent`` has the
    weights by host.

    It puts ``until`` (epoch seconds) off with each step. From then on it has no owner, and whoever
    acts on the rollout next returns the weights.
    """

    until: float
    lent: dict[str, Lent] = field(default_factory=dict)
    owner: str = ""


@dataclass
class Head:
    """The rollout as a whole; ``baseline`` and ``soak`` are [start, end] in epoch seconds,
    ``usual_load`` is the most packets per second that the PoP took during the baseline,
    ``first_look`` the number of the present soak's first look, ``verdict`` what the newest one came
    to (None before), ``channel`` where in chat it was asked for (see
    ``rollout.chat_thread``).

    ``approved`` tells of the approval of its plan, or of its ring of a campaign; None where an
    earlier version did not write it down. ``ring`` is the ring of a campaign (``CAMPAIGN/RING``)
    whose one test decides it at the end of its soak; empty where its own looks do.

    ``wait`` says that its workflow stays until the end of the soak, ``taken_over`` when it was
    last taken from a workflow that may have an action running still, ``recoveries`` how often
    its owner died in the present state, ``only`` which hosts a rollback visits (empty: all).
    During ``freezes`` no batch begins. ``clock`` was read when it was last written. ``measuring``
    is there while the capacity of its hosts is measured, and ``capacity`` is what that came to the
    last time: None where that is not known (see ``documents.capacity``).
    """

    id: str
    pop: str
    tuning: str
    plan: str
    state: str
    epoch: int
    owner: str
    by: str
    created: float
    channel: str = ""
    baseline: list[float] = field(default_factory=list)
    soak: list[float] = field(default_factory=list)
    usual_load: float = 0.0
    looks: int = 0
    first_look: int = 0
    verdict: Conclusion | None = None
    first_restore: int = 0
    restore_batches: int = 0
    quarantined: dict[str, Quarantine] = field(default_factory=dict)
    wait: bool = False
    taken_over: float = 0.0
    freezes: list[dict[str, object]] = field(default_factory=list)
    recoveries: int = 0
    only: list[str] = field(default_factory=list)
    history: list[Entry] = field(default_factory=list)
    clock: Reading | None = None
    approved: Approved | None = None
    ring: str = ""
    measuring: Measuring | None = None
    capacity: CapacityRatio | None = None

    def enter(self, state: str, by: str, reason: str) -> None:
        """Change the state; RefusedError if it cannot follow the present one."""
        if state not in self.may_become:
            raise RefusedError(f"rollout {self.id} is {self.state}; it cannot become {state}")
        self.state = state
        self.note(by, reason)

    @property
    def may_become(self) -> tuple[str, ...]:
        """The states that may follow; what is rolled back is so again for quarantined hosts."""
        if self.state == "rolled_back" and self.quarantined:
            return ("rolling_back",)
        return FORWARD[self.state]

    @property
    def is_at_rest(self) -> bool:
        """Whether it has ended, and nothing is left to do."""
        return self.state in ENDED and not self.quarantined

    @property
    def cause(self) -> str:
        """Why it was taken back the last time, or is; empty if it never was."""
        causes = [run[0].told for run in runs(self.history) if run[0].state == "rolling_back"]
        return causes[-1] if causes else ""

    @property
    def handed_over(self) -> str:
        """That it was left, or is being left, to the PoP's own people; empty if it is not."""
        if self.state == State.HANDING_OVER:
            return f"rollout {self.id} is being handed over: nothing is to be taken back"
        if self.state != State.HANDED_OVER:
            return ""
        when = utc(self.history[-1].at)
        return f"rollout {self.id} was handed over at {when}: nothing is to be taken back"

    @property
    def wants_a_workflow(self) -> bool:
        """Whether somebody should be carrying it on."""
        waits = self.state == "soaking" and self.wait
        return waits or self.state in CARRIED_ON_BY_A_WORKFLOW

    def is_measured_by(self, execution: str) -> bool:
        """Whether that execution measures its capacity."""
        return bool(execution) and self.measuring is not None and self.measuring.owner == execution

    def left_measuring(self, now: float) -> bool:
        """Whether nobody goes on with the measurement of its capacity, while weights are lent."""
        return self.measuring is not None and self.measuring.until <= now

    def note(self, by: str, reason: str) -> None:
        """Write down who did or decided what."""
        shown = shortened(reason, _LONGEST_REASON)
        self.history.append(Entry(clock.wall(), self.state, shortened(by), shown))

    @property
    def last_by(self) -> str:
        """The person, rule or workflow that took it last; steps of its workflow name none."""
        return next((entry.by for entry in reversed(self.history) if entry.by), "unknown")

    def document(self) -> str:
        """As it is stored, with the time."""
        self.clock = clock.reading()
        return json.dumps({"schema": RECORD_SCHEMA, **encoded(self)})


def head_key(rollout: str) -> str:
    """The key of a head; without an id what the keys of all begin with."""
    return f"{PACK}.rollout.{rollout}"


def archive_key(rollout: str) -> str:
    """The same of a head in the archive."""
    return f"{PACK}.archive.{rollout}"


def read_head(rollout: str, text: str, archived: bool = False) -> Head:
    """A stored head; DamagedError if it is none, RefusedError if a later version wrote it."""
    key = archive_key(rollout) if archived else head_key(rollout)
    head = decoded(key, Head, read_versioned(key, text))
    # No step of a batch writes the head again. So in another boot the moment stays where it is: a
    # shift that is worked out anew at each read would move it along with the present.
    here = head.clock is not None and clock.is_of_this_boot(head.clock)
    head.taken_over = shifted(head.taken_over, clock.shift_since(head.clock) if here else 0.0)
    named = ID.fullmatch(rollout)
    check_is(key, "id", head.id == rollout, "is that of another rollout")
    check_is(key, "pop", named is None or named[1] == head.pop, "is not that of the id")
    check_is(key, "pop", bool(re.fullmatch(NAME, head.pop)), "is no name")
    check_is(key, "state", head.state in FORWARD, f"is none of {', '.join(FORWARD)}")
    check_is(key, "epoch", 0 < head.epoch <= LARGEST_EPOCH, "is no epoch")
    for name in ("baseline", "soak"):
        span = getattr(head, name)
        check_is(key, name, not span or (len(span) == 2 and span[0] <= span[1]), "is no span")
    for name in ("looks", "first_look", "first_restore", "restore_batches", "recoveries"):
        check_is(key, name, 0 <= getattr(head, name) <= _MOST_DOCUMENTS, "is out of range")
    _check_shown(key, head)
    try:
        # At a moment on each day of the week.
        for day in range(7):
            in_force(read_written(head.freezes), day * 86400.0)
    except (TypeError, ValueError, KeyError, ArithmeticError, OSError):
        raise DamagedError(key, "freezes", "holds what is no freeze") from None
    return head


def _check_shown(key: str, head: Head) -> None:
    """What people are shown of a rollout holds what its text takes from it."""
    interval = head.capacity.interval if head.capacity else None
    check_is(key, "capacity", interval is None or len(interval) == 2, "holds what is no interval")
    for host, why in head.quarantined.items():
        named = f"quarantined.{host}"
        both = (why.step is None) == (why.batch is None)
        check_is(key, named, both, "tells no step of a batch")
        events = why.bmc.get("events", [])
        good = type(events) is list and all(type(event) is dict for event in events)
        check_is(key, f"{named}.bmc", good, "tells no events")


def numbers_of(head: Head, plan: Plan, state: str) -> range:
    """Numbers of the batches that a rollout takes in a state."""
    changes, planned = len(plan.batches), len(plan.every_batch)
    return {
        "changing": range(changes),
        "promoting": range(changes, planned),
        "rolling_back": range(head.first_restore, planned + head.restore_batches),
    }.get(state, range(0))


def batch_name(head: Head, plan: Plan, number: int) -> str:
    """A batch as people count: ``batch 2 of 4`` of those of the state that takes it.

    One of an earlier way back is counted with those of the plan, and not of how many.
    """
    for state in CHANGES_HOSTS:
        numbers = numbers_of(head, plan, state)
        if number in numbers:
            return f"batch {number - numbers.start + 1} of {len(numbers)}"
    return f"batch {number + 1}"


@dataclass(frozen=True)
class Phase:
    """A part of a rollout: the state it was in, from when to when."""

    state: str
    start: float
    end: float


def phases(history: Sequence[Entry], now: float) -> list[Phase]:
    """All of them in order. One in which nothing happens any more has no length."""
    begun = [run[0] for run in runs(history)]
    newest = begun[-1]
    last = newest.at if newest.state in _STILL else max(now, newest.at)
    ends = [*(entry.at for entry in begun[1:]), last]
    return [Phase(entry.state, entry.at, end) for entry, end in zip(begun, ends)]


def runs(history: Sequence[Entry]) -> list[list[Entry]]:
    """The entries of each stay in a state."""
    return [list(run) for _, run in groupby(history, key=lambda entry: entry.state)]
