# SPDX-License-Identifier: Apache-2.0
"""How much an agent says: its errors, the texts of its rows, and its samples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetune.agent import drift
from edgetune.agent.dispatch import LONGEST_FIELD, LONGEST_MESSAGE
from edgetune.agent.observe import LONGEST_REASON, LONGEST_VALUE
from edgetune.agent.protocol import shortened
from tests.support.agent_root import NearRoot, near_root, request, sysctl

SOMAXCONN = "proc/sys/net/core/somaxconn"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[NearRoot]:
    with near_root(tmp_path / "host") as root:
        yield root


def test_a_long_value_is_told_by_its_ends_and_its_digest(host: NearRoot) -> None:
    host.write(SOMAXCONN, "1 " * 50_000)
    (row,) = host.plan(sysctl("4096"))
    assert row["status"] == "change" and len(row["runtime"]) < LONGEST_VALUE + 200
    before = row["runtime"]
    host.write(SOMAXCONN, "1 " * 25_000 + "2 " + "1 " * 24_999)
    assert host.plan(sysctl("4096"))[0]["runtime"] != before, "the middle counts, too"


def test_a_long_error_is_cut(host: NearRoot) -> None:
    change = host.change(sysctl("4096"))
    host.write(SOMAXCONN, "9 " * 900)
    error = host.fail("apply", **change)
    assert "the plan saw 128" in error["message"] and len(error["message"]) <= LONGEST_MESSAGE
    error = host.send(request("plan", **{"x" * 100_000: 1}, tuning="t", digest="d"))["error"]
    assert len(json.dumps(error)) < LONGEST_MESSAGE + LONGEST_FIELD + 100
    host.write("etc/sysctl.d/99-z.conf", f"net.core.somaxconn = {'7' * 900}\n")
    (row,) = host.plan(sysctl("4096"))
    assert row["status"] == "unsupported" and len(row["reason"]) <= LONGEST_REASON


def test_a_sample_tells_of_some_drift_in_short_texts(
    host: NearRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "MOST_ROWS", 2)
    keys = [f"net.core.k{number}" for number in range(4)]
    for key in keys:
        host.write(f"proc/sys/{key.replace('.', '/')}", "1\n")
    host.apply(*(sysctl("2", key=key) for key in keys))
    for key in keys:
        host.write(f"proc/sys/{key.replace('.', '/')}", "3 " * 700)
    sample = host.ask("sample")
    assert len(sample["drift"]) == 2
    assert all(len(row["runtime"]) <= drift.LONGEST_IN_SAMPLE for row in sample["drift"])


def test_the_ends_of_a_text_stay() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("a" * 50 + "z" * 50, 25) == "a" * 10 + " ... " + "z" * 10
