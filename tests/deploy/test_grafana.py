# SPDX-License-Identifier: Apache-2.0
"""The dashboard: each query of each panel has an answer of a Prometheus that scraped /metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from edgetune.fleet.export.families import FAMILIES
from lab.serve.metrics import metrics_served
from tests.support import ROOT
from tests.support.exported import fleet
from tests.support.programs import free_port
from tests.support.real_prometheus import needs_prometheus
from tests.support.scraped import Scraping, filled, prometheus

DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/edgetune.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUERIES = [
    (f"{panel['title']} {target['refId']}", target["expr"])
    for panel in PANELS
    for target in panel["targets"]
]
ENDS = {"summary": ("_sum", "_count")}


def test_it_is_one_dashboard_on_any_data_source() -> None:
    assert DASHBOARD["uid"] == "edgetune"
    assert "id" not in DASHBOARD
    variables = {own["name"]: own for own in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    sources = [own["datasource"] for own in [*PANELS, *(t for p in PANELS for t in p["targets"])]]
    sources.append(variables["pop"]["datasource"])
    assert {json.dumps(source) for source in sources} == {
        json.dumps({"type": "prometheus", "uid": "${datasource}"})
    }


def test_queries_name_metrics_that_are_exported_and_only_the_newest_export() -> None:
    known = {f.name + end for f in FAMILIES for end in ENDS.get(f.type, ("",))}
    for _, expr in QUERIES:
        assert {*re.findall(r"edgetune_\w+", expr)} <= known, expr
        newest = "edgetune:newest_export" in expr
        assert newest or "max(edgetune_export_timestamp_seconds)" in expr, expr


def test_the_picture_of_the_docs_shows_each_panel() -> None:
    """docs/dashboard_picture.py draws it anew."""
    shown = unescape((ROOT / "docs" / "images" / "dashboard.svg").read_text())
    assert [own["title"] for own in PANELS if f">{own['title']}<" not in shown] == []


@pytest.fixture(scope="module")
def scraping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraping]:
    world = fleet(tmp_path_factory.mktemp("fleet"))
    address = ("127.0.0.1", free_port())
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with (
        metrics_served(world.config, address),
        prometheus(folder, f"127.0.0.1:{address[1]}") as own,
    ):
        own.wait_for("edgetune:newest_export")
        # A rate needs two samples.
        own.wait_for("count_over_time(edgetune_looks_total[30s]) > 2")
        yield own


class TestAnswers:
    pytestmark = needs_prometheus

    @pytest.mark.parametrize("expr", [pytest.param(expr, id=id) for id, expr in QUERIES])
    def test_a_query_has_an_answer(self, scraping: Scraping, expr: str) -> None:
        # On a busy machine a scrape may fail, and for a second nothing is known.
        scraping.wait_for(filled(expr))

    def test_the_list_of_pops_has_an_answer(self, scraping: Scraping) -> None:
        asked = DASHBOARD["templating"]["list"][1]["definition"]
        name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", asked).groups()  # type: ignore[union-attr]
        with urlopen(f"{scraping.url}/api/v1/label/{label}/values?match[]={name}") as answer:
            assert json.load(answer)["data"] == ["ams1", "b1", "c1", "d1", "lab1"]

    def test_the_rules_of_the_pack_find_what_is_wrong(self, scraping: Scraping) -> None:
        scraping.wait_for('ALERTS{alertname="EdgetuneQuarantinedHostInService"}')
        found = {
            (own["labels"]["alertname"], own["labels"].get("pop")) for own in scraping.alerts()
        }
        assert found == {
            ("EdgetuneHostQuarantined", "c1"),
            ("EdgetuneQuarantinedHostInService", "c1"),
            ("EdgetuneRolloutHeld", "b1"),
        }
