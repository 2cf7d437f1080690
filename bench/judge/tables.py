# SPDX-License-Identifier: Apache-2.0
"""The tables of bench.judge, from the figures as they are written to its JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

from bench._table import print_table
from bench.judge.figures import minute_of
from bench.judge.trials import MAIN

Rows = Sequence[Mapping[str, Any]]
BAD, WRONG = "x1.5", "x0.7"


def show(document: Mapping[str, Any]) -> None:
    """Print what `run` found."""
    print("bench.judge: seed {seed}; replicates {replicates}".format(**document))
    _show_false(document["false_rollbacks"])
    for scenario in MAIN:
        _show_power(scenario, document["power"])
    _show_differences(document["differences"])
    _show_found_by(document["found_by"])
    _show_more(document)
    _show_improvements(document)
    _show_articles(document["articles"])
    _show_promises(document["promises"])
    _show_missed(document["missed"])
    show_fleets(document)


def grid(
    rows: Rows, column: str, cell: Callable[[Mapping[str, Any]], str]
) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of a table: a row for each method, a column for each value of `column`."""
    columns = list(dict.fromkeys(row[column] for row in rows))
    cells = {(row["method"], row[column]): cell(row) for row in rows}
    methods = dict.fromkeys(row["method"] for row in rows)
    return (
        ["method", *columns],
        [[name, *(cells.get((name, one), "-") for one in columns)] for name in methods],
    )


def _title(text: str) -> None:
    print(f"\n{text}\n")


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    rows = list(rows)
    if rows:
        print_table(headers, rows)
    else:
        print("none")


def _percent(row: Mapping[str, Any]) -> str:
    return f"{100 * row['rate']:.1f} ({100 * row['low']:.1f}..{100 * row['high']:.1f})"


def _caught(row: Mapping[str, Any]) -> str:
    minutes = row["minutes"]
    return f"{row['rate']:.2f} ({minutes['median']:.0f})" if minutes else f"{row['rate']:.2f}"


def _show_false(rows: Rows) -> None:
    _title("False rollbacks in 240 minutes, % (Wilson 95 %)")
    _table(*grid(rows, "scenario", _percent))


def _show_power(scenario: str, rows: Rows) -> None:
    of_it = [row for row in rows if row["scenario"] == scenario]
    if of_it:
        _title(f"{scenario}: power within 240 minutes (median minute of the alarm)")
        _table(*grid(of_it, "effect", _caught))


def _show_differences(rows: Rows) -> None:
    _title("Power of ours and of peers with valid false rollbacks, on the same replicates")
    headers = ["scenario", "effect", "peer", "its false %", "ours", "peer's", "difference", "s.e."]
    _table(
        headers,
        (
            [
                *(row[key] for key in ("scenario", "effect", "method")),
                f"{100 * row['false']:.1f}",
                *(f"{row[key]:.3f}" for key in ("ours", "theirs")),
                f"{row['difference']:+.3f}",
                f"{row['error']:.3f}",
            ]
            for row in rows
        ),
    )


def _show_more(document: Mapping[str, Any]) -> None:
    _title(f"CPU; test hosts times minutes until the alarm at {BAD}; improvements rolled back")
    wrong = {
        row["method"]: _percent(row)
        for row in document["wrong_direction"]
        if (row["scenario"], row["effect"]) == ("full", WRONG)
    }
    bad = [row for row in document["power"] if row["effect"] == BAD and row["scenario"] in MAIN]
    headers, rows = grid(bad, "scenario", lambda row: f"{row['bad_host_minutes']:.0f}")
    by_method = {method: cells for method, *cells in rows}
    _table(
        ["method", "ms a look", *headers[1:], f"{WRONG} rolled back, %"],
        (
            [
                row["method"],
                f"{row['ms_per_look']:.2f}",
                *by_method.get(row["method"], ["-"] * (len(headers) - 1)),
                wrong.get(row["method"], "-"),
            ]
            for row in document["cpu"]
        ),
    )


def _show_improvements(document: Mapping[str, Any]) -> None:
    """Of ours, and of peers that claim any."""
    for title, rows in (
        ("Useless ones called an improvement after 240 minutes, %", document["false_rollbacks"]),
        ("Improvements seen after 240 minutes, %", document["wrong_direction"]),
    ):
        seen = [
            {**row, **row["improved"], "case": " ".join([row["scenario"], row.get("effect", "")])}
            for row in rows
            if row["improved"]
        ]
        if seen:
            _title(title)
            _table(*grid(seen, "case", _percent))


