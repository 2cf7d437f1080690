# SPDX-License-Identifier: Apache-2.0
"""Records what Prometheus answers to the questions of the source about native histograms.

    EDGETUNE_PROMETHEUS=... EDGETUNE_EXPORTER=... \
      .venv/bin/python -m tests.support.native_recording

writes ``native_2.json`` or ``native_3.json`` of ``tests/fixtures/prometheus``, by the version of
the program. The exporter is that of ``native_exporter``: these histograms are exposed as protobuf
alone.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from edgetune.intent.metrics.catalogue import PACK_METRICS, Catalogue
from tests.support.builders import write_yaml
from tests.support.programs import free_port, running
from tests.support.prometheus_recorded import FOLDER, HOSTS, Recorder
from tests.support.real_prometheus import PROGRAM, RealPrometheus

TWO: Mapping[str, tuple[str, list[str]]] = {
    "answer": ("edge_seconds", ["code"]),
    "few": ("edge_few_seconds", []),
}
SERIES = {2: TWO, 3: {**TWO, "classic": ("edge.classic.duration", ["http.status"])}}
"""By version of Prometheus and histogram, its series, and what is added up of them. Prometheus 3
makes native ones of classic ones, and knows names with dots."""
FLAGS: Mapping[int, list[str]] = {2: ["--enable-feature=native-histograms"], 3: []}
SCRAPED: Mapping[int, Mapping[str, object]] = {
    2: {},
    3: {"scrape_native_histograms": True, "convert_classic_histograms_to_nhcb": True},
}


def catalogue(folder: Path, version: int) -> Catalogue:
    """The pack's metrics, and a p99 of each of these histograms."""
    for name, (series, added) in SERIES[version].items():
        told: dict[str, Any] = {"series": series, "scale": 1000}
        told.update({"sum": added} if added else {})
        document: Mapping[str, Any] = {
            "name": f"{name}_p99",
            **{"title": name, "phrase": "took {much} time", "better": "lower", "unit": "ms"},
            "mass": True,
            "histogram": {"of": f"{name}_ms", "quantile": 99},
            "readings": {f"{name}_ms": {"sources": {"prometheus": told}}},
        }
        write_yaml(folder / f"{name}_p99.yaml", document)
    return Catalogue([folder, PACK_METRICS])


def _record(folder: Path) -> None:
    assert PROGRAM
    told = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
    named = (told.stdout or told.stderr).splitlines()[0]
    version = int(named.split()[2].partition(".")[0])
    recorder = Recorder(named, catalogue(folder, version))
    address = f"127.0.0.1:{free_port()}"
    targets = [
        {
            "targets": [address],
            "labels": {"__metrics_path__": f"/{own.address}", "instance": f"{own.address}:9100"},
        }
        for own in HOSTS
    ]
    with ExitStack() as stack:
        command = [os.environ["EDGETUNE_EXPORTER"], address]
        stack.enter_context(
            running(folder / "log", command, f"http://{address}/{HOSTS[0].address}")
        )
        (folder / "data").mkdir()
        stack.enter_context(mock.patch("tests.support.real_prometheus.SCRAPED_EVERY", 3.0))
        prometheus = RealPrometheus(folder / "data", targets, FLAGS[version], **SCRAPED[version])
        stack.callback(prometheus.kill)
        start = time.time() + 6
        time.sleep(36)
        end = time.time() - 2
        recorder.ask("native histograms", prometheus.url, start, end)
        recorder.ask("native histograms in a picture", prometheus.url, start, end, "thinned")
    recorder.write(FOLDER / f"native_{version}.json")


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        _record(Path(made))
