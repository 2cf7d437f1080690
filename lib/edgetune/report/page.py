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
from typing import TYPE_CHECKING, Any

import jinja2

from edgetune import __version__
from edgetune.documents.baseline import Baseline
from edgetune.documents.look import Look
from edgetune.documents.plan import Plan
from edgetune.durations import duration
from edgetune.judge.outliers import changes_of, odd_hosts
from edgetune.metrics.catalogue import METRICS, UNITS
from edgetune.report.axes import number
from edgetune.report.course import compared, courses
from edgetune.report.diagnosis import hosts_text
from edgetune.report.phases import phases, runs
from edgetune.report.pictures import forest, host_picture, time_picture
from edgetune.report.text import (
    clock,
    evidence_text,
    prospect_text,
    service_text,
    value_text,
)
from edgetune.texts import one_line

if TYPE_CHECKING:
    from edgetune.metrics.series import Window

Document = Mapping[str, Any]

_DOES = {"change": "change", "sham": "reboot only", "restore": "take back"}
_DONE = {"change": "changed", "sham": "rebooted only", "restore": "as before"}


@dataclass(frozen=True)
class Material:
    """Documents of the record as it keeps them, and what the samples tell, if they are there.

    ``batches`` are those that there are or will be; ``pauses`` are the last ones of the PoP in
    its time, each with its ``cause``, ``paused`` says which stand, ``waits`` what the present
    batch waits for; ``missing`` says in sentences what is not known, ``off`` what does not go on
    by itself, ``made`` is when this was read.
    """

    head: Document
    plan: Plan
    baseline: Baseline | None
    looks: Sequence[Look]
    batches: Sequence[Document]
    window: Window | None
    pauses: Sequence[Document]
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
            verdict=head["verdict"]["verdict"] if head["verdict"] else "",
            sentence=head["verdict"]["reason"] if head["verdict"] else "",
            since=runs(head["history"])[-1][0]["at"],
            present=_present(head),
            prospect=_prospect(material.baseline),
            profiles=[profile for profile in plan.profiles if profile.before],
            groups=plan.groups,
            batches=[_batch(batch) for batch in material.batches],
            **_pictures(material),
            forest=forest(judged.metrics) if judged else None,
            **_hosts(material, judged, members),
            timeline=_timeline(material),
        )
    )


def _prospect(baseline: Baseline | None) -> str:
    return prospect_text(baseline.power) if baseline and baseline.power else ""


def _present(head: Document) -> Document:
    """Why the rollout is where it is: the first entry of its state, or of the way back to it."""
    state = "rolling_back" if head["state"] == "rolled_back" else head["state"]
    begun = [own[0] for own in reversed(runs(head["history"]))]
    return next((entry for entry in begun if entry["state"] == state), begun[0])


def _pictures(material: Material) -> dict[str, Any]:
    """A picture for each metric of which something happened; the names of the others."""
    shown = phases(material.head["history"], material.made)
    found = courses(material.plan, material.baseline, material.looks, material.window)
    return {
        "pictures": [time_picture(own, shown) for own in found if any(own.values)],
        "quiet": [METRICS[own.metric].title for own in found if own.values and not any(own.values)],
        "unknown": [METRICS[own.metric].title for own in found if not own.values],
    }


def _hosts(
    material: Material, judged: Look | None, members: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """The table of hosts and the picture of their changes."""
    plan, rows = material.plan, judged.hosts if judged else {}
    metrics = list(rows)
    changes = changes_of(rows)
    strata = plan.strata.values()
    odd = odd_hosts(changes, [[*own[group]] for own in strata for group in ("test", "control")])
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
            for group, own in plan.groups.items()
            for host in sorted(own, key=lambda name: (name not in odd, -first.get(name, 0.0)))
        ],
    }


def _stands(host: str, batches: Sequence[Document]) -> str:
    """What was last done to a host."""
    for batch in reversed(batches):
        step = batch["hosts"].get(host, {"step": "planned"})
        if step["step"] != "planned":
            what = _DONE[batch["batch_type"]] if step["step"] == "done" else step["step"]
            return f"{what}: {step['error']}" if step["error"] else what
    return "untouched"


def _batch(batch: Document) -> dict[str, Any]:
    steps = [step["step"] for step in batch["hosts"].values()]
    return {
        **batch,
        "does": _DOES[batch["batch_type"]],
        "ended": max((step["at"] for step in batch["hosts"].values()), default=0.0),
        "counts": {step: steps.count(step) for step in dict.fromkeys(steps)},
    }


def _timeline(material: Material) -> list[dict[str, Any]]:
    """What happened, oldest first."""
    return sorted(_events(material), key=lambda event: event["at"])


def _events(material: Material) -> Iterator[dict[str, Any]]:
    for entry in material.head["history"]:
        told = {"what": entry["state"], "text": entry["reason"], "by": entry["by"]}
        yield {"at": entry["at"], "kind": "state", **told}
    for batch in map(_batch, material.batches):
        counts = ", ".join(f"{count} {step}" for step, count in batch["counts"].items())
        text = f"{batch['does']}: {hosts_text(list(batch['hosts']))}: {counts}"
        what = f"batch {batch['number']}"
        if batch["ended"]:
            yield {"at": batch["ended"], "kind": "batch", "what": what, "text": text, "by": ""}
    for pause in material.pauses:
        what = "paused" if pause["paused"] else "resumed"
        text = f"{pause['cause']}: {pause['reason']}" if pause["reason"] else pause["cause"]
        yield {"at": pause["at"], "kind": "state", "what": what, "text": text, "by": pause["by"]}
    for look in material.looks:
        what = f"look {look.moment.number if look.moment else ''}"
        text = f"{look.verdict}: {look.decision}"
        yield {"at": look.at or 0.0, "kind": "look", "what": what, "text": text, "by": ""}


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


def _plain(value: Any) -> Any:
    """Texts without what moves a cursor or turns the direction of writing round."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return one_line(value)
    return value


def _level(value: float | None, exposure: str) -> str:
    return "–" if value is None else number(value * UNITS[exposure].scale)


def _probability(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"
