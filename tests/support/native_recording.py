# SPDX-License-Identifier: Apache-2.0
"""Records what Prometheus answers to the questions of the source about native histograms.

    EDGETUNE_EXPORTER=/path/to/exporter .venv/bin/python -m tests.support.native_recording

writes ``tests/fixtures/prometheus/native.json``. The exporter is that of ``native_exporter``, for
these histograms are exposed as protobuf alone.
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

SERIES = {"answer": ("edge_seconds", ["code"]), "few": ("edge_few_seconds", [])}
"""By histogram, its series, and what is added up of them."""


def catalogue(folder: Path) -> Catalogue:
    """The pack's metrics, and a p99 of each of these histograms."""
    for name, (series, added) in SERIES.items():
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
    recorder = Recorder((told.stdout or told.stderr).splitlines()[0], catalogue(folder))
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
        more = ["--enable-feature=native-histograms"]
        stack.enter_context(mock.patch("tests.support.real_prometheus.SCRAPED_EVERY", 3.0))
        prometheus = RealPrometheus(folder / "data", targets, more)
        stack.callback(prometheus.kill)
        start = time.time() + 6
        time.sleep(36)
        end = time.time() - 2
        recorder.ask("native histograms", prometheus.url, start, end)
        recorder.ask("native histograms in a picture", prometheus.url, start, end, "thinned")
    recorder.write(FOLDER / "native.json")


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        _record(Path(made))
