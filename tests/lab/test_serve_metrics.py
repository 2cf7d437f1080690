# SPDX-License-Identifier: Apache-2.0
"""/metrics of `edgetune serve`, and node_exporter's reading of the file of `export_metrics`."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from edgetune.fleet.export.families import CONTENT_TYPE
from lab.cli import _parser
from lab.serve.metrics import metrics_served, read_address
from lab.usage import UsageError
from tests.support.programs import free_port
from tests.support.world import World


def get(port: int, path: str = "/metrics") -> tuple[int, str, str]:
    """Status, type and text."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_each_scrape_reads_the_records_anew_and_fails_where_they_are_away(tmp_path: Path) -> None:
    world, port = World(tmp_path), free_port()
    with metrics_served(world.config, ("127.0.0.1", port)):
        pass
    # Nothing listens afterwards, or without an address.
    with metrics_served(world.config, None), socket.socket() as free:
        free.bind(("127.0.0.1", port))
    with metrics_served(world.config, ("127.0.0.1", port)):
        status, kind, text = get(port)
        assert (status, kind) == (200, CONTENT_TYPE)
        assert 'edgetune_rollouts{state="claimed",tuning="accept_queue"} 1.0\n' in text
        world.mark("baseline")
        assert 'edgetune_rollouts{state="claimed",tuning="accept_queue"} 0.0\n' in get(port)[2]
        assert get(port, "/")[::2] == (404, "the metrics are at /metrics\n")
    away: dict[str, Any] = {**world.config, "records": f"sqlite:///{tmp_path}/nowhere/records"}
    with metrics_served(away, ("127.0.0.1", port := free_port())):
        status, _, text = get(port)
    assert (status, text.count("\n")) == (503, 1) and "nowhere" in text


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = taken.getsockname()
        says = f"--metrics 127.0.0.1:{address[1]}: "
        with pytest.raises(UsageError, match=says), metrics_served({}, address):
            raise AssertionError("it listens")


@pytest.mark.parametrize(
    ("text", "address"),
    [("9464", ("127.0.0.1", 9464)), ("10.0.0.5:1", ("10.0.0.5", 1)), (":80", ("127.0.0.1", 80))],
)
def test_an_address(text: str, address: tuple[str, int]) -> None:
    assert read_address(text) == address
    options = _parser().parse_args(["serve", "--metrics", text])
    assert options.metrics == address


def test_no_address() -> None:
    for text in ("", "x", "0", "65536", "-1", "1.2.3.4", "[::1]:80"):
        with pytest.raises(ValueError, match="PORT or ADDRESS:PORT"):
            read_address(text)
    assert _parser().parse_args(["serve"]).metrics is None
