# SPDX-License-Identifier: Apache-2.0
"""The readings that metrics are made of, held against a sample of the agent."""

from __future__ import annotations

from typing import Any

import pytest

from edgetune.agent.dispatch import answer
from edgetune.intent.metrics.catalogue import METRICS
from tests.support.agent_root import agent_root, request
from tests.support.freebsd import freebsd_host
from tests.support.prometheus_api import api


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the agent samples of a host that shows all that it reads, and whose health is good."""
    with agent_root(tmp_path_factory.mktemp("sampled")) as host, api() as service:
        (host.path / "access.log").write_text("")
        log = {"access_log": "/access.log", "log_format": "{time} "}
        asked = request("sample", health_url=service.url, health_requests=3, **log)
        return answer(str(host.path), asked)["result"]


@pytest.fixture(scope="module")
def of_freebsd(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What it samples of a host with FreeBSD."""
    with freebsd_host(tmp_path_factory.mktemp("sampled") / "host") as host:
        (host.path / "access.log").write_text("")
        log = {"access_log": "/access.log", "log_format": "{time} "}
        return host.ask("sample", health_requests=0, **log)


def told_by(system: str) -> list[str]:
    """The counters that hosts with a system are said to have."""
    told = METRICS.entries_of("hosts")
    return [name for name in METRICS.counters if system in told[name]]


def test_the_agent_samples_each_counter_and_gauge_of_a_metric(sample: dict[str, Any]) -> None:
    """What is missing is read in verbs/sample.py, and shown in tests/support/agent_files.yaml."""
    assert {*told_by("from")} - {*sample["counters"]} == set()
    assert {*METRICS.gauges} - {*sample["gauges"]} == set()


def test_hosts_with_freebsd_tell_what_metrics_say_that_they_do(of_freebsd: dict[str, Any]) -> None:
    assert {*METRICS.counters} == {*told_by("from"), *told_by("freebsd")}
    assert {*told_by("freebsd")} == {*METRICS.counters} & {*of_freebsd["counters"]}
