# SPDX-License-Identifier: Apache-2.0
"""The report of a rollout: one page of HTML that needs nothing else, neither scripts nor files.

All that hosts, people and files said is escaped by the templates (``page.html``,
``pictures.html``); ``Material`` is what a page is made of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jinja2

from edgetune import __version__
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.baseline import Baseline
from edgetune.base.documents.batch import Batch
from edgetune.base.documents.capacity import Capacity
from edgetune.base.documents.head import Head, batch_name, phases, runs
from edgetune.base.documents.look import Judged, Look
from edgetune.base.documents.plan import Plan
from edgetune.base.documents.settings import value_text
from edgetune.base.durations import duration, utc
from edgetune.base.names import hosts_text, several
from edgetune.base.numbers import bounds, number, share
from edgetune.base.sanitize import one_line
from edgetune.intent.metrics.catalogue import metrics_of
from edgetune.intent.tuning import Tuning
from edgetune.judge.capacity import limit_text
from edgetune.judge.outliers import beside_control, changes_of, odd_hosts
from edgetune.judge.verdict import noted, probability, prospect_text
from edgetune.net.bmc.answers import evidence_text
from edgetune.report import effects
from edgetune.report.capacity import pairs_of
from edgetune.report.headline import Out, headline, next_steps, out_text, requests_text, times_out
from edgetune.report.pictures import (
    DayPicture,
    TimePicture,
    day_picture,
    forest,
    host_picture,
    time_picture,
)
from edgetune.report.results import headroom_text, passed_text, results_of
from edgetune.report.text import service_text
from edgetune.report.timeseries import compared, days_of, timeseries_of

if TYPE_CHECKING:
    from edgetune.judge.series import Window

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

    name: str
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
    this was read. ``tuning`` is that of the plan, None once the catalogue holds another one.
    ``capacity`` is the last measurement of it, None without one.
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
    tuning: Tuning | None = None
    capacity: Capacity | None = None


def page(material: Material) -> str:
    """The whole page."""
    head, plan, looks = material.head, material.plan, material.looks
    judged = newest_judged(looks)
    power = material.baseline.power if material.baseline else None
    members = compared(plan, looks)
    out = times_out(material.batches, material.made)
    # Why the rollout is where it is: the first entry of its state, or of the way back to it.
    state = "rolling_back" if head.state == "rolled_back" else head.state
    begun = [own[0] for own in reversed(runs(head.history))]
    return render(
        "page.html",
        material.made,
        head=head,
        plan=plan,
        headline=headline(head),
        steps=next_steps(head),
        tuning=material.tuning,
        baseline=material.baseline,
        looks=looks,
        judged=judged,
        results=results_of(Judged(judged, plan) if judged else None, material.capacity),
        pairs=pairs_of(material.capacity),
        paused=material.paused,
        waits=material.waits,
        missing=material.missing,
        off=material.off,
        out_text=out_text(out),
        requests=requests_text(plan, material.batches),
        since=runs(head.history)[-1][0].at,
        present=next((entry for entry in begun if entry.state == state), begun[0]),
        prospect=prospect_text(power) if power else "",
        profiles=[profile for profile in plan.profiles if profile.before],
        groups=plan.groups,
        batches=[_batch(material, batch) for batch in material.batches],
        **_pictures(material),
        daily=_daily(material),
        forest=forest(judged.metrics, metrics_of(plan)) if judged else None,
        **_hosts(material, judged, members, out),
        timeline=sorted(_events(material), key=lambda event: event.at),
    )


def card(material: Material) -> str:
    """A small page with the headline and the first picture, to be drawn as a PNG for chat."""
    judged = newest_judged(material.looks)
    found = Judged(judged, material.plan) if judged else None
    return render(
        "card.html",
        material.made,
        head=material.head,
        plan=material.plan,
        headline=headline(material.head),
        effect=judged.metrics[0] if judged else None,
        results=results_of(found, material.capacity),
        pictures=_pictures(material)["pictures"][:1],
    )


def newest_judged(looks: Sequence[Look]) -> Look | None:
    """The newest look that compared something."""
    return next((look for look in reversed(looks) if look.metrics), None)


def render(template: str, made: float, **given: object) -> str:
    """A page of a template of this room; whatever is ``given`` is escaped there."""
    return _templates().get_template(template).render(made=made, version=__version__, **given)


def _pictures(material: Material) -> dict[str, list[TimePicture] | list[str]]:
    """A picture for each metric of which something happened; the names of the others."""
    shown = phases(material.head.history, material.made)
    found = timeseries_of(material.plan, material.baseline, material.looks, material.window)
    quiet = [own for own in found if own.is_whole and not any(own.values)]
    return {
        "pictures": [time_picture(own, shown) for own in found if own.values and own not in quiet],
        "quiet": [own.title for own in quiet],
        "unknown": [own.title for own in found if not own.values],
    }


def _daily(material: Material) -> DayPicture | None:
    """The daily sums of the intent's metric, where there are days."""
    plan = material.plan
    days = days_of(plan, material.looks, material.window)
    title = metrics_of(plan)[plan.intent.metric].title
    return day_picture(title, days, phases(material.head.history, material.made))