def _show_found_by(rows: Rows) -> None:
    """Of ours, and of peers that keep alpha."""
    _title("Minutes after which half, and 90 %, of the effects are found in `full` and in `few`")
    shown = [row for row in rows if row["scenario"] in ("full", "few")]
    cases = [{**row, "case": "{scenario} {effect}".format(**row)} for row in shown]
    _table(*grid(cases, "case", lambda row: f"{minute_of(row, 0.5):g}, {minute_of(row, 0.9):g}"))


def _show_articles(rows: Rows) -> None:
    if rows:
        _title("The articles, simulated")
        headers = ["article", "ratio put in", "ratio found", "interval", "verdict"]
        _table(headers, map(_article, rows))


def _article(row: Mapping[str, Any]) -> list[str]:
    return [
        row["article"],
        f"{row['truth']:.3f}",
        f"{row['ratio']:.3f}",
        f"{row['low']:.3f}..{row['high']:.3f}",
        row["verdict"],
    ]


def _show_promises(rows: Rows) -> None:
    fleets = "{fleet}, {hosts} + {hosts}".format
    margins = [row for row in rows if row["margin"]]
    if margins:
        _title("no_harm: promoted, and rolled back, by the harm that there is, %")
        headers = ["fleet", "margin", "all of it", "half of it", "none", "half: rolled back"]
        _table(headers, _by_margin(margins))
        _title("Estimates: the 90 % interval covers, %; bias and deviation of the log ratio")
        sized = [row for row in rows if row["margin"] is None]
        _table(
            ["fleet", "ratio", "covers", "bias", "deviation"],
            (
                [
                    fleets(**row),
                    f"{row['ratio']:g}",
                    _percent(row["covered"]),
                    f"{row['bias']:+.3f}",
                    f"{row['deviation']:.3f}",
                ]
                for row in sized
            ),
        )


def _by_margin(rows: Rows) -> Iterable[list[str]]:
    """Three consecutive rows are those of one margin: all of it, half of it, no harm."""
    for whole, half, none in zip(rows[::3], rows[1::3], rows[2::3]):
        promoted = [_percent(row["promoted"]) for row in (whole, half, none)]
        fleet = "{fleet}, {hosts} + {hosts}".format(**whole)
        yield [fleet, f"{whole['margin']:.0%}", *promoted, _percent(half["rolled_back"])]


def show_fleets(document: Mapping[str, Any]) -> None:
    """Print a row for each fleet, and the targets."""
    rows = document["fleets"]
    if rows:
        _title("Fleets: promoted, %, rolled back (median minute), %; of ours, and of the peer")
        headers = ["fleet", "promoted", "rolled back", "covers", "unlike", "peer", "peer", "doubts"]
        _table(headers, map(_fleet, rows))
    _show_targets(document["targets"])


def _fleet(row: Mapping[str, Any]) -> list[str]:
    peer, doubts = row["peer"], row["doubts"]
    return [
        row["fleet"],
        _percent(row["promoted"]),
        _rolled_back(row),
        _percent(row["covered"]) if row["covered"] else "-",
        f"{row['unlike']}",
        f"{100 * peer['promoted']['rate']:.1f}",
        _rolled_back(peer),
        ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in doubts.items()),
    ]


def _rolled_back(row: Mapping[str, Any]) -> str:
    when = f" ({row['minutes']:.0f})" if row["minutes"] is not None else ""
    return _percent(row["rolled_back"]) + when


def _show_missed(rows: Rows) -> None:
    _title("Rows of ours whose interval misses the truth")
    _table(
        ["table", "row", "truth", "interval"],
        (
            [
                row["table"],
                row["row"],
                "..".join(f"{end:.3g}" for end in sorted({*row["truth"]})),
                f"{row['low']:.3f}..{row['high']:.3f}",
            ]
            for row in rows
        ),
    )


def _show_targets(rows: Rows) -> None:
    if rows:
        _title("Targets of ours")
        _table(
            ["target", "wanted", "found", "reached"],
            ([row["what"], row["wanted"], row["found"], row["verdict"]] for row in rows),
        )
