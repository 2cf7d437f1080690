# SPDX-License-Identifier: Apache-2.0
"""A campaign over two lab PoPs that nobody but `edgetune serve` moves on."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetune.base.documents.campaign import Record
from edgetune.fleet.campaign.record import all_records
from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import all_heads
from tests.docs.test_commands import lines_of_code
from tests.support import ROOT
from tests.support.builders import write_yaml
from tests.support.practice import Practice, needs_lab, practising

pytestmark = [*needs_lab, pytest.mark.long]

# The command of the tutorial, as it stands there.
(SERVE,) = [
    words[1:] for words in lines_of_code(ROOT / "docs/tutorial.md") if words[1:2] == ["serve"]
]
# Live, so that the test is quick. CPU time, which no load of the machine makes rare or unequal:
# lab hosts share its counters, and two hosts can be compared with two. Of packets hosts without
# requests receive so few that chance makes one of six draws 5 % lower than the others.
TUNING = {
    "name": "keep_window",
    "version": "1.0.0",
    "summary": "Let a connection keep its congestion window while it is idle.",
    "intent": {"no_harm": "cpu", "margin": 3},
    "guards": [{"metric": "health_failed", "margin": 0.5}, {"metric": "packets", "margin": 3}],
    "settings": [
        {
            "kind": "sysctl",
            "key": "net.ipv4.tcp_slow_start_after_idle",
            "value": 0,
            "disruption": "live",
            "why": "It changes nothing that the lab measures.",
            "source": "this test",
        }
    ],
}
CAMPAIGN = {
    "name": "window",
    "tuning": "keep_window",
    "rollout": {
        **{"baseline": 10, "soak": 24, "interval": 4, "warmup": 1},
        **{"looks": 1, "alpha_benefit": 0.2, "alpha_harm": 0.2},
    },
    "rings": [{"name": "canary", "pops": ["lab1"]}, {"name": "fleet", "regions": ["lab"]}],
}


class Watcher:
    """`edgetune serve` on a lab, and the records as they are meanwhile."""

    def __init__(self, practice: Practice) -> None:
        self.practice = practice
        self.context = Context(practice.config)
        self.process = self.serve()

    def serve(self) -> subprocess.Popen[str]:
        process = self.practice.start(*SERVE)
        threading.Thread(target=process.communicate).start()
        return process

    def states(self) -> dict[str, str]:
        """State of the rollout of each PoP that has one."""
        return {head.pop: head.state for head in all_heads(self.context)}

    def wait_until(self, pop: str, *states: str) -> None:
        deadline = time.monotonic() + 300
        while self.states().get(pop) not in states:
            assert self.campaign.state != "held", self.campaign.history[-1]
            assert time.monotonic() < deadline, (self.states(), self.campaign)
            time.sleep(0.2)

    @property
    def campaign(self) -> Record:
        (record,) = all_records(self.context)
        return record


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[Watcher]:
    # Without requests, which a busy machine shares out unfairly: two hosts against two are held.
    with practising(tmp_path, pops=2, load=False) as practice:
        tunings = tmp_path / "tunings"
        tunings.mkdir()
        write_yaml(tunings / "keep_window.yaml", TUNING)
        write_yaml(tmp_path / "lab/campaigns/window.yaml", CAMPAIGN)
        practice.config["tunings"].append(str(tunings))
        write_yaml(tmp_path / "edgetune.yaml", practice.config)
        watching = Watcher(practice)
        try:
            yield watching
        finally:
            watching.process.terminate()
            watching.process.wait(60)


def test_rings_are_promoted_one_after_the_other_though_the_server_is_killed(
    watcher: Watcher,
) -> None:
    practice = watcher.practice
    begun = practice.run("run_campaign", "campaign=window", "dry_run=false")
    assert begun["exit"] == 0, begun
    watcher.wait_until("lab1", "soaking")
    watcher.process.kill()
    watcher.process.wait()
    watcher.process = watcher.serve()
    watcher.wait_until("lab1", "promoting", "complete")
    assert "lab2" not in watcher.states()
    watcher.wait_until("lab2", "claimed", "baseline", "changing", "soaking")
    first = watcher.campaign.rings[0]
    assert (first.verdict["decision"], first.closed > 0) == ("promote", True)
    watcher.wait_until("lab2", "complete")
    deadline = time.monotonic() + 60
    while watcher.campaign.state != "complete" and time.monotonic() < deadline:
        time.sleep(0.2)
    assert watcher.campaign.state == "complete"
    assert watcher.states() == {"lab1": "complete", "lab2": "complete"}
    settings = practice.on_all("cat /proc/sys/net/ipv4/tcp_slow_start_after_idle")
    assert {text.strip() for text in settings.values()} == {"0"}
    assert practice.serving() == set(practice.hosts)
