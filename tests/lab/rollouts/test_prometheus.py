# SPDX-License-Identifier: Apache-2.0
"""One rollout on a lab that Prometheus scrapes, beside what its hosts say over SSH meanwhile."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.documents.look import Effect, Look
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.soak import Soak, measure
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.record.rollout import Record, read_rollout
from lab.pop.layout import ALERTMANAGER
from tests.lab.test_prometheus import asked, needs_lab
from tests.support.builders import write_yaml
from tests.support.practice import FOUR, Practice, practising

# Its soak lasts seconds: a machine that stands still as long leaves it without samples.
pytestmark = [*needs_lab, pytest.mark.quiet]

# The two sources cut bursts at the ends of a baseline otherwise, which shows in a short one. A
# scrape is news after some seconds, so a short soak shows too little, and is rolled out twice.
# Both sample as often as Prometheus scrapes.
WORDS = [word for word in FOUR if not word.startswith(("baseline=", "soak=", "interval="))]
WORDS += ["baseline=20", "soak=30", "interval=2"]

SWEEP = """
import sys, time, yaml
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.sampling import sample_pops
with open(sys.argv[1]) as file:
    context = Context(yaml.safe_load(file))
while True:
    sample_pops(context, ["lab1"])
    time.sleep(2 - time.time() % 2)
"""


@dataclass
class Rolled:
    """What a rollout left: its record, and samples over SSH of its time."""

    practice: Practice
    record: Record
    by_ssh: Context


@pytest.fixture(scope="module")
def rolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rolled]:
    home, own = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("own")
    with practising(home, hosts=4, prometheus=True) as practice:
        by_ssh = _config_by_ssh(practice, own)
        sweeping = practice.start(
            *("lab", "exec", "--", sys.executable, "-c", SWEEP),
            str(write_yaml(own / "edgetune.yaml", by_ssh)),
        )
        record = _promoted(practice)
        assert sweeping.poll() is None, sweeping.communicate()
        sweeping.terminate()
        sweeping.communicate()
        _copy(home / "edgetune.sqlite", own / "records.sqlite")
        yield Rolled(practice, record, Context(by_ssh))


def _promoted(practice: Practice) -> Record:
    """A machine that stands still may have a host found ill, and all taken back: once more then."""
    for _ in range(2):
        done = practice.roll_out("tuning=accept_queue", *WORDS)
        # One that was refused has no record.
        assert done["outcome"] in ("promoted", "rolled_back"), done
        record = read_rollout(Context(practice.config), done["rollout"])
        if done["outcome"] == "promoted":
            return record
    raise AssertionError([entry.reason for entry in record.head.history])


def _config_by_ssh(practice: Practice, folder: Path) -> dict[str, Any]:
    """The same hosts with no source but themselves, and with stores of its own."""
    pop = {**practice.inventory["pops"]["lab1"]}
    del pop["metrics"]
    return {
        **practice.config,
        "inventory": str(write_yaml(folder / "inventory.yaml", {"pops": {"lab1": pop}})),
        "records": f"sqlite:///{folder}/records.sqlite",
        "coordination": f"sqlite:///{folder}/samples.sqlite",
    }


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


def judged_by_ssh(rolled: Rolled) -> Look:
    """The look that decides, with a baseline of its own."""
    opened = as_owner(rolled.by_ssh, rolled.record.head.id)
    opened.head.looks = opened.head.first_look
    opened.save_baseline(measure(opened)[0])
    look = Soak(opened).foreseen()
    assert look is not None
    return look


def levels(effect: Effect) -> list[float | None]:
    """Events per packet of each group, before and after."""
    before, after = (effect.test_before, effect.control_before), effect.control_after
    return [*before, effect.test_after, after]


def test_prometheus_and_the_hosts_themselves_lead_to_one_verdict(rolled: Rolled) -> None:
    told = rolled.record.look(rolled.record.head.looks - 1)
    by_ssh = judged_by_ssh(rolled)
    assert (told.verdict, told.decision) == ("improved", "promote"), told.reason
    assert (by_ssh.verdict, by_ssh.decision) == (told.verdict, told.decision), by_ssh.reason
    assert by_ssh.moment == told.moment
    assert [each.metric for each in by_ssh.metrics] == [each.metric for each in told.metrics]
    one, other = told.metrics[0], by_ssh.metrics[0]
    # Where nothing is dropped any more, a ratio and its interval say how much was counted.
    assert max(one.ratio, other.ratio) < 0.1
    assert levels(one) == pytest.approx(levels(other), rel=0.15, abs=0.001), (one, other)


BOUND = 60.0
"""Seconds, as the lab's configuration has it."""

Spans = dict[str, list[tuple[float, float]]]
"""Since and until when, by host, in epoch seconds."""


def test_hosts_are_silenced_while_they_are_out(rolled: Rolled) -> None:
    silences = asked(rolled.practice.home, f"http://{ALERTMANAGER}/api/v2/silences")
    assert {own["status"]["state"] for own in silences} == {"expired"}
    out, silent = _out(rolled.record), _silent(silences, rolled.record.head.id)
    assert {name: len(own) for name, own in silent.items()} == {n: len(o) for n, o in out.items()}
    for name, own in out.items():
        for (gone, back), (begin, end) in zip(own, silent[name]):
            assert gone - 1 <= begin < back <= end, name
            # One that is not ended lasts for about the bound of a minute.
            assert end < back + BOUND / 2, name


def _out(record: Record) -> Spans:
    found: Spans = {}
    for batch in record.batches():
        for name, host in batch.hosts.items():
            found.setdefault(name, []).append((host.out_at, host.at))
    return {name: sorted(own) for name, own in found.items()}


def _silent(silences: Sequence[dict[str, Any]], rollout: str) -> Spans:
    found: Spans = {}
    for own in silences:
        labels = {matcher["name"]: matcher["value"] for matcher in own["matchers"]}
        if labels["edgetune_rollout"] == rollout:
            span = _moment(own["startsAt"]), _moment(own["endsAt"])
            found.setdefault(labels["host"], []).append(span)
    return {name: sorted(own) for name, own in found.items()}


def _moment(text: str) -> float:
    """Alertmanager's time in epoch seconds; Python 3.9 reads no Z."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_what_prometheus_counts_is_stored_nowhere_else(rolled: Rolled) -> None:
    with closing(sqlite3.connect(rolled.practice.home / "edgetune.sqlite")) as database:
        rows = database.execute("SELECT pop, value FROM samples").fetchall()
    assert {pop for pop, _ in rows} == {"lab1:1"}
    samples = [json.loads(text) for _, text in rows]
    assert [sample["counters"] for sample in samples if sample["counters"]] == []
    assert all("health_failed" in sample["gauges"] for sample in samples)
