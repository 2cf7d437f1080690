# SPDX-License-Identifier: Apache-2.0
"""VictoriaMetrics answers as Prometheus does. It runs where it is installed; the package of Debian
was unpacked for it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import requests

from tests.lib.prometheus.test_client import BOOTED, NOW, PACKETS, grid, hosts, pop, source, window
from tests.support.programs import free_port, running

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        not shutil.which("victoria-metrics"), reason="VictoriaMetrics is not installed"
    ),
]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    options = [f"-storageDataPath={tmp_path}/data", f"-httpListenAddr={address}"]
    command = ["victoria-metrics", *options, "-retentionPeriod=100y"]
    with running(tmp_path / "log", command, f"http://{address}/health"):
        yield f"http://{address}"


def put(url: str, many: int, times: Sequence[float]) -> None:
    lines = []
    for host in hosts(many):
        own = f'instance="{host.address}:9100"'
        for at in times:
            told = {f"{BOOTED}{{{own}}}": NOW - 1000}
            told[f'{PACKETS}{{{own},device="eth0"}}'] = 10 * (at - NOW + 1000)
            for cpu in range(4):
                softnet = f'node_softnet_dropped_total{{{own},cpu="{cpu}"}}'
                told[softnet] = (cpu + 1) * (at - NOW + 1000)
            told[f'edgetune_boot_info{{{own},boot_id="a"}}'] = 1
            lines += [f"{name} {value:.17g} {at * 1000:.0f}" for name, value in told.items()]
    text = "\n".join(lines) + "\n"
    assert requests.post(f"{url}/api/v1/import/prometheus", data=text, timeout=10).ok
    # What was written shows after its next flush.
    requests.get(f"{url}/internal/force_flush", timeout=10)


def test_it_gives_raw_samples_for_an_instant_query(url: str) -> None:
    put(url, 3, grid())
    rows = [*window(pop(url)).rows()]
    for host in hosts():
        own = [row for row in rows if row.host == host.name]
        # The newest 30 s are hidden (-search.latencyOffset) until they are whole.
        assert [row.time for row in own] == [at for at in grid() if at <= own[-1].time]
        assert own[-1].time >= NOW - 60
        assert all(row.counters["rx_packets"] == pytest.approx(10 * row.uptime) for row in own)
        assert len({row.boot_id for row in own}) == 1
        # It adds them up as Prometheus does, for each scrape.
        added = [row.counters.get("backlog_dropped") for row in own if row.time < NOW - 60]
        assert added == [10 * row.uptime for row in own if row.time < NOW - 60]
        late = [row for row in own if "backlog_dropped" in row.counters]
        assert all(row.counters["backlog_dropped"] == 10 * row.uptime for row in late)


def test_it_tells_a_picture_by_steps(url: str) -> None:
    times = grid(990.0)
    put(url, 3, times)
    borders = [NOW - 900 + 100 * number for number in range(9)]
    last = [max(at for at in times if at <= border) for border in borders]
    found = source().thinned(pop(url), NOW - 900, NOW - 100, 100.0, 25.0)
    for host in hosts():
        own = [row for row in found.rows() if row.host == host.name]
        assert [row.time for row in own] == last
        assert all(row.counters["rx_packets"] == pytest.approx(10 * row.uptime) for row in own)
        assert all(row.counters["backlog_dropped"] == 10 * row.uptime for row in own)


def test_its_newest_scrape_is_news_in_spite_of_the_offset(url: str) -> None:
    now = time.time()
    put(url, 3, [now - 90 + 15 * number for number in range(7)])
    asked = pop(url)
    parts = [*source().sample(dict.fromkeys(asked.hosts, asked), 0)]
    assert [own.error for part in parts for own in part.values()] == [""] * 3
    newest = source().newest(asked)
    assert newest is not None and now - 60 <= newest <= now + 0.01
