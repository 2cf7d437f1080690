# SPDX-License-Identifier: Apache-2.0
"""Writes docs/images/report.svg: the head and the pictures of a report, of samples made up here.

python docs/report_picture.py

The sentences, numbers and pictures are those of the report's own code; only their places differ,
as an image has no page to flow on.
"""

from __future__ import annotations

import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import escape

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib"), str(ROOT)]

from edgetune.base.documents.head import Entry  # noqa: E402
from edgetune.base.documents.plan import Plan  # noqa: E402
from edgetune.intent.metrics.catalogue import METRICS  # noqa: E402
from edgetune.judge.series import Window, read_window  # noqa: E402
from edgetune.report import page as report  # noqa: E402
from edgetune.report.headline import headline  # noqa: E402
from edgetune.report.timeseries import compared  # noqa: E402
from tests.lib.report.test_report import JUDGED, SLOT, START, material  # noqa: E402
from tests.support.builders import samples, table_of  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "report.svg"
HOSTS, USUAL, FACTOR, SECONDS = 12, 3.0, 0.3, 600
WIDTH, LEFT = 960, 30
INK, SOFT = "#1c2128", "#646d78"


def main(path: Path = PICTURE) -> int:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        kept = material(Path(folder), hosts=HOSTS, factor=FACTOR, usual=USUAL, seconds=SECONDS)
    head = replace(kept.head, history=_history())
    shown = replace(kept, head=head, window=_whole(kept.plan))
    path.write_text(picture(shown), encoding="utf-8")
    return 0


def picture(kept: report.Material) -> str:
    """The whole image."""
    draw: Any = report._templates().get_template("pictures.html").module
    shown: list[Any] = report._pictures(kept)["pictures"][:1]
    judged = kept.looks[-1]
    rest = report._hosts(kept, judged, compared(kept.plan, kept.looks), {})
    body = [*_head(kept), *_legend(178)]
    top = 210
    for own in shown:
        body.append(_text(LEFT, top, own.title, weight=600))
        body.append(_text(WIDTH - LEFT, top, own.unit, fill=SOFT, anchor="end"))
        for line in own.text.split("; "):
            top += 18
            body.append(_text(LEFT, top, line, fill=SOFT))
        body.append(_placed(draw.timeseries(own), top + 4, 212))
        top += 238
    body.append(_text(LEFT, top, "Change of each host", weight=600))
    body.append(_placed(draw.spread(rest["host_picture"], kept.plan.intent.metric), top + 4, 124))
    height = top + 142
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="system-ui, \'DejaVu Sans\', sans-serif" font-size="14">\n'
        f"<style>{_style()}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _head(kept: report.Material) -> Iterator[str]:
    tuning, told = kept.plan.tuning, headline(kept.head)
    title = f"{tuning.name} {tuning.version} on {kept.head.pop}"
    yield _text(LEFT, 36, f"edgetune rollout {kept.head.id}", fill=SOFT)
    yield _text(LEFT, 68, title, size=26, weight=700)
    yield _text(LEFT, 96, told.verdict, fill="#0f7b3e", weight=600)
    for number, line in enumerate(textwrap.wrap(told.sentence, 112)):
        yield _text(LEFT, 122 + 20 * number, line, size=15)


def _legend(y: int) -> Iterator[str]:
    for x, group in ((LEFT, "test"), (LEFT + 100, "control")):
        yield f'<path class="steps {group}" d="M{x} {y - 4}h24"/>'
        yield _text(x + 30, y, group, fill=SOFT)


def _text(
    x: int, y: int, text: str, fill: str = INK, size: int = 14, weight: int = 400, anchor: str = ""
) -> str:
    style = f"fill: {fill}; font-size: {size}px; font-weight: {weight}"
    beside = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x}" y="{y}"{beside} style="{style}">{escape(text)}</text>'


def _placed(drawn: str, top: int, height: int) -> str:
    """The SVG of a wide page inside what a template drew, at its place."""
    found, _narrow = re.findall(r"<svg .*?</svg>", str(drawn), re.DOTALL)
    inner = "\n".join(line.strip() for line in found.splitlines() if line.strip())
    return inner.replace("<svg ", f'<svg x="{LEFT}" y="{top}" width="900" height="{height}" ', 1)


def _style() -> str:
    """The report's own rules for pictures, with the colours of its light page."""
    css = Path(report.__file__).with_name("page.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"(--\w+): (#\w+)", css.partition("@media")[0]))
    rules = css[css.index("svg text") : css.index("/* Tables of a narrow page")]
    text_rules = re.findall(r"^td\.\w+, (text\.\w+) \{.*?(fill: [^;]+;)", css, re.MULTILINE)
    rules += "".join(f"{selector} {{ {fill} }}\n" for selector, fill in text_rules)
    return re.sub(r"var\((--\w+)\)", lambda found: colours[found.group(1)], rules)


def _history() -> list[Entry]:
    begun = {"claimed": -30, "baseline": 0, "changing": SECONDS, "soaking": 2 * SECONDS}
    return [Entry(START + at, state, "ana", "") for state, at in begun.items()]


def _whole(plan: Plan) -> Window:
    """Samples from the baseline to the end of the soak; test hosts change in between."""
    tested = plan.groups.test
    names: Sequence[str] = plan.groups.hosts
    before = dict.fromkeys(names, USUAL)
    after = {name: USUAL * (FACTOR if name in tested else 1) for name in names}
    first = samples(before, START, SECONDS, boot="one", seed=3)
    last = {row["host"]: row["counters"] for row in first}
    second = samples(after, START + 2 * SECONDS, 2 * SECONDS, boot="one", seed=4)
    for row in second:
        for name, count in last[row["host"]].items():
            row["counters"][name] += count
        row["uptime"] += 2 * SECONDS
    table = table_of([*first, *second])
    metrics = {name: METRICS[name] for name in JUDGED}
    return read_window(table, list(names), START, START + 4 * SECONDS, SLOT, metrics)


if __name__ == "__main__":
    sys.exit(main())
