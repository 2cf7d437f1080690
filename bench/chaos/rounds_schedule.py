# SPDX-License-Identifier: Apache-2.0
"""What a seed decides about rounds of congestion control: what breaks, when, and how they end."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.chaos.schedule import HOSTS, SAME, Fault, Moment

BACK, SOURCE = "back", "source"
KINDS = {
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

OFTEN = ("action", "runner", "power", BACK)
SECONDS = {
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
    """Moments are those of ``schedule.Moment``, and events two more: a ``round`` begins, and a host
    is ``told`` another configuration."""

    seed: int
    ending: str
    faults: tuple[Fault, ...]


def make_rounds(seed: int) -> RoundsSchedule:
    """The same for the same seed."""
    draw = random.Random(f"rounds {seed}")
    ending = draw.choice(ENDINGS)
    kinds = draw.choices([*KINDS, *OFTEN], k=draw.choice((1, 2, 2, 3)))
    if set(kinds) >= NOT_BOTH:
        kinds = [kind for kind in kinds if kind != BACK]
    return RoundsSchedule(seed, ending, tuple(_fault(draw, kind) for kind in kinds))


def _fault(draw: random.Random, kind: str) -> Fault:
    event = draw.choice(("round", "told", "told"))
    first, last, after = MOMENTS[event]
    number = draw.randint(first, last)
    target = draw.choice(KINDS[kind])
    if target == SAME and event == "round":
        target = draw.choice(HOSTS)
    lasts = draw.uniform(*SECONDS.get(kind, (0.0, 0.0)))
    moment = Moment(event, number, round(draw.uniform(0.0, after), 2))
    return Fault(kind, target, moment, round(lasts, 1))
