# SPDX-License-Identifier: Apache-2.0
"""What our judge is to reach, and whether it did."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.judge.figures import NOMINAL, minute_of, wilson
from bench.judge.trials import LOOKS

FALSE_ROLLBACKS = 0.066
"""Upper end of Wilson's 95 % interval, over all looks, in every scenario."""
POWER = (
    ("full", "x1.25", 0.92),
    ("full", "x1.5", 0.99),
    ("full", "x1.5 from 120 min on", 0.88),
    ("few", "x1.5", 0.85),
)
SOAK = 0.9
"""The power for which ours needs no longer a soak than any peer with valid false alarms."""
SOAKS = (("full", "x1.25"), ("full", "x1.5"), ("full", "x0.8"), ("few", "x1.5"))
RARE = ("sparse", "x2", 0.6)
"""Where drops are rare, the least part of the best valid peer's power."""
BEHIND = 0.02
"""How much power may be less than that of a peer with valid false rollbacks. It is more where the
95 % interval of the difference says so: of many comparisons some are behind by chance."""
_Z = 1.96
SECONDS = 3.0
MEMORY = 400
"""Of a look over 5,000 hosts, from the stored samples to the verdict; MB."""
COVERED = 0.88
"""Least coverage of a nominal 90 % interval."""
BIAS = {4: 0.05, 8: 0.05, 12: 0.02}
"""By hosts of each group, most bias of the logarithm of a ratio."""
ARTICLE = 0.15
"""How far the ratio may be from the one that was put into an article."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Target:
    """One of them, with what was found."""

    what: str
    wanted: str
    found: str
    reached: bool
    too_few: bool = False
    """It is missed, and a judge as good as wanted might miss it with so few replicates, too."""

    @property
    def verdict(self) -> str:
        """Whether it is reached, for a table."""
        return "yes" if self.reached else "too few to tell" if self.too_few else "NO"

    @property
    def document(self) -> dict[str, Any]:
        """It and its verdict, as figures have it."""
        return {**asdict(self), "verdict": self.verdict}


def check(ours: str, document: Mapping[str, Any]) -> list[Target]:
    """The targets of everything that was run, from the figures of bench.judge."""
    false, power = document["false_rollbacks"], document["power"]
    own_false = [row for row in false if row["method"] == ours]
    own_power = {(row["scenario"], row["effect"]): row for row in power if row["method"] == ours}
    return [
        *_false(own_false),
        *_power(own_power),
        *_behind(document["differences"]),
        *_rare(document["differences"]),
        *_soaks(ours, document["found_by"]),
        *map(fleet_target, document["fleets"]),
        *([intervals_target(document["fleets"])] if document["fleets"] else []),
        *_articles(document["articles"]),
        *_promises(document["promises"]),
        *_large(document.get("large", {})),
    ]


def _false(rows: Rows) -> Iterator[Target]:
    for row in rows:
        yield _upper_end(f"false rollbacks, {row['scenario']}, upper end", row)


def _upper_end(what: str, row: Mapping[str, Any]) -> Target:
    """That of a rate that is nominally `NOMINAL`; a judge that is wrong just so often must be able
    to reach it."""
    low, high, replicates = (row[key] for key in ("low", "high", "replicates"))
    reached = high <= FALSE_ROLLBACKS
    exact = wilson(round(NOMINAL * replicates), replicates)
    too_few = not reached and low <= FALSE_ROLLBACKS < exact[1]
    return Target(what, f"<= {FALSE_ROLLBACKS:.1%}", f"{high:.1%}", reached, too_few)


def _power(rows: Mapping[tuple[str, str], Mapping[str, Any]]) -> Iterator[Target]:
    """What is wanted must be outside of the interval."""
    for scenario, effect, wanted in POWER:
        row = rows.get((scenario, effect))
        if row:
            what, reached = f"power, {scenario}, {effect}", row["rate"] >= wanted
            too_few = not reached and row["high"] >= wanted
            yield Target(what, f">= {wanted}", f"{row['rate']:.3f}", reached, too_few)
    row = rows.get(("full", "x2"))
    if row:
        yield _median(row["minutes"], LOOKS[0])


def _median(minutes: Mapping[str, float] | None, wanted: int) -> Target:
    found = minutes and minutes["median"]
    too_few = minutes is not None and minutes["low"] <= wanted < minutes["median"]
    what = "median alarm, full, x2"
    return Target(what, f"{wanted} min", f"{found} min", found == wanted, too_few)


def _behind(rows: Rows) -> Iterator[Target]:
    common = [row for row in rows if row["scenario"] != RARE[0]]
    if common:
        worst = min(common, key=_at_best)
        what = "power against {method}, {scenario}, {effect}, the worst".format(**worst)
        found = f"{worst['difference']:+.3f} (s.e. {worst['error']:.3f})"
        yield Target(what, f">= {-BEHIND}", found, _at_best(worst) >= -BEHIND)


def _rare(rows: Rows) -> Iterator[Target]:
    scenario, effect, least = RARE
    own = [row for row in rows if (row["scenario"], row["effect"]) == (scenario, effect)]
    if own:
        best = max(own, key=lambda row: float(row["theirs"]))
        part = best["ours"] / best["theirs"]
        too_few = part < least <= (best["ours"] + _Z * best["error"]) / best["theirs"]
        what = f"power, {scenario}, {effect}, to that of {best['method']}"
        yield Target(what, f">= {least}", f"{part:.2f}", part >= least, too_few)


def _soaks(ours: str, rows: Rows) -> Iterator[Target]:
    """Of the first of the peers that get there at all."""
    for scenario, effect in SOAKS:
        of_it = [row for row in rows if (row["scenario"], row["effect"]) == (scenario, effect)]
        peers = [row for row in of_it if not row["method"].startswith(ours)]
        own = next((row for row in of_it if row["method"] == ours), None)
        if own and peers:
            best = min(peers, key=lambda row: minute_of(row, SOAK))
            found, theirs = minute_of(own, SOAK), minute_of(best, SOAK)
            share = dict(zip(own["minutes"], own["shares"])).get(theirs, 0.0)
            too_few = found > theirs and _high(share, own["replicates"]) >= SOAK
            what = f"soak for {SOAK:.0%} power, {scenario}, {effect}, to that of {best['method']}"
            yield Target(what, f"<= {theirs:g} min", f"{found:g} min", found <= theirs, too_few)


def _high(share: float, of: int) -> float:
    return wilson(round(share * of), of)[1]


def _at_best(row: Mapping[str, Any]) -> float:
    return float(row["difference"] + _Z * row["error"])


def _articles(rows: Rows) -> Iterator[Target]:
    for row in rows:
        near = abs(row["ratio"] / row["truth"] - 1) <= ARTICLE
        wanted = f"{row['truth']:.2f}, improved"
        found = f"{row['ratio']:.2f}, {row['verdict']}"
        yield Target(row["article"], wanted, found, near and row["verdict"] == "improved")


def _promises(rows: Rows) -> Iterator[Target]:
    """The worst of each, but for those of a margin that is kept to."""
    if not rows:
        return
    harmful = [row for row in rows if row["margin"] and row["ratio"] == 1 + row["margin"]]
    worst = max(harmful, key=lambda row: float(row["promoted"]["high"]))
    what = f"harm of just the margin promoted, upper end, the worst: {_fleet(worst)}"
    yield _upper_end(what, worst["promoted"])
    sized = [row for row in rows if row["margin"] is None]
    yield _least_covered(sized)
    for hosts, most in BIAS.items():
        yield _most_biased([row for row in sized if row["hosts"] == hosts], most)


def _least_covered(rows: Rows) -> Target:
    worst = min(rows, key=lambda row: float(row["covered"]["rate"]))
    covered = worst["covered"]
    what, reached = f"90 % interval, the worst: {_fleet(worst)}", covered["rate"] >= COVERED
    too_few = not reached and covered["high"] >= COVERED
    return Target(what, f">= {COVERED:.0%}", f"{covered['rate']:.1%}", reached, too_few)


def _most_biased(rows: Rows, most: float) -> Target:
    worst = max(rows, key=lambda row: abs(float(row["bias"])))
    what, bias = f"bias of a log ratio, the worst: {_fleet(worst)}", abs(worst["bias"])
    error = worst["deviation"] / math.sqrt(worst["covered"]["replicates"])
    too_few = bias > most >= bias - _Z * error
    return Target(what, f"<= {most}", f"{bias:.3f}", bias <= most, too_few)


def _fleet(row: Mapping[str, Any]) -> str:
    return "{fleet}, {hosts} + {hosts}, x{ratio:g}".format(**row)


def fleet_target(row: Mapping[str, Any]) -> Target:
    """All that is wanted of a fleet of ``fleets.FLEETS``, as one."""
    wanted, every = row["wanted"], []
    for decision in wanted["few"]:
        every.append(_upper_end(_said(decision), row[decision]))
    for decision, least in wanted["many"].items():
        every.append(_at_least(_said(decision), row[decision], least))
    if row["covered"]:
        every.append(_at_least("covers", row["covered"], COVERED))
    if wanted["early"]:
        every.append(_no_later(row["minutes"], row["peer"]["minutes"]))
    missed = [own for own in every if not own.reached]
    return Target(
        what=f"fleet {row['fleet']}",
        wanted=", ".join(f"{own.what} {own.wanted}" for own in every),
        found=", ".join(f"{own.what} {own.found}" for own in every),
        reached=not missed,
        too_few=bool(missed) and all(own.too_few for own in missed),
    )


def _said(decision: str) -> str:
    return decision.replace("_", " ")


def _at_least(what: str, row: Mapping[str, Any], least: float) -> Target:
    reached = row["rate"] >= least
    too_few = not reached and row["high"] >= least
    return Target(what, f">= {least:.0%}", f"{row['rate']:.1%}", reached, too_few)


def _no_later(minute: float | None, theirs: float | None) -> Target:
    reached = minute is not None and (theirs is None or minute <= theirs)
    return Target("found by minute", f"{theirs}", f"{minute}", reached)


def intervals_target(rows: Rows) -> Target:
    """No interval of any fleet excludes 1 where the test of one look does not."""
    unlike = sum(row["unlike"] for row in rows)
    return Target("intervals that exclude 1 and the test does not", "0", f"{unlike}", not unlike)


def _large(found: Mapping[str, float]) -> Iterator[Target]:
    if found:
        what = f"a look over {found['hosts']:,.0f} hosts with {found['draws']:,.0f} draws"
        cost = f"{found['seconds']:.1f} s, {found['megabytes']:.0f} MB"
        reached = found["seconds"] <= SECONDS and found["megabytes"] <= MEMORY
        yield Target(what, f"<= {SECONDS:g} s, <= {MEMORY} MB", cost, reached)
