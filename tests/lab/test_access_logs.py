# SPDX-License-Identifier: Apache-2.0
"""The access logs of a lab's hosts are what its inventory says, and have enough requests."""

from __future__ import annotations

import random
import re
from pathlib import Path

import yaml

from edgetune.agent.log_format import LogFormat
from lab.pop import files
from lab.simulated.requests import FORMAT, LOG, LONGEST, AccessLog
from tests.support import ROOT


def test_simulated_hosts_answer_requests_by_their_load(tmp_path: Path) -> None:
    log, path = AccessLog(random.Random(7)), tmp_path / LOG[1:]
    log.grow(tmp_path, 10.0, 1.0)
    told = LogFormat(FORMAT).counts(path.read_bytes())
    assert 5000 < told["request_ms"] == told["http_responses"] < 7000
    assert told["log_unread_lines"] == 0
    log.grow(tmp_path, 10.0, 0.0)
    assert LogFormat(FORMAT).counts(path.read_bytes()) == told


def test_a_long_log_is_renamed(tmp_path: Path) -> None:
    log, path = AccessLog(random.Random(7)), tmp_path / LOG[1:]
    log.grow(tmp_path, LONGEST / 5000, 1.0)
    older = path.with_name(path.name + ".1")
    assert older.stat().st_size > LONGEST and not path.exists()
    log.grow(tmp_path, 1.0, 1.0)
    assert path.stat().st_size < LONGEST


def test_hosts_in_namespaces_write_what_the_inventory_says() -> None:
    site = yaml.safe_load(files.ACCESS_LOG)["metrics"]
    text = (ROOT / "lab/pop/image/etc/nginx/nginx.conf").read_text()
    (written,) = re.findall(r"log_format timed '(.*)';", text)
    line = written.replace("$status", "200").replace("$body_bytes_sent", "2000000")
    line = line.replace("$request_time", "0.040").replace("$request_completion", "")
    assert f"access_log {site['access_log']} timed;" in text and "$" not in line
    told = LogFormat(site["log_format"]).counts(f"{line}\n".encode())
    counted = ("request_ms", "http_responses", "http_broken", "large_bytes", "large_ms")
    assert [told[name] for name in counted] == [1, 1, 1, 2_000_000, 40]
