# SPDX-License-Identifier: Apache-2.0
"""Questions of the source with the answers of a real program: kept, and what they were about."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import requests

from edgetune.base.clock import use
from edgetune.base.errors import SourceError
from edgetune.intent.metrics.catalogue import METRICS, Catalogue
from edgetune.net.metrics.sources.prometheus import Prometheus
from edgetune.site.inventory import Host, LoadBalancer, Metrics, Pop
from tests.support import ROOT
from tests.support.prometheus_api import Api, Reply, api
from tests.support.virtual_clock import RunningClock

FOLDER = ROOT / "tests/fixtures/prometheus"
HOSTS = tuple(Host(f"e00{n}", f"10.0.0.{n}", 22, "", "", f"e00{n}") for n in range(2))
PACKETS, DROPS = 1000.0, 10.0
"""That each host receives, and each of its CPUs drops, in a second of its uptime."""
CPUS = 2

DAY = 86_400.0
FAR = 1_700_000_000.0 // DAY * DAY
"""When the history ends of which Thanos has less than all samples."""


def pop_of(url: str, **fields: str) -> Pop:
    """A PoP with HOSTS, which that server tells of."""
    usual = {name: its.default or "" for name, its in Prometheus.fields.items()}
    metrics = Metrics("prometheus", {**usual, "url": url, **fields})
    return Pop("lab1", 0.7, "", (), 300.0, LoadBalancer("haproxy", {}), HOSTS, metrics=metrics)


def source(catalogue: Catalogue = METRICS) -> Prometheus:
    """The source, as it asks."""
    return Prometheus(SimpleNamespace(catalogue=catalogue))  # type: ignore[arg-type]


def at_time(now: float) -> AbstractContextManager[RunningClock]:
    """What the source takes for the present."""
    return use(RunningClock(now))


class Recorder:
    """Asks a program by the source, and keeps each question with its answer."""

    def __init__(self, version: str, catalogue: Catalogue = METRICS) -> None:
        self._told: dict[str, Any] = {"version": version, "cases": {}}
        self._source = source(catalogue)

    def ask(
        self,
        case: str,
        url: str,
        start: float,
        end: float,
        do: str = "window",
        given: Mapping[str, str] | None = None,
        **fields: str,
    ) -> None:
        """What the source asks for a window, a picture or the newest scrape; the program is given
        other parameters than the source gave."""
        now = time.time() if end > FAR else FAR
        told: list[dict[str, Any]] = []
        with api() as between:
            between.answer = lambda asked: _forwarded(between, url, asked, given or {}, told, now)
            with at_time(now), suppress(SourceError):
                asked = pop_of(between.url, **fields)
                if do == "newest":
                    self._source.newest(asked)
                elif do == "thinned":
                    self._source.thinned(asked, start, end, 10.0, 5.0)
                else:
                    self._source.window(asked, start, end)
        span = {"do": do, "now": now, "start": start, "end": end, "fields": fields}
        self._told["cases"][case] = {**span, "told": told}
        last = told[-1]
        print(f"{case}: {len(told)} answers, the last {last['status']}: {last['body'][:300]}")

    def write(self, file: Path) -> None:
        """Keep what was told."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(self._told, indent=1) + "\n")


def _forwarded(
    between: Api,
    url: str,
    asked: Mapping[str, str],
    given: Mapping[str, str],
    told: list[dict[str, Any]],
    now: float,
) -> Reply:
    path, tenant = between.asked[-1]["path"], between.headers[-1].get("X-Scope-OrgID", "")
    headers = {"X-Scope-OrgID": tenant} if tenant else {}
    answer = requests.post(f"{url}{path}", data={**asked, **given}, headers=headers, timeout=60)
    own = {"path": path, "tenant": tenant, "asked": asked}
    told.append({**own, "status": answer.status_code, "body": _without_addresses(answer.text)})
    return Reply(answer.content, answer.status_code, dated(now))


def _without_addresses(text: str) -> str:
    """Ports of this run say nothing."""
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:10901", text)


def dated(now: float) -> Mapping[str, str]:
    """The header of an answer at a time: what is replayed is of the past."""
    return {"Date": formatdate(now, usegmt=True)}
