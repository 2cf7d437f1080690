# SPDX-License-Identifier: Apache-2.0
"""Write the report of a campaign to where people can read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.campaign import Record
from edgetune.base.documents.head import Head
from edgetune.base.documents.look import Effect, Judged
from edgetune.base.documents.metric import Metric
from edgetune.base.documents.reading import decoded
from edgetune.base.errors import RefusedError
from edgetune.fleet.campaign.record import read_record
from edgetune.fleet.campaign.rings import heads_of
from edgetune.intent.metrics.catalogue import metrics_of
from edgetune.report.campaign_page import CampaignMaterial, campaign_page
from edgetune.report.capacity import capacity_if_read
from edgetune.report.files import CAMPAIGN, address_of, page_of, report_folder, write_page
from edgetune.report.results import results_of
from edgetune.report.steps.campaign_status import present_schedule, waits_of
from edgetune.rollout.context import Context
from edgetune.rollout.record.rollout import Record as RolloutRecord


class CampaignReportResult(TypedDict):
    """Where the page is; ``url`` may be empty."""

    campaign: str
    path: str
    url: str
    message: str


def report_campaign(context: Context, campaign: str) -> CampaignReportResult:
    """Write one page of HTML about a campaign, over an earlier one, and the index of rollouts.

    InputError: there is no such campaign, or ``report_dir`` of the configuration does not permit
    it. What the records do not hold is named on the page.
    """
    record = read_record(context, campaign)
    folder = report_folder(context.config)
    heads = heads_of(context, record)
    missing: list[str] = []
    metrics: dict[str, Metric] = {}
    judged = _judged(context, record, heads, metrics, missing)
    material = CampaignMaterial(
        record=record,
        heads=heads,
        effects={name: own.look.metrics[0] for name, own in judged.items()},
        results={
            name: results_of(judged.get(name), capacity_if_read(context, pop.rollout, missing))
            for name, pop in record.pops.items()
            if pop.rollout in heads
        },
        pooled=_pooled(record, metrics, missing),
        metrics=metrics,
        waits=waits_of(context, record, heads),
        missing=missing,
        files={path.name for path in folder.iterdir()} if folder.is_dir() else set(),
        made=clock.wall(),
        schedule=present_schedule(context, record, heads),
    )
    path = folder / page_of(record.id, CAMPAIGN)
    write_page(context, path, campaign_page(material))
    url = address_of(context.config, path)
    return {
        "campaign": record.id,
        "path": str(path),
        "url": url,
        "message": f"the report is {url or path}",
    }


def _judged(
    context: Context,
    record: Record,
    heads: Mapping[str, Head],
    metrics: dict[str, Metric],
    missing: list[str],
) -> dict[str, Judged]:
    """The newest look of each PoP's rollout that compared something.

    ``metrics`` gets the definitions of what is compared.
    """
    found = {}
    for name, pop in record.pops.items():
        if pop.rollout not in heads:
            continue
        try:
            opened = RolloutRecord(context, heads[pop.rollout])
            looks = map(opened.look, reversed(range(opened.head.looks)))
            look = next((own for own in looks if own.metrics), None)
            if look is None:
                continue
            found[name] = Judged(look, opened.plan)
            if look.metrics[0].metric not in metrics:
                metrics.update(metrics_of(opened.plan))
        except RefusedError as error:
            missing.append(f"{name}: {error}.")
            found.pop(name, None)
    return found


def _pooled(record: Record, known: Mapping[str, Metric], missing: list[str]) -> dict[str, Effect]:
    """What the verdict over all PoPs of a ring found, of the metrics that are ``known``."""
    found = {}
    for ring in record.rings:
        metrics = ring.verdict.get("metrics")
        try:
            for row in metrics[:1] if isinstance(metrics, list) else []:
                effect = decoded(f"ring {ring.name}", Effect, row)
                if effect.metric in known:
                    found[ring.name] = effect
                else:
                    missing.append(f"ring {ring.name}: no plan says what {effect.metric} is.")
        except RefusedError as error:
            missing.append(f"{error}.")
    return found
