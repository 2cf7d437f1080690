# SPDX-License-Identifier: Apache-2.0
"""How long each host was out of service, and what is known of lost requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.documents.batch import Batch, HostStep
from edgetune.report.headline import Out, out_text, requests_text, times_out
from tests.support.builders import plan

READY = "ready"


def batch(number: int, kind: str = "change", **hosts: HostStep) -> Batch:
    return Batch("lab1-1", number, kind, "test", dict(hosts))


def step(name: str, at: float = 0.0, out_at: float = 0.0, **more: Any) -> HostStep:
    return HostStep(name, at, out_at=out_at, lb_before=READY if out_at else None, **more)


FAILED, DONE = step("rebooting", 400, 100), step("done", 400, 100)


@pytest.mark.parametrize(
    ("batches", "now", "times"),
    [
        # From its drain until it is put back; of one that is out, until now.
        ([batch(0, a=DONE)], 900, Out(300)),
        ([batch(0, a=step("skipped", 160, 100))], 900, Out(60)),
        ([batch(0, a=FAILED)], 700, Out(600, still=True)),
        # What a rollback puts back was out all the while; one that was out twice has both.
        ([batch(0, a=FAILED), batch(4, "restore", a=step("done", 1000, 101))], 9e9, Out(900)),
        ([batch(0, a=DONE), batch(4, "restore", a=step("done", 1060, 1000))], 9e9, Out(360)),
        # A replaced machine that is brought back goes on from its drain: it is counted once.
        (
            [batch(0, a=step("skipped", 900, 100)), batch(4, "restore", a=step("done", 1000, 100))],
            9e9,
            Out(900),
        ),
    ],
)
def test_a_host_is_out_from_its_drain_until_it_is_put_back(
    batches: list[Batch], now: float, times: Out
) -> None:
    assert times_out(batches, now) == {"a": times}
    assert str(times).endswith(" so far") is times.still


def test_what_was_never_drained_was_not_out() -> None:
    times = times_out([batch(0, a=step("planned"), b=step("done", 300))], 900)
    assert [str(out) for out in times.values()] == ["none", "none"]
    assert out_text(times) == "no host"


def test_what_an_earlier_version_did_not_write_down_is_not_zero() -> None:
    times = times_out([batch(0, a=HostStep("done", 300, lb_before=READY))], 900)
    assert str(times["a"]) == "not recorded"
    assert out_text(times) == "of 1 hosts not recorded"


def test_all_hosts_are_told_in_one_sentence() -> None:
    hosts = {f"e{n}": step("done", 100 + 60 * n, 100) for n in range(1, 6)}
    told = out_text(times_out([batch(0, **hosts), batch(1, z=step("drained", 200, 100))], 400))
    assert told == "6 hosts, 3m30s each (median), 5m at most (e5); 1 still out"


def test_requests_are_not_measured(tmp_path: Path) -> None:
    made = plan(tmp_path)
    drained = [batch(0, a=step("done", 400, 100), b=step("skipped", 160, 100))]
    told = requests_text(made, drained)
    assert told.startswith("not measured: no metric counts the requests of clients; ")
    assert "only once it had no session left; 1 skipped and left unchanged" in told
    forced = replace(made, options=replace(made.options, drop_sessions=True))
    assert "open at the drain deadline was dropped, uncounted" in requests_text(forced, drained)
    assert "no host was taken out of service" in requests_text(made, [batch(0, a=step("done"))])