def _hosts(
    material: Material,
    judged: Look | None,
    members: Mapping[str, Sequence[str]],
    out: Mapping[str, Out],
) -> dict[str, object]:
    """The table of hosts and the picture of their changes."""
    plan = material.plan
    rows = beside_control(judged.hosts, plan.strata) if judged else {}
    metrics = list(rows)
    changes = changes_of(rows)
    strata = plan.strata.values()
    odd = odd_hosts(changes, [group for own in strata for group in (own.test, own.control)])
    part = noted(judged.metrics[0].measured) if judged else ""
    first = changes.get(plan.intent.metric, {})
    by_group = {g: {h: first[h] for h in own if h in first} for g, own in members.items()}
    return {
        "metrics": metrics,
        "odd": odd,
        "host_picture": host_picture(by_group, list(odd), part),
        "hosts": [
            {
                "name": host,
                "group": group,
                "compared": host in members[group],
                "stands": _stands(host, material.batches),
                "out": out.get(host, Out()),
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


def _batch(material: Material, batch: Batch) -> BatchRow:
    steps = [own.step for own in batch.hosts.values()]
    counts = {step: steps.count(step) for step in dict.fromkeys(steps)}
    ended = max((own.at for own in batch.hosts.values()), default=0.0)
    name = batch_name(material.head, material.plan, batch.number)
    return BatchRow(name, _DOES[batch.batch_type], batch.group, list(batch.hosts), counts, ended)


def _events(material: Material) -> Iterator[Event]:
    for entry in material.head.history:
        yield Event(entry.at, "state", entry.state, entry.reason, entry.by)
    for batch in (_batch(material, own) for own in material.batches):
        counts = ", ".join(f"{count} {step}" for step, count in batch.counts.items())
        text = f"{batch.does}: {hosts_text(batch.hosts)}: {counts}"
        if batch.ended:
            yield Event(batch.ended, "batch", batch.name, text)
    yield from material.pauses
    for look in material.looks:
        what = f"look {look.moment.number if look.moment else ''}"
        told = f"{look.verdict}: {look.decision}".replace("_", " ")
        yield Event(look.at or 0.0, "look", what, told)


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
        better=lambda metric: {"lower": "less", "higher": "more"}[metric.better],
        bounds=bounds,
        caveat=effects.caveat,
        capitalise=lambda text: text[:1].upper() + text[1:],
        utc=utc,
        duration=duration,
        effect=effects.effect_text,
        evidence=evidence_text,
        service=service_text,
        headroom=headroom_text,
        hosts=hosts_text,
        level=effects.level,
        limit=lambda row, metric: limit_text(row.metric, row.limit, metric),
        local=local,
        metric=lambda plan, name: metrics_of(plan)[name],
        moved=effects.moved_per,
        number=number,
        p=probability,
        passed=passed_text,
        said=effects.said_of,
        several=several,
        share=share,
        stamp=stamp,
        unit=effects.unit_of,
        value=value_text,
        words=lambda text: str(text).replace("_", " "),
        zone=zone,
    )
    environment.tests["link"] = lambda text: bool(re.fullmatch(r"https?://\S+", str(text)))
    return environment


def _plain(value: object) -> object:
    """Texts without what moves a cursor or turns the direction of writing round."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return one_line(value)
    return value


def local(seconds: float) -> str:
    """A moment in the controller's time zone, with the zone's name; the day where it is not that
    of UTC. Empty where the zone is UTC itself."""
    utc = datetime.fromtimestamp(seconds, tz=timezone.utc)
    here = utc.astimezone()
    if not here.utcoffset():
        return ""
    day = "" if here.date() == utc.date() else "%b %d "
    return here.strftime(f"{day}%H:%M:%S %Z")


def zone(seconds: float) -> str:
    """The controller's time zone at a moment, such as "CEST, UTC+02:00"; empty for UTC."""
    here = datetime.fromtimestamp(seconds, tz=timezone.utc).astimezone()
    return (
        here.strftime("%Z, UTC%z")[:-2] + ":" + here.strftime("%z")[-2:] if local(seconds) else ""
    )


def stamp(seconds: float) -> str:
    """A moment as programs read it (ISO 8601, UTC)."""
    return datetime.fromtimestamp(seconds, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
