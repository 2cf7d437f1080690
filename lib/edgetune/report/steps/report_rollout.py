# SPDX-License-Identifier: Apache-2.0
"""Write the report of a rollout to where people can read it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.baseline import Baseline
from edgetune.base.documents.head import CHANGES_HOSTS, ENDED, Head, phases
from edgetune.base.documents.look import Look
from edgetune.base.documents.table import SampleTable
from edgetune.base.durations import utc
from edgetune.base.errors import EdgetuneError, InputError, RefusedError
from edgetune.intent.metrics.catalogue import metrics_of
from edgetune.intent.tuning import Tuning
from edgetune.judge.series import Window, read_window
from edgetune.report.capacity import capacity_if_read
from edgetune.report.files import address_of, page_of, report_folder, write_page, write_picture
from edgetune.report.page import Event, Material, card, page
from edgetune.report.text import wait_text
from edgetune.rollout.context import Context
from edgetune.rollout.gates.freeze import why_frozen
from edgetune.rollout.gates.pause import Pause, pause_text, pauses_of
from edgetune.rollout.ownership.automation import needed_rules, what_is_off
from edgetune.rollout.record.rollout import Record, read_rollout

_SLOTS = 240
"""How many a picture has at most."""
_SAMPLES = 3
"""How many a slot has at least: some come late."""


class ReportResult(TypedDict):
    """Where page and picture are; all but ``path`` may be empty."""

    rollout: str
    path: str
    url: str
    image: str
    image_url: str
    message: str


def report_rollout(context: Context, rollout: str) -> ReportResult:
    """Write one page of HTML about a rollout, over an earlier one, and the index of all rollouts.

    Where the configuration names a browser, ``image`` is a PNG of the headline, for chat.

    InputError: there is no such rollout, or ``report_dir`` of the configuration does not permit
    it. What the record or the samples do not hold (any more) is named on the page.
    """
    opened, config = read_rollout(context, rollout), context.config
    path = report_folder(config) / page_of(opened.head.id)
    material = _material(opened)
    write_page(context, path, page(material))
    image = write_picture(config, path.with_suffix(".png"), card(material))
    url = address_of(config, path)
    return {
        "rollout": opened.head.id,
        "path": str(path),
        "url": url,
        "image": image,
        "image_url": address_of(config, Path(image)) if image else "",
        "message": f"the report is {url or path}",
    }


def _material(opened: Record) -> Material:
    now, head = clock.wall(), opened.head
    missing: list[str] = []
    baseline, pauses = opened.baseline(), pauses_of(opened.context, head.pop)
    if head.baseline and baseline is None and head.state != "baseline":
        missing.append("The record has no baseline.")
    return Material(
        head=head,
        plan=opened.plan,
        baseline=baseline,
        looks=_looks(opened, missing),
        batches=list(opened.batches()),
        window=_window(opened, baseline, phases(head.history, now)[-1].end, missing),
        pauses=_pauses(head, pauses),
        paused=""
        if head.state in ENDED
        else (pause_text(opened.head.pop, pauses) or why_frozen(opened.context, opened.head)),
        waits=_waits(opened),
        missing=missing,
        off=what_is_off(opened.context, needed_rules([head])),
        made=now,
        tuning=_tuning(opened),
        capacity=capacity_if_read(opened.context, head.id, missing),
    )


def _tuning(opened: Record) -> Tuning | None:
    """That of the plan, with its reasons; None if the catalogue holds another one by now."""
    planned = opened.plan.tuning
    try:
        found = opened.context.tuning(planned.name)
    except InputError:
        return None
    return found if found.digest == planned.digest else None


def _waits(opened: Record) -> str:
    """What the present batch waits for; a state that changes no host has none."""
    return wait_text(opened.wait) if opened.head.state in CHANGES_HOSTS else ""


def _pauses(head: Head, pauses: Mapping[str, Pause]) -> list[Event]:
    """Those of its time; of each cause only the last one is known."""
    end = head.history[-1].at if head.state in ENDED else math.inf
    return [
        Event(pause.at, "state", "paused" if pause.paused else "resumed", text, pause.by)
        for cause, pause in pauses.items()
        for text in [": ".join(filter(None, (cause, pause.reason)))]
        if head.created <= pause.at <= end
    ]


def _looks(opened: Record, missing: list[str]) -> list[Look]:
    looks: list[Look] = []
    for number in range(opened.head.looks):
        try:
            looks.append(opened.look(number))
        except RefusedError as error:
            missing.append(f"{error}.")
    return looks


def _window(
    opened: Record, baseline: Baseline | None, until: float, missing: list[str]
) -> Window | None:
    """What the samples that are still there tell, in few slots."""
    if not opened.head.baseline:
        return None
    plan, start = opened.plan, opened.head.baseline[0]
    interval = plan.options.interval
    slot = interval * max(_SAMPLES, math.ceil((until - start) / interval / _SLOTS))
    hosts = plan.groups.hosts
    exposures = baseline.exposures if baseline else {}
    try:
        read = opened.context.samples.thinned
        samples = read(opened.head.pop, start, until, slot, 2 * interval)
        window = read_window(samples, hosts, start, until, slot, metrics_of(plan), exposures)
    except EdgetuneError as error:
        missing.append(f"The samples are not known: {error}.")
        return None
    begun = _first_of(samples, {*window.hosts})
    if begun is None:
        missing.append("No samples of that time are left; the pictures show what the record holds.")
        return None
    if begun > start + 2 * slot:
        missing.append(f"The samples that are left begin at {utc(begun)}.")
    return window


def _first_of(samples: SampleTable, hosts: Collection[str]) -> float | None:
    """When the first sample of these hosts was taken."""
    known = [name in hosts for name in samples.hosts]
    times = (time for host, time in zip(samples.host, samples.time) if known[host])
    return min(times, default=None)
