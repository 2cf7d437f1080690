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
from bench.judge.targets import fleet_target  # noqa: E402
from docs.pages.markdown import replace_section, table  # noqa: E402

Document = Mapping[str, Any]
Row = Mapping[str, Any]
EFFECTS = ("x1.25", "x1.5", "x1.5 from 120 min on", "x2")
PEERS = ("Kayenta", "t-test over hosts, Lan-DeMets, linear", "AsympCS, baseline estimated")
"""Those whose false rollbacks are shown for every scenario."""
BENEFITS = (("full", "x0.8"), ("full", "x0.7"), ("few", "x0.8"), ("few", "x0.7"))
SOAKS = (("full", "x1.25"), ("full", "x1.5"), ("few", "x1.5"), ("full", "x0.8"), ("full", "x0.7"))
_EFFECTS = {"none": "false rollbacks"}
BEHIND = 0.02
"""A peer finds more than ours where its power is greater by this, and that is no chance."""
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
    """False rollbacks and power of every judge, with 12 + 12 and with 4 + 4 hosts."""
    false = {(row["scenario"], row["method"]): row for row in figures["false_rollbacks"]}
    power = {(row["scenario"], row["method"], row["effect"]): row for row in figures["power"]}
    methods = [method for scenario, method in false if scenario == "full"]
    rows = []
    for method in methods:
        found = [_found(power.get(("full", method, effect))) for effect in EFFECTS]
        few = _percent(false.get(("few", method))), _found(power.get(("few", method, "x1.5")))
        rows.append([method, _percent(false["full", method]), *found, *few])
    headings = (
        "judge, false rollbacks (16 looks), x1.25 found (median minute), x1.5, x1.5 from half time"
        ", x2, 4 + 4 hosts: false rollbacks, x1.5"
    )
    return table(headings, rows)


def scenarios(figures: Document) -> str:
    """False rollbacks and useless promotions, scenario by scenario."""
    false = {(row["scenario"], row["method"]): row for row in figures["false_rollbacks"]}
    rows = []
    for (scenario, method), row in false.items():
        if method == "edgetune":
            peers = [_percent(false.get((scenario, peer))) for peer in PEERS]
            rows.append([scenario, _wilson(row), *peers, _wilson(row["improved"])])
    columns = [f"of {peer.replace(',', ';')}" for peer in PEERS]
    headings = ["scenario", "false rollbacks of edgetune", *columns, "useless ones promoted"]
    return table(", ".join(headings), rows)


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
    return table("scenario, effect, judge, its false rollbacks, edgetune finds, it finds", rows)


def benefits(figures: Document) -> str:
    """Useless ones called an improvement, and improvements seen, of every judge that claims any."""
    false = {
        (row["scenario"], row["method"]): row["improved"] for row in figures["false_rollbacks"]
    }
    seen = {
        (row["scenario"], row["effect"], row["method"]): row["improved"]
        for row in figures["wrong_direction"]
    }
    rows = [
        [
            method,
            *(_percent(false.get((own, method))) for own in ("full", "few")),
            *(_power(seen.get((*case, method))) for case in BENEFITS),
        ]
        for (scenario, method), row in false.items()
        if scenario == "full" and row
    ]
    cases = ", ".join(map(" ".join, BENEFITS))
    return table(f"judge, full: useless ones promoted, few: useless ones promoted, {cases}", rows)


def soaks(figures: Document) -> str:
    """Minutes that a soak has to last for 90 % power, of ours and of peers that are as valid."""
    found = {(row["method"], row["scenario"], row["effect"]): row for row in figures["found_by"]}
    methods = dict.fromkeys(method for method, *case in found if (*case,) in SOAKS)
    rows = [
        [method, *(_minute(found.get((method, *case)), 0.9) for case in SOAKS)]
        for method in methods
    ]
    return table(", ".join(["judge", *map(" ".join, SOAKS)]), rows)


def earlier(figures: Document) -> str:
    """Where a peer that is as valid has found half of the harm earlier than ours: the first."""
    cases: dict[tuple[str, str], list[Row]] = {}
    for row in figures["found_by"]:
        if row["effect"] in EFFECTS:
            cases.setdefault((row["scenario"], row["effect"]), []).append(row)
    rows = []
    for case, found in cases.items():
        ours = next(row for row in found if row["method"] == "edgetune")
        first = min(found, key=lambda row: minute_of(row, 0.5))
        if minute_of(first, 0.5) < minute_of(ours, 0.5):
            peer = first["method"], _share(first["false"]), _minute(first, 0.5)
            rows.append([*case, _minute(ours, 0.5), *peer])
    return table("scenario, effect, edgetune (minute), judge, its false ones, it (minute)", rows)


