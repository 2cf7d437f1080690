# SPDX-License-Identifier: Apache-2.0
"""Prometheus and Alertmanager in the controller's network namespace.

The exporter of a host is started by its init (`image`).
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from . import network
from .layout import (
    ALERTMANAGER,
    EXPORT,
    EXPORTER_PORT,
    INPUT,
    PROMETHEUS,
    Address,
    LabError,
    Layout,
)

# Rollouts in a lab sample each few seconds.
SCRAPE_SECONDS = 2
START_SECONDS = 60.0
ANSWER_SECONDS = 5.0
RULES = Path(__file__).parents[2] / "deploy/prometheus"
# Names within the lab's disks, which are memory: nothing of them outlives the lab.
CONFIGURATION = "prometheus.json"
ALERTING = "alertmanager.json"

COMMANDS = {
    "prometheus": [
        "prometheus",
        f"--config.file={CONFIGURATION}",
        "--storage.tsdb.path=prometheus",
        "--storage.tsdb.retention.size=256MB",
        f"--web.listen-address={PROMETHEUS}",
        "--log.level=warn",
    ],
    "alertmanager": [
        "prometheus-alertmanager",
        f"--config.file={ALERTING}",
        "--storage.path=alertmanager",
        "--cluster.listen-address=",
        f"--web.listen-address={ALERTMANAGER}",
        "--log.level=warn",
    ],
}
ADDRESSES = {"prometheus": PROMETHEUS, "alertmanager": ALERTMANAGER}


class Monitoring:
    """Both, started when made."""

    def __init__(self, namespace: int, hosts: Sequence[Address], layout: Layout) -> None:
        self._namespace = namespace
        self._hosts = hosts
        self._layout = layout
        (layout.disks / CONFIGURATION).write_text(json.dumps(configuration(hosts)))
        (layout.disks / ALERTING).write_text(json.dumps(alerting()))
        self._processes = {name: self._start(name) for name in COMMANDS}

    def describe(self) -> dict[str, Any]:
        """For `status`."""
        return {
            name: {"address": f"http://{ADDRESSES[name]}", "running": process.poll() is None}
            for name, process in self._processes.items()
        }

    def set_running(self, name: str, on: bool) -> None:
        """End one of them, or start it with the data that it had; what is so already stays so."""
        if name not in COMMANDS:
            raise LabError(f"what can be stopped is {' or '.join(COMMANDS)}, not {name}", INPUT)
        process = self._processes[name]
        if not on:
            # Alertmanager writes its silences down when it is told to end.
            process.terminate()
            process.wait()
        elif process.poll() is not None:
            self._processes[name] = self._start(name)

    def wait_until_ready(self) -> None:
        """Until both answer, and Prometheus has scraped each host; LabError when they never do."""
        end = time.monotonic() + START_SECONDS
        while obstacle := self._obstacle():
            if time.monotonic() > end or self._has_ended():
                raise LabError(obstacle)
            time.sleep(0.1)

    def total(self, metric: str) -> float:
        """The sum of the newest values of all series of a metric; 0 where there are none."""
        answer = self._ask(PROMETHEUS, f"/api/v1/query?query=sum({metric})")
        rows = json.loads(answer)["data"]["result"] if answer else []
        return sum(float(row["value"][1]) for row in rows)

    def _obstacle(self) -> str:
        for name, address in ADDRESSES.items():
            if self._ask(address, "/-/ready") is None:
                return f"{name} does not answer: see {self._layout.console(name)}"
        scraped, hosts = self.total("up"), len(self._hosts)
        return "" if scraped == hosts else f"Prometheus scrapes {scraped:.0f} of {hosts} hosts"

    def _has_ended(self) -> bool:
        return not all(own["running"] for own in self.describe().values())

    def _ask(self, address: str, path: str) -> bytes | None:
        """The answer, None without a good one."""
        with (
            network.inside(self._namespace),
            closing(HTTPConnection(address, timeout=ANSWER_SECONDS)) as asked,
        ):
            try:
                asked.request("GET", path)
                reply = asked.getresponse()
                return reply.read() if reply.status == HTTPStatus.OK else None
            except (OSError, HTTPException):
                return None

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        with network.inside(self._namespace), self._layout.console(name).open("ab") as log:
            return subprocess.Popen(
                COMMANDS[name],
                cwd=self._layout.disks,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


def configuration(hosts: Sequence[Address]) -> dict[str, Any]:
    """Of Prometheus, as JSON, which is YAML: each host is scraped, and has its name as `host`; and
    so is `edgetune serve` where it runs."""
    targets = [
        {"targets": [f"{host.ip}:{EXPORTER_PORT}"], "labels": {"host": host.name}} for host in hosts
    ]
    every = f"{SCRAPE_SECONDS}s"
    return {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": "5s"},
        "rule_files": [str(path) for path in sorted(RULES.glob("*.rules.yaml"))],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [ALERTMANAGER]}]}]},
        "scrape_configs": [
            {"job_name": "node", "static_configs": targets},
            {
                "job_name": "edgetune",
                "scrape_interval": "10s",
                "static_configs": [{"targets": [EXPORT]}],
            },
        ],
    }


def alerting() -> dict[str, Any]:
    """Of Alertmanager: alerts go to a port on which nothing listens."""
    return {
        "route": {"receiver": "nobody", "group_by": ["alertname", "host"]},
        "receivers": [{"name": "nobody", "webhook_configs": [{"url": "http://127.0.0.1:9/"}]}],
    }
