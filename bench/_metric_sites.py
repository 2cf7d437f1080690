# SPDX-License-Identifier: Apache-2.0
"""A Prometheus and a ClickHouse that remember what hosts counted, each served by a process of ours.

`python -m bench._metric_sites prometheus|clickhouse HOSTS MINUTES END` says its address and how it
is called in the table.
"""

from __future__ import annotations

import contextlib
import http.client
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable

from bench._metric_history import COLUMNS, History
from bench._served import (
    Served,
    cpu_seconds_of,
    serve_until_input_ends,
    served,
    uninterrupted,
)
from bench._ssh_peers import has_module
from lab.clickhouse import Chdb, Table, serving, stand_in

Said = tuple[Mapping[str, Any], Callable[[], float]]


@contextlib.contextmanager
def remembering(what: str, history: History) -> Iterator[Served]:
    """One of SITES with that history; BenchError if it does not start."""
    told = (history.hosts, history.minutes, history.end)
    with served("bench._metric_sites", what, *map(repr, told)) as site:
        yield site


# What follows runs in the process of the site.


@contextlib.contextmanager
def _clickhouse(history: History) -> Iterator[Said]:
    table = Table(COLUMNS, [*history.rows()])
    if not has_module("chdb"):
        with serving(table, stand_in) as server:
            yield {"url": server.url, "name": "a stand-in of ClickHouse"}, _own_cpu_seconds
        return
    with contextlib.closing(Chdb()) as engine:
        engine.load(table)
        version = engine.run("SELECT version() FORMAT TSV").strip()
        table.rows.clear()
        with serving(table, lambda _, asked: engine.answer(asked)) as server:
            yield {"url": server.url, "name": f"ClickHouse (chdb {version})"}, _own_cpu_seconds


def _own_cpu_seconds() -> float:
    # os.times counts in ticks of 10 ms, which a small answer does not take.
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


@contextlib.contextmanager
def _prometheus(history: History) -> Iterator[Said]:
    with _folder() as folder:
        _write_blocks(history, folder)
        address = _free_address()
        with _running(folder, address) as process:
            _wait_until_ready(address, process)
            said = {"url": f"http://{address}", "name": f"Prometheus {_version()}"}
            yield said, lambda: cpu_seconds_of(process.pid)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """It is removed in any case."""
    with contextlib.ExitStack() as stack:
        with uninterrupted():
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="edgetune-bench-"))
        yield Path(made)


def _write_blocks(history: History, folder: Path) -> None:
    text = folder / "history"
    with text.open("w") as file:
        file.writelines(history.openmetrics())
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet"]
    process = subprocess.Popen([*command, str(text), str(folder / "data")], stdout=sys.stderr)
    try:
        if process.wait():
            raise OSError(f"promtool ended with {process.returncode}")
    finally:
        # One that still writes would keep the folder.
        process.kill()
        process.wait()
    text.unlink()


def _free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@contextlib.contextmanager
def _running(folder: Path, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Prometheus that scrapes nothing."""
    configuration = folder / "prometheus.yml"
    configuration.write_text("{}")
    command = [
        "prometheus",
        f"--config.file={configuration}",
        f"--storage.tsdb.path={folder}/data",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    process = subprocess.Popen(command, stdout=sys.stderr)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(address, timeout=5)
            connection.request("GET", "/-/ready")
            if connection.getresponse().status == http.client.OK:
                return
        time.sleep(0.05)
    raise OSError("Prometheus has ended")


def _version() -> str:
    told = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True)
    return (told.stdout or told.stderr).split()[2]


SITES: Mapping[str, Callable[[History], contextlib.AbstractContextManager[Said]]] = {
    "prometheus": _prometheus,
    "clickhouse": _clickhouse,
}

if __name__ == "__main__":
    kind, hosts, minutes, end = sys.argv[1:]
    serve_until_input_ends(SITES[kind](History(int(hosts), float(minutes), float(end))))
