# SPDX-License-Identifier: Apache-2.0
"""The report of a rollout: one page of HTML that needs nothing else, neither scripts nor files.

All that hosts, people and files said is escaped by the templates (``page.html``,
``pictures.html``); ``Material`` is what a page is made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jinja2

from edgetune import __version__
from edgetune.documents.baseline import Baseline
from edgetune.documents.batch import Batch
from edgetune.documents.head import Entry, Head
from edgetune.documents.look import Look
from edgetune.documents.plan import Plan
from edgetune.durations import duration
from edgetune.judge.outliers import changes_of, odd_hosts
from edgetune.metrics.catalogue import METRICS, UNITS
from edgetune.report.axes import number
from edgetune.report.diagnosis import hosts_text
from edgetune.report.phases import phases, runs
from edgetune.report.pictures import TimePicture, forest, host_picture, time_picture
from edgetune.report.text import (
    clock,
    evidence_text,
    prospect_text,
    service_text,
    value_text,
)
from edgetune.report.timeseries import compared, timeseries_of
from edgetune.sanitize import one_line

if TYPE_CHECKING:
    from edgetune.metrics.series import Window

_DOES = {"change": "change", "sham": "reboot only", "restore": "take back"}
_DONE = {"change": "changed", "sham": "rebooted only", "restore": "as before"}


class Event(NamedTuple):
    """What happened ``at`` a moment; ``kind`` is ``state``, ``batch`` or ``look``."""

    at: float
    kind: str
    what: str
    text: str
    by: str = ""


class BatchRow(NamedTuple):
    """A batch as the page shows it: how many hosts are at each step, and when the last came."""

    number: int
    does: str
    group: str
    hosts: list[str]
    counts: dict[str, int]
    ended: float


@dataclass(frozen=True)
class Material:
    """Documents of the record, and what the samples tell, if they are there.

    ``batches`` are those that there are or will be; ``pauses`` are the last ones of the PoP in
    its time, ``paused`` says which stand, ``waits`` what the present batch waits for; ``missing``
    says in sentences what is not known, ``off`` what does not go on by itself, ``made`` is when
    this was read.
    """

    head: Head
    plan: Plan
    baseline: Baseline | None
    looks: Sequence[Look]
    batches: Sequence[Batch]
    window: Window | None
    pauses: Sequence[Event]
    paused: str
    waits: str
    missing: Sequence[str]
    off: Sequence[str]
    made: float


def page(material: Material) -> str:
    """The whole page."""
    head, plan, looks = material.head, material.plan, material.looks
    judged = next((look for look in reversed(looks) if look.metrics), None)
    members = compared(plan, looks)
    return (
        _templates()
        .get_template("page.html")
        .render(
            head=head,
            plan=plan,
            baseline=material.baseline,
            looks=looks,
            judged=judged,
            version=__version__,
            made=material.made,
            paused=material.paused,
            waits=material.waits,
            missing=material.missing,
            off=material.off,
            verdict=head.verdict.verdict.value if head.verdict else "",
            sentence=head.verdict.reason if head.verdict else "",
            since=runs(head.history)[-1][0].at,
            present=_present(head),
            prospect=_prospect(material.baseline),
            profiles=[profile for profile in plan.profiles if profile.before],
            groups=plan.groups,
            batches=[_batch(batch) for batch in material.batches],
            **_pictures(material)._asdict(),
            forest=forest(judged.metrics) if judged else None,
            **_hosts(material, judged, members),
            timeline=_timeline(material),
        )
    )


def _prospect(baseline: Baseline | None) -> str:
    return prospect_text(baseline.power) if baseline and baseline.power else ""


def _present(head: Head) -> Entry:
    """Why the rollout is where it is: the first entry of its state, or of the way back to it."""
    state = "rolling_back" if head.state == "rolled_back" else head.state
    begun = [own[0] for own in reversed(runs(head.history))]
    return next((entry for entry in begun if entry.state == state), begun[0])


class Pictures(NamedTuple):
    """A picture for each metric of which something happened; the names of the others."""

    pictures: list[TimePicture]
    quiet: list[str]
    unknown: list[str]


def _pictures(material: Material) -> Pictures:
    shown = phases(material.head.history, material.made)
    found = timeseries_of(material.plan, material.baseline, material.looks, material.window)
    quiet = [own for own in found if own.values and not any(own.values)]
    return Pictures(
        [time_picture(own, shown) for own in found if any(own.values)],
        [METRICS[own.metric].title for own in quiet],
        [METRICS[own.metric].title for own in found if not own.values],
    )


def _hosts(
    material: Material, judged: Look | None, members: Mapping[str, Sequence[str]]
) -> dict[str, object]:
    """The table of hosts and the picture of their changes."""
    plan, rows = material.plan, judged.hosts if judged else {}
    metrics = list(rows)
    changes = changes_of(rows)
    strata = plan.strata.values()
    odd = odd_hosts(changes, [group for own in strata for group in (own.test, own.control)])
    first = changes.get(plan.intent.metric, {})
    by_group = {g: {h: first[h] for h in own if h in first} for g, own in members.items()}
    return {
        "metrics": metrics,
        "odd": odd,
        "host_picture": host_picture(by_group, list(odd)),
        "hosts": [
            {
                "name": host,
                "group": group,
                "compared": host in members[group],
                "stands": _stands(host, material.batches),
                "rows": [rows[metric].get(host, [None] * 3) for metric in metrics],
                "odd": list(odd.get(host, {})),
            }
            for group, own in plan.groups.named.items()
            for host in sorted(own, key=lambda name: (name not in odd, -first.get(name, 0.0)))
        ],
    }


def _stands(host: str, batches: Sequence[Batch]) -> str:
    """What was last done to a host."""
    for batch in reversed(batches):
        own = batch.hosts.get(host)
        if own and own.step != "planned":
            what = _DONE[batch.batch_type] if own.step == "done" else own.step
            return f"{what}: {own.error}" if own.error else what
    return "untouched"


def _batch(batch: Batch) -> BatchRow:
    steps = [own.step for own in batch.hosts.values()]
    counts = {step: steps.count(step) for step in dict.fromkeys(steps)}
    ended = max((own.at for own in batch.hosts.values()), default=0.0)
    return BatchRow(
        batch.number, _DOES[batch.batch_type], batch.group, list(batch.hosts), counts, ended
    )


def _timeline(material: Material) -> list[Event]:
    """What happened, oldest first."""
    return sorted(_events(material), key=lambda event: event.at)


def _events(material: Material) -> Iterator[Event]:
    for entry in material.head.history:
        yield Event(entry.at, "state", entry.state, entry.reason, entry.by)
    for batch in map(_batch, material.batches):
        counts = ", ".join(f"{count} {step}" for step, count in batch.counts.items())
        text = f"{batch.does}: {hosts_text(batch.hosts)}: {counts}"
        if batch.ended:
            yield Event(batch.ended, "batch", f"batch {batch.number}", text)
    yield from material.pauses
    for look in material.looks:
        what = f"look {look.moment.number if look.moment else ''}"
        yield Event(look.at or 0.0, "look", what, f"{look.verdict}: {look.decision}")


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_plain,
    )
    environment.filters.update(
        bound=lambda value, other: other if value is None else number(value),
        clock=clock,
        duration=duration,
        evidence=evidence_text,
        service=service_text,
        hosts=hosts_text,
        level=_level,
        number=number,
        p=_probability,
        title=lambda metric: METRICS[metric].title,
        worse=lambda metric: METRICS[metric].sign_of_worse,
        unit=lambda exposure: UNITS[exposure].text,
        value=value_text,
        words=lambda text: str(text).replace("_", " "),
    )
    return environment


def _plain(value: object) -> object:
    """Texts without what moves a cursor or turns the direction of writing round."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return one_line(value)
    return value


def _level(value: float | None, exposure: str) -> str:
    return "–" if value is None else number(value * UNITS[exposure].scale)


def _probability(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"
