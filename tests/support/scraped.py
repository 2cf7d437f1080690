# SPDX-License-Identifier: Apache-2.0
"""A Prometheus on loopback that scrapes what a test serves."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.support import ROOT
from tests.support.builders import write_yaml
from tests.support.programs import free_port, running
from tests.support.real_prometheus import PROGRAM

RULES = ROOT / "deploy" / "prometheus" / "edgetune.rules.yaml"
_PATIENCE = 60.0
_VARIABLES = {"$pop": ".*", "$__rate_interval": "30s"}


def filled(expr: str) -> str:
    """The query as Grafana sends it, for all PoPs."""
    for name, value in _VARIABLES.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


class Scraping:
    """A Prometheus whose ``url`` answers; it scrapes and evaluates rules every second."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, expr: str) -> list[dict[str, Any]]:
        """The result of an instant query; AssertionError for an error or a warning."""
        answer = self._call("query", query=expr)
        assert answer["status"] == "success", answer
        assert not answer.get("warnings"), answer
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def alerts(self) -> list[dict[str, Any]]:
        """Those that are pending or firing."""
        found: list[dict[str, Any]] = self._call("alerts")["data"]["alerts"]
        return found

    def wait_for(self, expr: str) -> None:
        """Until a query has a result."""
        until = time.monotonic() + _PATIENCE
        while not self.ask(expr):
            assert time.monotonic() < until, f"nothing came of {expr}"
            time.sleep(0.1)

    def _call(self, what: str, **query: str) -> Any:
        body = urlencode(query).encode() if query else None
        try:
            with urlopen(f"{self.url}/api/v1/{what}", body, timeout=30) as answer:
                return json.load(answer)
        except URLError as error:
            raise AssertionError(f"{query}: {getattr(error, 'read', str)()!r}") from error


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Scraping]:
    """One that scrapes ``target`` (address and port) and has the pack's rules."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": "edgetune", "static_configs": [{"targets": [target]}]},
        ],
    }
    assert PROGRAM
    command = [
        PROGRAM,
        f"--config.file={write_yaml(folder / 'prometheus.yml', config)}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with running(folder / "log", command, f"{url}/-/ready"):
        yield Scraping(url)
