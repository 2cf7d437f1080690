# SPDX-License-Identifier: Apache-2.0
"""Begin a campaign, or show what it would do: as text, and as a page where these are written."""

from __future__ import annotations

from edgetune.base import clock
from edgetune.base.errors import InputError
from edgetune.fleet.campaign import control
from edgetune.rollout.context import Context


class BegunResult(control.BegunResult):
    """The same, with the page of a dry run: where it is, and its address. Both are empty without
    ``report_dir``."""

    path: str
    url: str


def run_campaign(
    context: Context, campaign: str, dry_run: bool = True, requested_by: str = "", channel: str = ""
) -> BegunResult:
    """As ``control.run_campaign``. A dry run writes its page over that of an earlier one; where it
    cannot be written the message says why."""
    told = control.run_campaign(context, campaign, dry_run, requested_by, channel)
    path = url = more = ""
    if dry_run and context.config.report_dir:
        try:
            path, url = _write_page(context, campaign, told)
            more = f"; its page is {url or path}"
        except InputError as error:
            more = f"; its page could not be written: {error}"
    return {**told, "path": path, "url": url, "message": told["message"] + more}


def _write_page(context: Context, campaign: str, told: control.BegunResult) -> tuple[str, str]:
    # What draws pages takes a while to import.
    from edgetune.report.campaign_page import planned_page
    from edgetune.report.files import CAMPAIGN, address_of, page_of, report_folder, write_page

    path = report_folder(context.config) / page_of(campaign, CAMPAIGN)
    write_page(context, path, planned_page(told["text"], clock.wall()))
    return str(path), address_of(context.config, path)
