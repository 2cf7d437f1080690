# SPDX-License-Identifier: Apache-2.0
"""What a seed decides: which rollout is run, what breaks, when, and who picks it up again."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace

HOSTS = ("e000", "e001", "e002", "e003")
MUST_SERVE = 2
SCENARIOS = {"harmful": 7, "interrupted": 7, "promoted": 4, "returned": 2}
"""Weights. harmful: a tuning that hurts is taken back by the judge; interrupted: one that helps is
taken back by hand in the middle; promoted: one that helps; returned: that, then taken back."""

SAME = "same"  # the host that the moment is about
NETWORK = ("balancer", "controller")
KINDS = {
    "action": ("once",),
    "runner": ("alone", "whole"),
    "agent": (SAME, SAME, *HOSTS),
    "sshd": (SAME, SAME, *HOSTS),
    "power": (SAME, SAME, SAME, SAME, *HOSTS),
    "balancer": ("reload", "forget", "kill"),
    "store": ("lock", "away"),
    "cut": (SAME, SAME, SAME, *HOSTS, *NETWORK, *NETWORK),
    "slow": (SAME, SAME, *HOSTS, *NETWORK, *NETWORK),
    "full": (SAME, SAME, SAME, *HOSTS),
    "stop": ("all",),
    "exchange": tuple("+".join(pair) for pair in itertools.combinations(HOSTS, 2)),
}
"""Each kind of fault with its targets. Those of the store are other ones with Redis; "exchange" is
of the addresses of two hosts in the inventory."""

OFTEN = ("power", "balancer", "store", "cut", "runner")
ALONE = "exchange"  # no other fault beside it could be told from it
SHARE_EXCHANGED = 0.08
REDIS_FAULTS = ("restart", "wipe")
# While everything is stopped nothing may change, so nothing is changed by us either.
BESIDE_STOP = ("action", "runner", "agent", "sshd")
SECONDS = {
    "power": (0.3, 7.0),
    "cut": (1.0, 8.0),
    "slow": (2.0, 8.0),
    "full": (2.0, 10.0),
    "store": (0.5, 6.0),
    "stop": (3.0, 6.0),
    "exchange": (5.0, 15.0),
}
NEVER_IN_TIME = 25.0  # longer than a host may take to come back
SHARE_NEVER_IN_TIME = 0.15


@dataclass(frozen=True)
class Moment:
    """`after` seconds from when an event is seen for the `number`-th time.

    Events: the "start" of it all; a server is set to "drain", to "maint", to "ready" again in the
    load balancer; a host begins to "boot".
    """

    event: str
    number: int
    after: float

    def __str__(self) -> str:
        return f"{self.after:.1f} s after {self.event} {self.number}"


@dataclass(frozen=True)
class Fault:
    """`target` is a host, a port, or what is done to it; `lasts` is in seconds, 0 at once over."""

    kind: str
    target: str
    moment: Moment
    lasts: float

    @property
    def before_the_plan(self) -> bool:
        """Whether it is of the inventory, and there before the rollout begins."""
        return self.kind == ALONE and self.moment.event == "start"

    def __str__(self) -> str:
        lasting = f" for {self.lasts:.1f} s" if self.lasts else ""
        return f"{self.kind} {self.target}{lasting}, {self.moment}"


@dataclass(frozen=True)
class Schedule:
    """`by_hand` is when a person calls roll_back_pop; `resume` is who acts when an owner died:
    a "person" once, or the rule's "recovery" alone.
    """

    seed: int
    scenario: str
    test_fraction: float
    coordination: str
    resume: str
    by_hand: Moment | None
    faults: tuple[Fault, ...]

    @property
    def tuning(self) -> str:
        return "tiny_accept_queue" if self.scenario == "harmful" else "accept_queue"

    @property
    def reboots(self) -> bool:
        """Whether the tuning asks for reboots."""
        return self.tuning == "accept_queue"

    @property
    def visits(self) -> int:
        """How often a host is taken out of traffic, about, if nothing fails."""
        test = round(len(HOSTS) * self.test_fraction)
        if self.by_hand is not None:
            return self.by_hand.number + 1
        return {"harmful": 2 * test, "promoted": test + len(HOSTS)}.get(
            self.scenario, test + 2 * len(HOSTS)
        )


def make_schedule(seed: int) -> Schedule:
    """The same for the same seed."""
    draw = random.Random(seed)
    scenario = draw.choices(list(SCENARIOS), list(SCENARIOS.values()))[0]
    schedule = Schedule(
        seed=seed,
        scenario=scenario,
        test_fraction=draw.choice((0.25, 0.5)),
        coordination=draw.choice(("sqlite", "redis")),
        resume=draw.choice(("person", "recovery")),
        by_hand=None,
        faults=(),
    )
    if scenario == "interrupted":
        schedule = replace(schedule, by_hand=_moment(draw, schedule, 2))
    schedule = replace(schedule, faults=_faults(draw, schedule))
    return _exchanged(_met_later(schedule))


def _met_later(schedule: Schedule) -> Schedule:
    """One fault at least comes after the start: before the first drain none can meet a host that
    the rollout has in its hands, and the seed would never count."""
    draw = random.Random(f"later {schedule.seed}")
    *others, last = schedule.faults
    while all(fault.moment.event == "start" for fault in (*others, last)):
        last = replace(last, moment=_moment(draw, schedule, schedule.visits))
    return replace(schedule, faults=(*others, last))


def _exchanged(schedule: Schedule) -> Schedule:
    """Some seeds have exchanged addresses in place of what else they drew: half of these before
    the plan is made, half while the first batches are changed."""
    draw = random.Random(f"{ALONE} {schedule.seed}")
    if draw.random() >= SHARE_EXCHANGED:
        return schedule
    target = draw.choice(KINDS[ALONE])
    lasts = round(draw.uniform(*SECONDS[ALONE]), 1)
    if draw.random() < 0.5:
        fault = Fault(ALONE, target, Moment("start", 1, 0.0), 0.0)
        return replace(schedule, by_hand=None, faults=(fault,))
    moment = Moment(draw.choice(("drain", "maint", "ready")), 1, round(draw.uniform(0.0, 2.0), 2))
    return replace(schedule, by_hand=None, faults=(Fault(ALONE, target, moment, lasts),))


def _faults(draw: random.Random, bare: Schedule) -> tuple[Fault, ...]:
    drawn = [kind for kind in KINDS if kind != ALONE]
    kinds = draw.choices([*drawn, *OFTEN], k=draw.choice((1, 2, 2, 3, 3)))
    if "stop" in kinds:
        beside = [kind for kind in kinds if kind in BESIDE_STOP]
        kinds = ["stop", *beside]
    return tuple(_fault(draw, bare, kind) for kind in kinds)


def _fault(draw: random.Random, bare: Schedule, kind: str) -> Fault:
    redis = kind == "store" and bare.coordination == "redis" and draw.random() < 0.7
    target = draw.choice(REDIS_FAULTS if redis else KINDS[kind])
    moment = _moment(draw, bare, bare.visits)
    if target == SAME and moment.event == "start":
        target = draw.choice(HOSTS)
    lasts = draw.uniform(*SECONDS.get(kind, (0.0, 0.0)))
    if kind == "power" and draw.random() < SHARE_NEVER_IN_TIME:
        lasts = NEVER_IN_TIME
    return Fault(kind, target, moment, round(lasts, 1))


def _moment(draw: random.Random, bare: Schedule, last: int) -> Moment:
    """Spread over baseline, drain, change, reboot, verification, undrain and what comes then."""
    number = draw.randint(1, last)
    booting = ("boot", number, (0.0, 2.5)) if bare.reboots else ("maint", number, (0.5, 2.0))
    event, count, between = draw.choice(
        (
            ("start", 1, (1.0, 6.0)),
            ("drain", number, (0.0, 2.5)),
            ("maint", number, (0.0, 0.8)),
            ("maint", number, (0.6, 2.2)),
            booting,
            ("ready", number, (0.0, 1.0)),
            ("ready", number, (0.5, 6.0)),
        )
    )
    return Moment(event, count, round(draw.uniform(*between), 2))


# Rounds of congestion control: what breaks, when, and how they end.

BACK, SOURCE = "back", "source"
ROUNDS_KINDS = {
    "action": ("once",),
    "runner": ("whole", "alone"),
    "agent": (SAME, *HOSTS),
    "sshd": (SAME, *HOSTS),
    "power": (SAME, SAME, *HOSTS),
    "cut": (SAME, *HOSTS, "controller"),
    "full": (SAME, *HOSTS),
    "stop": ("all",),
    BACK: ("all",),
    SOURCE: ("away",),
}
"""Each kind of fault with its targets. ``back`` is a person who takes everything back in the
middle, and lets it go on; of ``source``, that which sockets are read through is away."""

ROUNDS_OFTEN = ("action", "runner", "power", BACK)
ROUNDS_SECONDS = {
    "power": (0.3, 5.0),
    "cut": (1.0, 8.0),
    "full": (2.0, 8.0),
    "stop": (5.0, 7.0),
    BACK: (0.5, 4.0),
    SOURCE: (2.0, 6.0),
}
# A rollback is refused while all is stopped, and nobody here asks for it again.
NOT_BOTH = {"stop", BACK}
EXPIRED, TAKEN_BACK = "expired", "rolled_back"
ENDINGS = (EXPIRED, TAKEN_BACK)
"""How nothing of ours comes to be left: nobody renews it, or a person takes it back."""

MOMENTS = {"round": (2, 4, 2.5), "told": (1, 10, 0.5)}
"""Which round, and which host that is told another configuration, and how long after it at most:
those come in any run, and before the second round nothing is chosen."""


@dataclass(frozen=True)
class RoundsSchedule:
    """Moments are those of ``Moment``, and events two more: a ``round`` begins, and a host
    is ``told`` another configuration."""

    seed: int
    ending: str
    faults: tuple[Fault, ...]


def make_rounds(seed: int) -> RoundsSchedule:
    """The same for the same seed."""
    draw = random.Random(f"rounds {seed}")
    ending = draw.choice(ENDINGS)
    kinds = draw.choices([*ROUNDS_KINDS, *ROUNDS_OFTEN], k=draw.choice((1, 2, 2, 3)))
    if set(kinds) >= NOT_BOTH:
        kinds = [kind for kind in kinds if kind != BACK]
    return RoundsSchedule(seed, ending, tuple(_fault_of_rounds(draw, kind) for kind in kinds))


def _fault_of_rounds(draw: random.Random, kind: str) -> Fault:
    event = draw.choice(("round", "told", "told"))
    first, last, after = MOMENTS[event]
    number = draw.randint(first, last)
    target = draw.choice(ROUNDS_KINDS[kind])
    if target == SAME and event == "round":
        target = draw.choice(HOSTS)
    lasts = draw.uniform(*ROUNDS_SECONDS.get(kind, (0.0, 0.0)))
    moment = Moment(event, number, round(draw.uniform(0.0, after), 2))
    return Fault(kind, target, moment, round(lasts, 1))
