# SPDX-License-Identifier: Apache-2.0
"""A Prometheus on loopback, and an exporter that tells of hosts what a test says.

It is Debian's, or the program that ``EDGETUNE_PROMETHEUS`` names: so tests can run with
another release.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests

from tests.support.programs import ended, free_port, started
from tests.support.prometheus_api import Api, Reply

_NAMED = os.environ.get("EDGETUNE_PROMETHEUS", "")
PROGRAM = shutil.which(_NAMED or "prometheus")
if _NAMED and not PROGRAM:
    raise FileNotFoundError(f"EDGETUNE_PROMETHEUS: there is no program {_NAMED}")
needs_prometheus = [
    pytest.mark.processes,
    pytest.mark.skipif(not PROGRAM, reason="Prometheus is not installed"),
]
SCRAPED_EVERY = 0.25
"""Seconds; enough for a test to wait for a scrape."""
_ALIGNED = 0.01
"""More seconds than by which a scrape is told to be earlier (`--scrape.timestamp-tolerance`)."""


@dataclass
class Exported:
    """What one host tells: the value of each series, by its text in the exposition format; each
    has the label ``run``, if that is not empty."""

    series: dict[str, float] = field(default_factory=dict)
    silent: bool = False
    run: str = ""

    def text(self) -> str:
        return "".join(f"{self._named(name)} {value!r}\n" for name, value in self.series.items())

    def _named(self, series: str) -> str:
        if not self.run:
            return series
        name, _, labels = series.partition("{")
        return f'{name}{{run="{self.run}",{labels or "}"}'


class Exporter(Api):
    """One server for all hosts, each below the path of its address."""

    def __init__(self) -> None:
        super().__init__()
        self.hosts: dict[str, Exported] = {}
        self.answer = self._exported
        self.address = self.url.partition("//")[2]
        self.begin()

    def _exported(self, asked: Mapping[str, str]) -> Reply:
        host = self.hosts[asked["path"].lstrip("/")]
        headers = {"Content-Type": "text/plain; version=0.0.4"}
        return Reply(host.text().encode(), 503 if host.silent else 200, headers)

    def settle(self, servers: Iterable[RealPrometheus]) -> None:
        """Until a scrape of each host is known that began after this, and went as it should."""
        begin, end = time.time() + _ALIGNED, time.monotonic() + 120
        alive = [own for own in servers if own.process.poll() is None]
        wanted = {address: not host.silent for address, host in self.hosts.items()}
        while wanted != {name: up for own in alive for name, up in own.scraped_since(begin)}:
            assert time.monotonic() < end, "Prometheus scrapes no more"
            time.sleep(0.02)

    def target(self, address: str, **labels: str) -> dict[str, object]:
        """As file_sd has it: a host that seems to have its own exporter."""
        own = {"__metrics_path__": f"/{address}", "instance": f"{address}:9100", **labels}
        return {"targets": [self.address], "labels": own}


class RealPrometheus:
    """One process with its data in ``folder``; ``scraped`` are more settings of its job."""

    def __init__(
        self,
        folder: Path,
        targets: Sequence[Mapping[str, object]] = (),
        more: Sequence[str] = (),
        **scraped: object,
    ) -> None:
        self._folder, self._more = folder, more
        (folder / "targets.json").write_text(json.dumps(targets))
        job = {
            "job_name": "node",
            "scrape_interval": f"{SCRAPED_EVERY * 1000:.0f}ms",
            "scrape_timeout": f"{SCRAPED_EVERY * 1000:.0f}ms",
            "file_sd_configs": [{"files": [str(folder / "targets.json")]}],
            **scraped,
        }
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [job]}))
        self.address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.address}"
        self.start()

    def start(self) -> None:
        assert PROGRAM
        command = [
            PROGRAM,
            f"--config.file={self._folder}/prometheus.yml",
            f"--storage.tsdb.path={self._folder}/data",
            f"--web.listen-address={self.address}",
            "--storage.tsdb.retention.time=100y",
            *self._more,
        ]
        self.process = started(self._folder / "log", command, f"{self.url}/-/ready")

    def scraped_since(self, begin: float) -> Iterator[tuple[str, bool]]:
        """The hosts whose last scrape began after ``begin``, and whether they answered it."""
        query = f"up and timestamp(up) > {begin:.3f}"
        answer = requests.get(f"{self.url}/api/v1/query", params={"query": query}, timeout=30)
        for own in answer.json()["data"]["result"]:
            yield own["metric"]["instance"].partition(":")[0], own["value"][1] == "1"

    def cpu_seconds(self) -> float:
        """That its process has used."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / 100

    def kill(self) -> None:
        ended(self.process)


@contextmanager
def prometheus_of(targets: Sequence[Mapping[str, object]]) -> Iterator[RealPrometheus]:
    """A Prometheus that scrapes these targets."""
    with tempfile.TemporaryDirectory() as folder:
        running = RealPrometheus(Path(folder), targets)
        try:
            yield running
        finally:
            running.kill()


def write_history(folder: Path, text: str) -> None:
    """Put a history in the OpenMetrics format, which ends with ``# EOF``, into a data directory."""
    # promtool takes a block at a time, and a series only forwards, also over the end of a block.
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    lines.sort(key=lambda line: float(line.rpartition(" ")[2]))
    (folder / "history").write_text("\n".join([*lines, "# EOF", ""]))
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet"]
    made = subprocess.run(
        [*command, str(folder / "history"), str(folder / "data")], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
