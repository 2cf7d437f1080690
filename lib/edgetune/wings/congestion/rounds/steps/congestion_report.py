# SPDX-License-Identifier: Apache-2.0
"""Say how the congestion control of PoPs stands, and write the page of one."""

from __future__ import annotations

from typing import TypedDict

from edgetune.base import clock
from edgetune.base.documents.congestion import Chosen
from edgetune.base.documents.rounds import Decisions, Rounds
from edgetune.base.errors import DamagedError
from edgetune.report.congestion import (
    CongestionMaterial,
    color_of_congestion,
    congestion_text,
    overview_text,
    state_text,
)
from edgetune.rollout.context import Context
from edgetune.wings.congestion.rounds.work import open_rounds, read_known, tuned_pops


class CongestionReportResult(TypedDict):
    """``path`` and ``url`` are empty where no page was written."""

    pop: str
    path: str
    url: str
    message: str
    text: str
    color: str


def congestion_report(context: Context, pop: str = "") -> CongestionReportResult:
    """A PoP in full, and its page where the configuration has ``report_dir``; without ``pop`` a
    line for each that is tuned. Reads only.

    InputError for a PoP that the inventory does not have.
    """
    path = url = color = ""
    if pop:
        material = _material(context, pop)
        path, url = _page(context, material) if context.config.report_dir else ("", "")
        where = f"; the report is {url or path}" if path else ""
        message, text = f"{pop}: {state_text(material)}{where}", congestion_text(material)
        color = color_of_congestion(material)
    else:
        materials = [_material(context, name) for name in tuned_pops(context)]
        message, text = f"PoPs that are tuned: {len(materials)}", overview_text(materials)
    return {"pop": pop, "path": path, "url": url, "message": message, "text": text, "color": color}


def _page(context: Context, material: CongestionMaterial) -> tuple[str, str]:
    from edgetune.report.congestion import congestion_page
    from edgetune.report.files import CONGESTION, address_of, page_of, report_folder, write_page

    path = report_folder(context.config) / page_of(material.pop, CONGESTION)
    write_page(context, path, congestion_page(material))
    return str(path), address_of(context.config, path)


def _material(context: Context, name: str) -> CongestionMaterial:
    pop = context.known_inventory.pop(name)
    missing: list[str] = []
    decisions: Decisions | None = None
    rounds = Rounds(name)
    chosen: list[Chosen] = []
    try:
        decisions = read_known(context, name)
        rounds = open_rounds(context.config).get(name) or rounds
        chosen = _chosen(name, rounds)
    except DamagedError as error:
        missing.append(f"{error}.")
    hosts = [host.name for host in pop.hosts]
    entry = pop.congestion is not None
    now = clock.wall()
    return CongestionMaterial(name, entry, hosts, decisions, rounds, chosen, missing, now)


def _chosen(name: str, rounds: Rounds) -> list[Chosen]:
    from edgetune.wings.congestion.selection import read_selection

    if not rounds.selection:
        return []
    return [*read_selection(f"the selection of {name}", rounds.selection).chosen]
