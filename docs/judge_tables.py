# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/judge.md from one run of the benchmark of judges.

python -m bench.judge --jobs 2 --resume PARTS --json FIGURES    takes hours of CPU time
python docs/judge_tables.py FIGURES                             writes the tables of that run

With names of tables, only these: what a run of a part has figures of, such as ``fleets`` those of
``python -m bench.judge.fleets --json FIGURES``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "judge.md"
sys.path[:0] = [str(ROOT / "lib"), str(ROOT)]

from bench.judge.figures import minute_of  # noqa: E402
from bench.judge.trials import LOOKS  # noqa: E402
from docs.pages.markdown import replace_section, table  # noqa: E402

Document = Mapping[str, Any]
Row = Mapping[str, Any]
SHOWN = (
    *("edgetune", "edgetune, drops alone", "Kayenta", "Kayenta, drops per packet"),
    *("Kayenta, drops per million packets", "Kayenta, relative to the baseline"),
    *("Argo, failureLimit 0", "Argo, failureLimit 3", "Flagger, threshold 5", "Lindon-Malek"),
    *("AsympCS", "AsympCS, baseline estimated", "GrowthBook, tuned to 5,000 units"),
    *("GrowthBook, tuned to the hosts", "t-test over hosts, uncorrected"),
    "t-test over hosts, Lan-DeMets, linear",
)
"""Judges of the tables; the benchmark has more variants of some."""
EFFECTS = ("x1.25", "x1.5 from 120 min on")
HARM = ("x1.25", "x1.5", "x1.5 from 120 min on", "x2")
PEERS = ("Kayenta", "t-test over hosts, Lan-DeMets, linear", "AsympCS, baseline estimated")
"""Those whose false rollbacks are shown over all scenarios."""
MOVED = ("moved load, ^0", "moved load, ^2", "moved load, ^4", "moved load, more, ^3")
FLEETS = (
    *("as before", "better", "worse", *MOVED, "moved load, ^4, x1.08"),
    *("moved load, ^2, x0.7", "moved load, ^2, x1.5", "novelty, x0.5, then x1.3"),
    *("novelty, x0.3, then x1", "cold", "empty", "one dominates", "chosen", "dropout", "traces"),
)
"""Fleets of the table; the targets are of all that were run."""
BEHIND = 0.02
"""A peer finds more than ours where its power is greater by this, and that is no chance."""
A_LOOK = LOOKS[0]
"""Minutes between two looks. A peer is earlier where it is so by more than one."""
_EFFECTS = {"none": "false rollbacks"}
_Z = 1.96


def main(arguments: Sequence[str], page: Path = PAGE) -> int:
    """Write the tables; the exit status comes back."""
    figures_file, *names = arguments or ["--help"]
    every = {**SECTIONS, **OF_ITS_OWN}
    if not {*names} <= every.keys() or figures_file.startswith("-"):
        usage = f"python docs/judge_tables.py FIGURES [TABLE..]; tables: {', '.join(every)}"
        print(f"usage: {usage}", file=sys.stderr)
        return 2
    figures = json.loads(Path(figures_file).read_text(encoding="utf-8"))
    text = page.read_text(encoding="utf-8")
    for name in names or SECTIONS:
        text = replace_section(text, name, every[name](figures), "docs/judge.md")
    page.write_text(text, encoding="utf-8")
    return 0


def judges(figures: Document) -> str:
    """False rollbacks and power of the judges, with 12 + 12 and with 4 + 4 hosts."""
    false = {(row["scenario"], row["method"]): row for row in figures["false_rollbacks"]}
    power = {(row["scenario"], row["method"], row["effect"]): row for row in figures["power"]}
    rows = []
    for method in (method for scenario, method in false if scenario == "full"):
        if method in SHOWN:
            found = [_found(power.get(("full", method, effect))) for effect in EFFECTS]
            few = _percent(false.get(("few", method))), _found(power.get(("few", method, "x1.5")))
            rows.append([method, _percent(false["full", method]), *found, *few])
    headings = (
        "judge, false rollbacks (%), x1.25 found (median minute), x1.5 from half time"
        ", 4 + 4 hosts: false rollbacks, x1.5"
    )
    return table(headings, rows)


def scenarios(figures: Document) -> str:
    """The least and the most false rollbacks of all scenarios, and useless promotions of ours."""
    rates = {
        method: {row["scenario"]: row["rate"] for row in _of(method, figures)}
        for method in ("edgetune", *PEERS)
    }
    useless = {row["scenario"]: row["improved"]["rate"] for row in _of("edgetune", figures)}
    every = {**rates, "edgetune, useless ones promoted": useless}
    rows = [[method, *_ends(own)] for method, own in every.items()]
    return table("judge, least false rollbacks (%), most", rows)


def _ends(rates: Mapping[str, float]) -> list[str]:
    ranked = sorted(rates.items(), key=lambda item: item[1])
    return [f"{_share(rate)} ({name})" for name, rate in (ranked[0], ranked[-1])]


def _of(method: str, figures: Document) -> list[Row]:
    return [row for row in figures["false_rollbacks"] if row["method"] == method]


def behind(figures: Document) -> str:
    """Where peers whose false rollbacks are valid find more than ours, the best of them."""
    best: dict[tuple[str, str], Row] = {}
    for row in figures["differences"]:
        if row["difference"] + _Z * row["error"] < -BEHIND:
            place = row["scenario"], row["effect"]
            best[place] = max(best.get(place, row), row, key=lambda one: float(one["theirs"]))
    rows = [
        [
            *(row[key] for key in ("scenario", "effect", "method")),
            _share(row["false"]),
            *(f"{row[key]:.2f}" for key in ("ours", "theirs")),
        ]
        for row in best.values()
    ]
    return table("scenario, effect, judge, its false rollbacks (%), edgetune finds, it finds", rows)


