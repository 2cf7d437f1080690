# SPDX-License-Identifier: Apache-2.0
"""Writes docs/images/dashboard.svg: the panels of the dashboard, drawn from their queries' answers.

python docs/dashboard_picture.py

Debian's Prometheus scrapes /metrics of a fleet that tests made up. Each panel stands at its place
and shows its newest values; Grafana draws some of them as lines over time.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import escape

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib"), str(ROOT)]

from edgetune.base.durations import roughly  # noqa: E402
from edgetune.base.numbers import number  # noqa: E402
from edgetune.report.axes import from_zero  # noqa: E402
from lab.serve.metrics import metrics_served  # noqa: E402
from tests.support.exported import fleet  # noqa: E402
from tests.support.programs import free_port  # noqa: E402
from tests.support.scraped import Scraping, filled, prometheus  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "dashboard.svg"
DASHBOARD = ROOT / "deploy" / "grafana" / "edgetune.json"
COLUMN, ROW, GAP, LINE = 44, 24, 4, 18
INK, BAR = "#1c2128", "#c5d8f2"

Row = tuple[str, float]


def main(path: Path = PICTURE) -> int:
    """Write the picture."""
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    with tempfile.TemporaryDirectory() as folder:
        address = ("127.0.0.1", free_port())
        config = fleet(Path(folder)).config
        scrapes = prometheus(Path(folder), f"{address[0]}:{address[1]}")
        with metrics_served(config, address), scrapes as scraping:
            scraping.wait_for("count_over_time(edgetune_looks_total[30s]) > 2")
            scraping.wait_for("edgetune:newest_export")
            answers = [list(_rows(scraping, panel)) for panel in panels]
    path.write_text(picture(panels, answers), encoding="utf-8")
    return 0


def picture(panels: Sequence[dict[str, Any]], answers: Sequence[Sequence[Row]]) -> str:
    """The whole image; ``answers`` are the rows of each panel."""
    width = 24 * COLUMN
    height = ROW * max(own["gridPos"]["y"] + own["gridPos"]["h"] for own in panels)
    drawn = [line for panel, rows in zip(panels, answers) for line in _panel(panel, rows)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, \'DejaVu Sans\', sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{height}" fill="#f1f3f5"/>\n'
        + "\n".join(drawn)
        + "\n</svg>\n"
    )


def _rows(scraping: Scraping, panel: dict[str, Any]) -> Iterator[Row]:
    """What each series is called, and its value."""
    for target in panel["targets"]:
        for series in scraping.ask(filled(target["expr"])):
            labels, name = series["metric"], target["legendFormat"]
            for label, value in labels.items():
                name = name.replace(f"{{{{{label}}}}}", value)
            yield name or "  ".join(labels.values()), float(series["value"][1])


def _panel(panel: dict[str, Any], rows: Sequence[Row]) -> Iterator[str]:
    place = {name: pixels * value for name, pixels, value in _places(panel["gridPos"])}
    x, y, wide, high = (place[name] for name in "xywh")
    yield _bar(x + GAP, y + GAP, wide - GAP, high - GAP, "#fff")
    yield _text(x + 12, y + 22, panel["title"], weight=600)
    unit = panel["fieldConfig"]["defaults"]["unit"]
    if panel["type"] == "stat" and len(rows) == 1:
        yield _text(x + 12, y + 64, _value(rows[0][1], unit), size=30)
        return
    axis = from_zero([abs(value) for _, value in rows], 0, wide - 20)
    for line, (name, value) in enumerate(rows[: int(high - 34) // LINE]):
        top = y + 34 + LINE * line
        if panel["type"] != "table":
            yield _bar(x + 10, top, axis.at(abs(value)), 15, BAR)
            yield _text(x + wide - 10, top + 12, _value(value, unit), anchor="end")
        yield _text(x + 14, top + 12, name)


def _places(place: dict[str, int]) -> Iterator[tuple[str, int, int]]:
    for name, pixels in (("x", COLUMN), ("w", COLUMN), ("y", ROW), ("h", ROW)):
        yield name, pixels, place[name]


def _bar(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"/>'


def _value(value: float, unit: str) -> str:
    if unit != "s":
        return number(value)
    return ("-" if value <= -0.5 else "") + roughly(round(abs(value)))


def _text(x: int, y: int, text: str, size: int = 12, weight: int = 400, anchor: str = "") -> str:
    beside = f' text-anchor="{anchor}"' if anchor else ""
    style = f"fill: {INK}; font-size: {size}px; font-weight: {weight}"
    return f'<text x="{x}" y="{y}"{beside} style="{style}">{escape(text)}</text>'


if __name__ == "__main__":
    sys.exit(main())
