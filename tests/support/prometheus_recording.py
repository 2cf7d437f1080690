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
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import requests
import yaml

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
from tests.support.scraped import free_port

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


class _Program:
    """A process whose output is kept in a file."""

    def __init__(self, folder: Path, command: Sequence[str], ready: str) -> None:
        self._log = folder / f"{Path(command[0]).name}-{free_port()}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        end = time.monotonic() + 120
        while True:
            assert self.process.poll() is None and time.monotonic() < end, self._log.read_text()
            with suppress(requests.RequestException):
                if requests.get(ready, timeout=5).ok:
                    return
            time.sleep(0.1)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


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


def _thanos(program: str, folder: Path) -> None:
    recorder = Recorder(_version(program))
    with ExitStack() as stack:
        replicas, start, end = _with_replicas(stack, folder)
        sidecars = []
        for number, own in enumerate(replicas):
            sidecars.append(_sidecar(program, folder, own.url, number))
            stack.callback(sidecars[-1][0].close)
        points = [address for _, address in sidecars]
        query = stack.enter_context(closing(_query(program, folder, points)))
        strict = stack.enter_context(closing(_query(program, folder, points, strict=True)))
        apart = stack.enter_context(closing(_query(program, folder, points, replica="")))
        for each in (query, strict, apart):
            _wait_for_stores(each.url, 2)
        recorder.ask("two replicas", query.url, start, end)
        recorder.ask("two replicas in a picture", query.url, start, end, "thinned")
        recorder.ask("the newest scrape", query.url, start, end, "newest")
        recorder.ask("replicas that Thanos keeps apart", apart.url, start, end)
        sidecars[1][0].close()
        recorder.ask("a store that has just gone", query.url, start, end)
        recorder.ask("a strict store that has gone", strict.url, start, end)
        partly = {"partial_response": "true"}
        recorder.ask("an answer in part", query.url, start, end, given=partly)
        _wait_for_stores(query.url, 1)
        recorder.ask("a store that went long ago", query.url, start, end)
    with ExitStack() as stack:
        _downsampled(program, folder, stack, recorder)
    recorder.write(FOLDER / "thanos.json")


class _Query(_Program):
    url: str


def _query(
    program: str,
    folder: Path,
    stores: Sequence[str],
    strict: bool = False,
    replica: str = "replica",
) -> _Query:
    http, grpc = free_port(), free_port()
    flag = "--endpoint-strict" if strict else "--endpoint"
    command = [
        program,
        "query",
        f"--http-address=127.0.0.1:{http}",
        f"--grpc-address=127.0.0.1:{grpc}",
        *(f"{flag}={store}" for store in stores),
        *([f"--query.replica-label={replica}"] if replica else []),
    ]
    made = _Query(folder, command, f"http://127.0.0.1:{http}/-/ready")
    made.url = f"http://127.0.0.1:{http}"
    return made


def _sidecar(program: str, folder: Path, url: str, number: int) -> tuple[_Program, str]:
    http, grpc = free_port(), free_port()
    command = [
        program,
        "sidecar",
        f"--http-address=127.0.0.1:{http}",
        f"--grpc-address=127.0.0.1:{grpc}",
        f"--prometheus.url={url}",
        f"--tsdb.path={folder}/prometheus{number}/data",
    ]
    return _Program(folder, command, f"http://127.0.0.1:{http}/-/ready"), f"127.0.0.1:{grpc}"


def _wait_for_stores(url: str, many: int) -> None:
    end = time.monotonic() + 400
    while True:
        told = requests.get(f"{url}/api/v1/stores", timeout=10).json()["data"]
        known = [each for own in told.values() for each in own or [] if not each["lastError"]]
        if len(known) == many:
            return
        assert time.monotonic() < end, told
        time.sleep(0.5)


def _downsampled(program: str, folder: Path, stack: ExitStack, recorder: Recorder) -> None:
    """A bucket with samples of three days, of each five minutes, too; then with these alone."""
    bucket = folder / "bucket"
    bucket.mkdir()
    _write_bucket(folder, bucket)
    raw = [each.name for each in bucket.iterdir()]
    objstore = folder / "bucket.yml"
    config = {"type": "FILESYSTEM", "config": {"directory": str(bucket)}}
    objstore.write_text(yaml.safe_dump(config))
    http = free_port()
    command = [
        *(program, "tools", "bucket", "downsample"),
        f"--http-address=127.0.0.1:{http}",
        f"--objstore.config-file={objstore}",
        f"--data-dir={folder}/downsample",
    ]
    downsample = _Program(folder, command, f"http://127.0.0.1:{http}/-/ready")
    end = time.monotonic() + 120
    while not any(_resolution_of(each) == 300_000 for each in bucket.iterdir()):
        assert time.monotonic() < end, [*bucket.iterdir()]
        time.sleep(0.5)
    downsample.close()
    window = (FAR - DAY, FAR - DAY + 600)
    for case in ("raw samples beside downsampled ones", "downsampled samples alone"):
        with (
            _store(program, folder, objstore) as store,
            closing(_query(program, folder, [store])) as query,
        ):
            _wait_for_stores(query.url, 1)
            recorder.ask(case, query.url, *window)
        for name in raw:
            shutil.rmtree(bucket / name, ignore_errors=True)


def _resolution_of(block: Path) -> int:
    try:
        meta = json.loads((block / "meta.json").read_text())
    except (OSError, ValueError):
        return 0
    return int(meta["thanos"]["downsample"]["resolution"])


@contextmanager
def _store(program: str, folder: Path, objstore: Path) -> Iterator[str]:
    http, grpc = free_port(), free_port()
    command = [
        *(program, "store"),
        f"--http-address=127.0.0.1:{http}",
        f"--grpc-address=127.0.0.1:{grpc}",
        f"--objstore.config-file={objstore}",
        f"--data-dir={folder}/store{http}",
    ]
    with closing(_Program(folder, command, f"http://127.0.0.1:{http}/-/ready")):
        yield f"127.0.0.1:{grpc}"


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


def _version(program: str) -> str:
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return os.environ.get("EDGETUNE_VERSION") or (told.stdout or told.stderr).splitlines()[0]


def main() -> None:
    """Record what Thanos answers."""
    with TemporaryDirectory() as folder:
        _thanos(os.environ["EDGETUNE_THANOS"], Path(folder))


if __name__ == "__main__":
    sys.exit(main())
