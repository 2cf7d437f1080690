# SPDX-License-Identifier: Apache-2.0
"""Records what Thanos answers to the questions of the source, from the program.

    EDGETUNE_PROMETHEUS=... EDGETUNE_THANOS=... \
      .venv/bin/python -m tests.support.prometheus_recording

writes ``tests/fixtures/prometheus/thanos.json``; EDGETUNE_VERSION says what the program cannot say
of itself. Two Prometheus scrape the same hosts, at moments of their own, and each of them is away
for a while.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import requests

from tests.support.builders import write_yaml
from tests.support.programs import free_port, running
from tests.support.prometheus_recorded import (
    CPUS,
    DAY,
    DROPS,
    FAR,
    FOLDER,
    HOSTS,
    PACKETS,
    Recorder,
)
from tests.support.real_prometheus import Exported, Exporter, RealPrometheus

SCRAPED = 1.0

# Hosts, and what scrapes them.


class _Counting:
    """Hosts whose counters grow with the clock."""

    def __init__(self) -> None:
        self.exporter = Exporter()
        self.exporter.hosts = {host.address: Exported() for host in HOSTS}
        self._booted = {host.address: time.time() - 1000 - n for n, host in enumerate(HOSTS)}
        self._ended = threading.Event()
        self._count()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def _go_on(self) -> None:
        while not self._ended.wait(0.02):
            self._count()

    def _count(self) -> None:
        now = time.time()
        for address, host in self.exporter.hosts.items():
            host.series = series_of(self._booted[address], now)

    def targets(self) -> list[dict[str, object]]:
        return [self.exporter.target(address) for address in self.exporter.hosts]

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.exporter.close()


def series_of(booted: float, now: float) -> dict[str, float]:
    """What a host tells at a time."""
    up = now - booted
    cpus = {f'node_softnet_dropped_total{{cpu="{n}"}}': round(DROPS * up) for n in range(CPUS)}
    return {
        "node_boot_time_seconds": round(booted),
        f'edgetune_boot_info{{boot_id="boot-{booted:.0f}"}}': 1,
        'node_network_receive_packets_total{device="eth0"}': round(PACKETS * up),
        **cpus,
    }


class _Replica(RealPrometheus):
    """One of the two, which says so in its external labels."""

    def __init__(self, folder: Path, hosts: _Counting, name: str) -> None:
        folder.mkdir()
        self._name = name
        super().__init__(folder, hosts.targets())

    def start(self) -> None:
        file = self._folder / "prometheus.yml"
        labels = {"global": {"external_labels": {"replica": self._name}}}
        file.write_text(json.dumps({**json.loads(file.read_text()), **labels}))
        super().start()


def _with_replicas(stack: ExitStack, folder: Path) -> tuple[list[_Replica], float, float]:
    """Both, and the first and last moment of which they know: each is away for a while."""
    stack.enter_context(mock.patch("tests.support.real_prometheus.SCRAPED_EVERY", SCRAPED))
    hosts = stack.enter_context(closing(_Counting()))
    found = []
    for number, name in enumerate("ab"):
        found.append(_Replica(folder / f"prometheus{number}", hosts, name))
        stack.callback(found[-1].kill)
        time.sleep(0.4)
    time.sleep(8)
    start = time.time()
    time.sleep(12)
    found[1].kill()
    time.sleep(8)
    found[1].start()
    time.sleep(4)
    # Thanos takes the second one next, where the first one has no sample.
    found[0].kill()
    time.sleep(8)
    found[0].start()
    time.sleep(8)
    return found, start, time.time() - 2


class _Thanos:
    """Programs of Thanos, each with ports of its own, until the end."""

    def __init__(self, program: str, folder: Path, stack: ExitStack) -> None:
        self.program, self.folder, self._stack = program, folder, stack

    def begin(self, *words: str, grpc: bool = True) -> tuple[str, str, ExitStack]:
        """Where one answers by HTTP and by gRPC, and what ends it before the others."""
        http, address = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        places = [f"--http-address={http}", *[f"--grpc-address={address}"] * grpc]
        own = self._stack.enter_context(ExitStack())
        log = self.folder / f"{http}.log"
        command = [self.program, *words, *places]
        own.enter_context(running(log, command, f"http://{http}/-/ready"))
        return f"http://{http}", address, own

    def query(self, stores: Sequence[str], *more: str, many: int = 2, flag: str = "") -> str:
        """The URL of one that asks these, and knows so many of them."""
        points = [f"--endpoint{flag}={store}" for store in stores]
        url, _, _ = self.begin("query", *points, *more)
        _wait_for_stores(url, many)
        return url


def _thanos(program: str, folder: Path) -> None:
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    version = (told.stdout or told.stderr).splitlines()[0]
    recorder = Recorder(os.environ.get("EDGETUNE_VERSION") or version)
    with ExitStack() as stack:
        thanos = _Thanos(program, folder, stack)
        replicas, start, end = _with_replicas(stack, folder)
        sidecars = [
            thanos.begin(
                "sidecar",
                f"--prometheus.url={own.url}",
                f"--tsdb.path={folder}/prometheus{number}/data",
            )
            for number, own in enumerate(replicas)
        ]
        points, as_one = [address for _, address, _ in sidecars], "--query.replica-label=replica"
        query = thanos.query(points, as_one)
        strict, apart = thanos.query(points, as_one, flag="-strict"), thanos.query(points)
        recorder.ask("two replicas", query, start, end)
        recorder.ask("two replicas in a picture", query, start, end, "thinned")
        recorder.ask("the newest scrape", query, start, end, "newest")
        recorder.ask("replicas that Thanos keeps apart", apart, start, end)
        sidecars[1][2].close()
        recorder.ask("a store that has just gone", query, start, end)
        recorder.ask("a strict store that has gone", strict, start, end)
        partly = {"partial_response": "true"}
        recorder.ask("an answer in part", query, start, end, given=partly)
        _wait_for_stores(query, 1)
        recorder.ask("a store that went long ago", query, start, end)
    with ExitStack() as stack:
        _downsampled(_Thanos(program, folder, stack), recorder)
    recorder.write(FOLDER / "thanos.json")


def _wait_for_stores(url: str, many: int) -> None:
    end = time.monotonic() + 400
    while True:
        told = requests.get(f"{url}/api/v1/stores", timeout=10).json()["data"]
        known = [each for own in told.values() for each in own or [] if not each["lastError"]]
        if len(known) == many:
            return
        assert time.monotonic() < end, told
        time.sleep(0.5)


def _downsampled(thanos: _Thanos, recorder: Recorder) -> None:
    """A bucket with samples of three days, of each five minutes, too; then with these alone."""
    folder, bucket = thanos.folder, thanos.folder / "bucket"
    bucket.mkdir()
    _write_bucket(folder, bucket)
    raw = [each.name for each in bucket.iterdir()]
    config = {"type": "FILESYSTEM", "config": {"directory": str(bucket)}}
    objstore = f"--objstore.config-file={write_yaml(folder / 'bucket.yml', config)}"
    data = f"--data-dir={folder}/downsample"
    *_, downsample = thanos.begin("tools", "bucket", "downsample", objstore, data, grpc=False)
    end = time.monotonic() + 120
    while not any(_resolution_of(each) == 300_000 for each in bucket.iterdir()):
        assert time.monotonic() < end, [*bucket.iterdir()]
        time.sleep(0.5)
    downsample.close()
    for case in ("raw samples beside downsampled ones", "downsampled samples alone"):
        _, store, own = thanos.begin("store", objstore, f"--data-dir={folder}/store{len(raw)}")
        recorder.ask(case, thanos.query([store], many=1), FAR - DAY, FAR - DAY + 600)
        own.close()
        while raw:
            shutil.rmtree(bucket / raw.pop(), ignore_errors=True)


def _resolution_of(block: Path) -> int:
    try:
        meta = json.loads((block / "meta.json").read_text())
    except (OSError, ValueError):
        return 0
    return int(meta["thanos"]["downsample"]["resolution"])


def _write_bucket(folder: Path, bucket: Path) -> None:
    """Blocks of promtool, as a sidecar would have shipped them."""
    lines = []
    for at in range(int(FAR - 3 * DAY), int(FAR), 30):
        for number, host in enumerate(HOSTS):
            own = f'instance="{host.address}:9100"'
            for name, value in series_of(FAR - 5 * DAY - number, float(at)).items():
                metric, _, labels = name.partition("{")
                given = ",".join(filter(None, [own, labels.rstrip("}")]))
                lines.append(f"{metric}{{{given}}} {value} {at}\n")
    (folder / "history").write_text("".join([*lines, "# EOF\n"]))
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet"]
    long = "--max-block-duration=168h"
    made = [*command, long, str(folder / "history"), str(folder / "blocks")]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    for block in (folder / "blocks").iterdir():
        if not (block / "meta.json").exists():
            continue
        meta = json.loads((block / "meta.json").read_text())
        meta["thanos"] = {
            "labels": {"replica": "a"},
            "downsample": {"resolution": 0},
            "source": "sidecar",
        }
        (block / "meta.json").write_text(json.dumps(meta))
        shutil.copytree(block, bucket / block.name)


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        _thanos(os.environ["EDGETUNE_THANOS"], Path(made))
