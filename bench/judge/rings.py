# SPDX-License-Identifier: Apache-2.0
"""Campaigns over rings of small PoPs: each judged alone, and all by the one test of their ring.

python -m bench.judge.rings [CAMPAIGNS]

A PoP has 4 test and 4 control hosts, as in the scenario `few`, and four looks. Alone it is taken
back or promoted by its own; in a pooled ring those that were not taken back wait, and the test of
the ring decides. A campaign stops where its ring confirms the harm of PoPs that were taken back.
What its PoPs showed is expected of one PoP more, which should surprise nobody, and of one where the
effect is another one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from unittest import mock

import numpy as np

from bench._table import print_table
from bench.judge.figures import holds, wilson
from bench.judge.production import ALPHA, METRIC, begun, soak_windows, take_looks
from bench.judge.scenarios import SCENARIOS, draw
from edgetune.base.documents.effect import KeptEffect
from edgetune.base.documents.look import Look
from edgetune.base.documents.plan import Intent
from edgetune.base.documents.words import Decision
from edgetune.judge import ring as ring_judge
from edgetune.judge.comparison import Comparison
from edgetune.judge.effects import expected, parts_of
from edgetune.judge.multiplicity import view_of_harm
from edgetune.judge.ring import PopRecord, decide_ring
from edgetune.judge.surprise import surprise

POPS = (5, 20, 50)
LOOKS = 4
TRUTHS: Mapping[str, tuple[float, float]] = {
    "no effect": (1.0, 0.0),
    "x0.8": (0.8, 0.0),
    "x0.8, PoPs differ": (0.8, 0.15),
    "x1.25": (1.25, 0.0),
}
"""The ratio of an effect, and how much its logarithm differs from PoP to PoP."""
OFF = 2.0
"""How many times the effect that was to be expected."""


@dataclass
class Found:
    """How many campaigns there were and PoPs in them, and in how many something came to pass."""

    pops: int
    truth: str
    campaigns: int = 0
    alone: int = 0
    all_alone: int = 0
    taken_back: int = 0
    any_taken_back: int = 0
    stopped: int = 0
    pooled: int = 0
    ring_taken_back: int = 0
    covered: int = 0
    followed: int = 0
    surprised: int = 0
    surprised_off: int = 0
    ratios: list[float] = field(default_factory=list)


def soak(dice: np.random.Generator, effect: float) -> tuple[PopRecord, Look]:
    """One PoP's record, and the look that ended its soak."""
    drawn = draw(SCENARIOS["few"], dice, effect)
    alone = replace(drawn, metrics=drawn.metrics[:1])
    record = begun(alone, Intent("improve", METRIC, 0.0), LOOKS)
    return take_looks(record, soak_windows(alone, LOOKS))


def simulate(pops: int, truth: str, campaigns: int, seed: int = 1) -> Found:
    """Campaigns of one ring."""
    found = Found(pops, truth)
    for number in range(campaigns):
        dice = np.random.default_rng([seed, pops, [*TRUTHS].index(truth), number])
        _campaign(found, dice)
    return found


def _campaign(found: Found, dice: np.random.Generator) -> None:
    ratio, between = TRUTHS[found.truth]
    true = np.log(ratio) + between * dice.standard_normal(found.pops + 1)
    soaks = {f"p{n}": soak(dice, math.exp(true[n])) for n in range(found.pops)}
    decisions = {pop: look.decision for pop, (_, look) in soaks.items()}
    back = {pop: "" for pop, decision in decisions.items() if decision is Decision.ROLL_BACK}
    spent = [soaks[pop][1].tests["harm"].spent if pop in back else 1.0 for pop in soaks]
    # The samples of a simulation tell nothing that a doubt could rest on.
    with mock.patch.object(ring_judge, "doubts_of", lambda compared: []):
        ruling = decide_ring({pop: record for pop, (record, _) in soaks.items()}, back)
    promoted = sum(decision is Decision.PROMOTE for decision in decisions.values())
    found.campaigns += 1
    found.alone += promoted
    found.all_alone += promoted == found.pops
    found.taken_back += len(back)
    found.any_taken_back += bool(back)
    found.stopped += view_of_harm(spent, ALPHA).confirms
    found.pooled += ruling.look.decision is Decision.PROMOTE
    found.ring_taken_back += ruling.look.decision is Decision.ROLL_BACK
    found.surprised += _surprises(soaks, soak(dice, math.exp(true[-1]))[0])
    found.surprised_off += _surprises(soaks, soak(dice, OFF * math.exp(true[-1]))[0])
    effect = ruling.over.effect
    if effect and effect.next_pop:
        found.ratios.append(effect.ratio)
        found.covered += holds(effect.interval, ratio)
        found.followed += holds(effect.next_pop, math.exp(true[-1]))


def _surprises(soaks: Mapping[str, tuple[PopRecord, Look]], following: PopRecord) -> bool:
    kept = [
        KeptEffect(pop, pop, "", "", METRIC, 0.0, look.verdict, *parts_of(_compared(record)))
        for pop, (record, look) in soaks.items()
    ]
    plan = replace(following.plan, expected=expected(kept))
    return bool(surprise(_compared(replace(following, plan=plan))))


def _compared(record: PopRecord) -> Comparison:
    return Comparison(record.plan, record.strata, record.baseline, record.blocks)


def show(rows: list[Found]) -> None:
    """Two tables: what is promoted and taken back, and how true the effect over PoPs is."""
    print("Shares with Wilson's 95 %: of PoPs, and of campaigns")
    headers = ["truth", "PoPs", "a PoP alone is promoted", "all of them", "the ring is"]
    headers += ["a PoP is taken back", "any of them", "the ring confirms it", "the ring is too"]
    print_table(
        headers,
        [
            [
                row.truth,
                str(row.pops),
                _share(row.alone, row.campaigns * row.pops),
                _share(row.all_alone, row.campaigns),
                _share(row.pooled, row.campaigns),
                _share(row.taken_back, row.campaigns * row.pops),
                _share(row.any_taken_back, row.campaigns),
                _share(row.stopped, row.campaigns),
                _share(row.ring_taken_back, row.campaigns),
            ]
            for row in rows
        ],
    )
    print()
    headers = ["truth", "PoPs", "effect over PoPs", "inside its interval", "the next PoP is inside"]
    headers += ["it surprises", f"one with x{OFF:g} does"]
    print_table(
        headers,
        [
            [
                row.truth,
                str(row.pops),
                f"x{math.exp(np.mean(np.log(row.ratios))):.3f}",
                _share(row.covered, len(row.ratios)),
                _share(row.followed, len(row.ratios)),
                _share(row.surprised, row.campaigns),
                _share(row.surprised_off, row.campaigns),
            ]
            for row in rows
            if row.ratios
        ],
    )


def _share(count: int, of: int) -> str:
    low, high = wilson(count, of)
    return f"{100 * count / of:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def main(campaigns: int) -> None:
    """A row for each truth and size; larger rings have fewer campaigns."""
    show(
        [
            simulate(pops, truth, max(2, campaigns * POPS[0] // pops))
            for truth in TRUTHS
            for pops in POPS
        ]
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 200)