def fleets(figures: Document) -> str:
    """What happens to real fleets; each with what is wanted of it."""
    rows = []
    for row in figures["fleets"]:
        target = fleet_target(row)
        peer = row["peer"]
        ours = _wilson(row["promoted"]), _rolled_back(row), _wilson(row["covered"])
        theirs = _percent(peer["promoted"]), _rolled_back(peer)
        wanted = target.wanted.replace(", ", "; ")
        rows.append([row["fleet"], row["about"], *ours, *theirs, wanted, target.verdict])
    headings = (
        "fleet, what, promoted, rolled back (median minute), interval covers"
        ", t-test: promoted, t-test: rolled back, wanted, reached"
    )
    return table(headings, rows)


def margins(figures: Document) -> str:
    """What ``no_harm`` promotes and rolls back, by the harm that there is."""
    rows = [row for row in figures["promises"] if row["margin"]]
    told = [
        [
            _fleet(whole),
            f"{whole['margin']:.0%}",
            *(_wilson(row["promoted"]) for row in (whole, half, none)),
            _wilson(half["rolled_back"]),
        ]
        for whole, half, none in zip(rows[::3], rows[1::3], rows[2::3])
    ]
    headings = (
        "fleet, margin, harm of just the margin: promoted, half of it: promoted, none: promoted"
        ", half of it: rolled back"
    )
    return table(headings, told)


def estimates(figures: Document) -> str:
    """Coverage of the 90 % interval, and bias of the logarithm of the ratio."""
    rows = [row for row in figures["promises"] if row["margin"] is None]
    ratios = list(dict.fromkeys(row["ratio"] for row in rows))
    by_fleet: dict[str, list[str]] = {}
    for row in rows:
        told = f"{100 * row['covered']['rate']:.1f} % ({row['bias']:+.3f})"
        by_fleet.setdefault(_fleet(row), []).append(told)
    headings = ["fleet", *(f"x{ratio:g}" for ratio in ratios)]
    return table(", ".join(headings), [[fleet, *cells] for fleet, cells in by_fleet.items()])


def tails(figures: Document) -> str:
    """Harm that only the tail of requests has: what finds it, and what finds it where none is."""
    found = {(row["method"], row["fleet"], row["effect"]): row for row in figures["tails"]}
    cases = [*dict.fromkeys((fleet, effect) for _, fleet, effect in found)]
    rows = [
        [method, *(_wilson(found[(method, *case)]) for case in cases)]
        for method in dict.fromkeys(method for method, *_ in found)
    ]
    told = [f"hosts {fleet}: {_EFFECTS.get(effect, effect)}" for fleet, effect in cases]
    return table(", ".join(["judge", *told]), rows)


def missed(figures: Document) -> str:
    """Rows of ours whose interval misses the truth."""
    rows = [
        [
            row["table"],
            row["row"],
            " to ".join(f"{end:g}" for end in sorted({*row["truth"]})),
            f"{row['low']:.3f} to {row['high']:.3f}",
        ]
        for row in figures["missed"]
    ]
    return table("table, row, truth, interval (Wilson 95 %)", rows)


def targets(figures: Document) -> str:
    """What was wanted, and whether it was reached."""
    rows = [
        [row["what"], row["wanted"], row["found"], row["verdict"]]
        for row in figures["targets"]
        if not row["what"].startswith("fleet ")  # the table of fleets has these
    ]
    return table("target, wanted, found, reached", rows)


def _found(row: Row | None) -> str:
    if row is None:
        return "-"
    minutes = row["minutes"]
    return f"{row['rate']:.2f}" + (f" ({minutes['median']:.0f})" if minutes else "")


def _power(row: Row | None) -> str:
    return "-" if row is None else f"{row['rate']:.2f}"


def _minute(row: Row | None, share: float) -> str:
    if row is None:
        return "-"
    minute = minute_of(row, share)
    return f"{minute:.0f}" if math.isfinite(minute) else f"> {row['minutes'][-1]}"


def _rolled_back(row: Row) -> str:
    when = row["minutes"]
    return _share(row["rolled_back"]["rate"]) + ("" if when is None else f" ({when:.0f})")


def _percent(row: Row | None) -> str:
    return "-" if row is None else _share(row["rate"])


def _wilson(row: Row | None) -> str:
    if row is None:
        return "-"
    return f"{_share(row['rate'])} ({100 * row['low']:.1f} to {100 * row['high']:.1f})"


def _share(rate: float) -> str:
    return f"{100 * rate:.1f} %"


def _fleet(row: Row) -> str:
    return "{fleet}, {hosts} + {hosts}".format(**row)


SECTIONS = {
    "judges": judges,
    "scenarios": scenarios,
    "behind": behind,
    "benefits": benefits,
    "soaks": soaks,
    "earlier": earlier,
    "fleets": fleets,
    "margins": margins,
    "estimates": estimates,
    "missed": missed,
    "targets": targets,
}
OF_ITS_OWN = {"tails": tails}
"""Of a run of its own: ``python -m bench.judge.tails --json FIGURES``."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