def earlier(figures: Document) -> str:
    """Where a peer that is as valid has found half of the harm earlier than ours: the first."""
    cases: dict[tuple[str, str], list[Row]] = {}
    for row in figures["found_by"]:
        if row["effect"] in HARM:
            cases.setdefault((row["scenario"], row["effect"]), []).append(row)
    rows = []
    for case, found in cases.items():
        ours = next(row for row in found if row["method"] == "edgetune")
        first = min(found, key=lambda row: minute_of(row, 0.5))
        if minute_of(first, 0.5) < minute_of(ours, 0.5) - A_LOOK:
            peer = first["method"], _share(first["false"]), _minute(first)
            rows.append([*case, _minute(ours), *peer])
    return table(
        "scenario, effect, edgetune (minute), judge, its false ones (%), it (minute)", rows
    )


def fleets(figures: Document) -> str:
    """What happens to real fleets, with ours and with its peer."""
    rows = [
        [
            row["fleet"],
            *(_percent(row["promoted"]), _rolled_back(row)),
            *(_percent(row["peer"]["promoted"]), _rolled_back(row["peer"])),
        ]
        for row in figures["fleets"]
        if row["fleet"] in FLEETS
    ]
    headings = (
        "fleet, promoted (%), rolled back (median minute), t-test: promoted, t-test: rolled back"
    )
    return table(headings, rows)


def margins(figures: Document) -> str:
    """What ``no_harm`` promotes and rolls back, by margin: the least and the most of fleets."""
    rows = [row for row in figures["promises"] if row["margin"]]
    triples = [*zip(rows[::3], rows[1::3], rows[2::3])]
    sizes = sorted({row["hosts"] for row in rows})
    said = []
    for margin in sorted({row["margin"] for row in rows}):
        whole, half, none = zip(*(own for own in triples if own[0]["margin"] == margin))
        by_size = ([row for row in none if row["hosts"] == hosts] for hosts in sizes)
        said.append(
            [
                f"{margin:.0%}",
                *(_range(whole, "promoted"), _range(half, "promoted")),
                _range(half, "rolled_back"),
                *(_range(rows, "promoted") for rows in by_size),
            ]
        )
    headings = [
        "margin",
        *("harm of just the margin: promoted (%)", "half of it: promoted", "half: rolled back"),
        *(f"none: promoted; {hosts} + {hosts} hosts" for hosts in sizes),
    ]
    return table(", ".join(headings), said)


def estimates(figures: Document) -> str:
    """Coverage of the 90 % interval, and bias of the log ratio: the least and most of fleets."""
    by_ratio: dict[float, list[Row]] = {}
    for row in figures["promises"]:
        if row["margin"] is None:
            by_ratio.setdefault(row["ratio"], []).append(row)
    rows = []
    for ratio, own in by_ratio.items():
        bias = [row["bias"] for row in own]
        told = f"{min(bias):+.3f} to {max(bias):+.3f}"
        rows.append([f"x{ratio:g}", _range(own, "covered"), told])
    return table("true ratio, covered (%), bias of its logarithm", rows)


def tails(figures: Document) -> str:
    """Harm that only the tail of requests has: what finds it, and what finds it where none is."""
    found = {(row["method"], row["fleet"], row["effect"]): row for row in figures["tails"]}
    cases = [*dict.fromkeys((fleet, effect) for _, fleet, effect in found)]
    rows = [
        [method, *(_percent(found[(method, *case)]) for case in cases)]
        for method in dict.fromkeys(method for method, *_ in found)
    ]
    told = [f"hosts {fleet}: {_EFFECTS.get(effect, effect)}" for fleet, effect in cases]
    return table(", ".join(["judge (%)", *told]), rows)


def targets(figures: Document) -> str:
    """How many of the targets were reached, and those that were not."""
    every = figures["targets"]
    keys = "what", "wanted", "found", "verdict"
    rows = [[row[key] for key in keys] for row in every if row["verdict"] != "yes"]
    reached = f"{len(every) - len(rows)} of {len(every)} targets are reached"
    if not rows:
        return f"{reached}."
    return f"{reached}; these are not:\n\n{table('target, wanted, found, reached', rows)}"


def _found(row: Row | None) -> str:
    if row is None:
        return "-"
    minutes = row["minutes"]
    return f"{row['rate']:.2f}" + (f" ({minutes['median']:.0f})" if minutes else "")


def _minute(row: Row) -> str:
    minute = minute_of(row, 0.5)
    return f"{minute:.0f}" if math.isfinite(minute) else f"> {row['minutes'][-1]}"


def _rolled_back(row: Row) -> str:
    when = row["minutes"]
    return _share(row["rolled_back"]["rate"]) + ("" if when is None else f" ({when:.0f})")


def _percent(row: Row | None) -> str:
    return "-" if row is None else _share(row["rate"])


def _range(rows: Sequence[Row], key: str) -> str:
    rates = [row[key]["rate"] for row in rows]
    return f"{_share(min(rates))} to {_share(max(rates))}"


def _share(rate: float) -> str:
    return f"{100 * rate:.1f}"


SECTIONS = {
    "judges": judges,
    "scenarios": scenarios,
    "behind": behind,
    "earlier": earlier,
    "fleets": fleets,
    "margins": margins,
    "estimates": estimates,
    "targets": targets,
}
OF_ITS_OWN = {"tails": tails}
"""Of a run of its own: ``python -m bench.judge.tails --json FIGURES``."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
