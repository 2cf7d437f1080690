# SPDX-License-Identifier: Apache-2.0
"""Samples are kept as they come: one slow or lying host holds nobody else's up."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from edgetune import RECORD_SCHEMA
from edgetune.base import clock
from edgetune.base.documents.batch import Batch, HostStep
from edgetune.base.documents.reading import encoded
from edgetune.base.documents.sample import Sample
from edgetune.base.errors import FencedError
from edgetune.base.fields import Fields
from edgetune.base.sanitize import LONGEST_LINE
from edgetune.net.hosts.fleet import Fleet, _together
from edgetune.net.hosts.workers import Question
from edgetune.net.metrics.source import MetricSource, Sampled
from edgetune.net.result import HostResult
from edgetune.report.answers import text_of
from edgetune.rollout.evidence.sampling import (
    SweepOfRule,
    pops_under_way,
    sample_pops,
    sampled_by_rule,
)
from edgetune.rollout.hosts.health import sick_services
from edgetune.rollout.hosts.quarantine import fail_host
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.steps.sample_hosts import sample_hosts
from edgetune.rollout.steps.watch_drift import watch_drift
from edgetune.rollout.store.heartbeat import Heartbeat
from edgetune.site.inventory import Host, Metrics
from tests.support.agent_answers import RESULTS, ROW
from tests.support.waiting import wait_until
from tests.support.world import World, changing


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def kept(world: World) -> list[Any]:
    return [*world.context.samples.window("lab1", 0, clock.wall() + 1).rows()]


class Slow(Fleet):
    """A fleet without SSH, in which one host answers once it may."""

    def __init__(self, threads: int) -> None:
        self._config: Any = SimpleNamespace(ssh_threads=threads)
        self.may_answer = threading.Event()

    @contextmanager
    def _login(self, seats: int = 0) -> Iterator[Any]:
        yield None

    def _ask_one(self, login: Any, question: Question) -> HostResult:
        if question.host.name == "e001":
            self.may_answer.wait(60)
        return HostResult(question.host.name, data=RESULTS["sample"])


def test_hosts_that_answer_together_are_stored_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text for each host of a large PoP would be all that reading them costs."""
    slow = Slow(threads=2)
    slow.may_answer.set()
    world.context.fleet = slow
    stored: list[int] = []
    monkeypatch.setattr("edgetune.net.hosts.fleet._TOGETHER", 600.0)
    add = world.context.samples.add

    def counted(pop: str, rows: Any, number: int) -> None:
        stored.append(len(rows))
        add(pop, rows, number)

    monkeypatch.setattr(world.context.samples, "add", counted)
    sample_hosts(world.context, "lab1")
    assert (stored, len(kept(world))) == ([8], 8)


def test_nobody_waits_for_others_once_one_host_may_not_be_asked() -> None:
    told: SimpleQueue[Future[Any]] = SimpleQueue()
    futures: list[Future[Any]] = [Future() for _ in range(3)]
    futures[0].set_result("answer")
    futures[1].set_exception(FencedError("somebody else holds it"))
    futures[2].set_result("answer")
    for future in futures:
        told.put(future)
    assert [_together(told, 9), _together(told, 1)] == [futures[:2], futures[2:]]


def test_samples_are_kept_while_a_slow_host_is_awaited(world: World) -> None:
    slow = Slow(threads=2)
    world.context.fleet = slow
    sampler = threading.Thread(target=sample_hosts, args=(world.context, "lab1"))
    sampler.start()
    end = time.monotonic() + 60
    while len(kept(world)) < 7 and time.monotonic() < end:
        time.sleep(0.02)
    early = kept(world)
    slow.may_answer.set()
    sampler.join(60)
    assert "e001" not in {sample.host for sample in early}
    assert (len(early), len(kept(world))) == (7, 8)
    # A sweep has one time; the guard counts sweeps by it.
    assert len({sample.time for sample in kept(world)}) == 1


class Series(MetricSource):
    """Of all hosts but e003, from somewhere else."""

    @staticmethod
    def read_reading(fields: Fields, limit: float | None) -> Mapping[str, object]:
        raise NotImplementedError

    def __init__(self) -> None: ...

    def sample(self, hosts: Any, health_requests: int) -> Iterator[dict[Host, Sampled]]:
        for host in hosts:
            known = Sample(host.name, 5.0, "boot", 60.0, {"rx_packets": 7.0}, {})
            yield {host: Sampled(error="no series") if host.name == "e003" else Sampled(known)}


def test_a_pop_is_sampled_by_the_source_of_its_inventory_and_its_health_asked_of_hosts(
    world: World,
) -> None:
    context, lab1 = world.context, world.context.inventory.pop("lab1")
    measured = replace(lab1, metrics=Metrics("series"))
    opened = context.metric_source
    context.metric_source = (  # type: ignore[method-assign]
        lambda name: Series() if name == "series" else opened(name)
    )
    context.inventory.pop = lambda name: measured  # type: ignore[method-assign]
    found = sample_hosts(context, pop="lab1")
    assert (found["samples"], found["errors"]) == (7, {"e003": "no series"})
    assert {row.boot_id for row in kept(world)} == {"boot"}
    assert world.hosts.told("sample") == []
    assert sick_services(context, measured, measured.hosts) == {}
    assert len(world.hosts.told("sample")) == 8


def test_a_host_without_a_sample_is_named_with_the_reason(world: World) -> None:
    def lie(name: str, reply: Any) -> Any:
        wrong = {**reply["result"], "counters": {"x" * 3_000_000: 1}}
        return {**reply, "result": wrong} if name == "e003" else reply

    world.hosts.lies = lie
    world.hosts.errors["e004", "sample"] = "timed out"
    found = sample_hosts(world.context, pop="lab1")
    assert (found["samples"], found["missing"]) == (6, ["e003", "e004"])
    assert found["errors"]["e004"] == "timed out"
    assert "has 3000000 characters" in found["errors"]["e003"]
    assert max(len(json.dumps(encoded(sample))) for sample in kept(world)) < 10_000


def test_of_much_drift_the_first_is_told(world: World) -> None:
    rows = [{**ROW, "tuning": "t", "id": f"sysctl:a.{i}", "runtime": "x" * 1900} for i in range(60)]
    world.hosts.drift["e002"] = rows
    told = [*map(text_of, sample_hosts(world.context, pop="lab1")["drift"]["e002"])]
    assert (len(told), told[-1]) == (51, "and 10 more settings")
    assert max(map(len, told)) == LONGEST_LINE


def test_what_enters_a_record_is_short(world: World) -> None:
    """A host's error of megabytes would fill a record that the store then refuses."""
    opened = as_owner(world.context, world.rollout)
    long = "no\n" * 1_000_000
    batch = Batch(opened.head.id, 0, "restore", "", {"e000": HostStep(), "e001": HostStep()})
    fail_host(opened, batch, "e000", long)
    batch.hosts["e001"].go("skipped", long)
    opened.head.note(long, long)
    opened.save()
    told = opened.head.quarantined["e000"].reason
    for text in (told, str(batch.hosts["e000"].error), str(batch.hosts["e001"].error)):
        assert (len(text), "\n" in text) == (LONGEST_LINE, False)
        assert text.endswith(" ... (3000000 characters)")
    assert len(world.context.store.get(f"edgetune.rollout.{opened.head.id}") or "") < 10_000
    assert len(str(HostResult("e000", error=long, reason="failed").error)) == LONGEST_LINE


@pytest.mark.parametrize("step", [sample_hosts, watch_drift])
def test_a_pop_that_is_no_more_stops_no_sampling(tmp_path: Path, step: Any) -> None:
    world = changing(tmp_path)
    if step is watch_drift:
        for state in ("soaking", "promoting", "complete"):
            world.mark(state)
    gone = {"schema": RECORD_SCHEMA, **asdict(replace(world.head, id="gone", pop="gone1"))}
    world.context.store.put("edgetune.rollout.gone", json.dumps(gone))
    assert step(world.context)["samples"] == 8


class Answering:
    """A fleet without SSH, in which some hosts are ``away``."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.away: set[str] = set()

    def ask_in_parts(
        self, hosts: list[Host], verb: str, request: Any, ahead: bool
    ) -> Iterator[list[tuple[Host, HostResult]]]:
        assert ahead
        for host in hosts:
            request(host)
            self.asked.append(host.name)
            away = HostResult(host.name, error="timed out", reason="unreachable")
            well = HostResult(host.name, data=RESULTS["sample"])
            yield [(host, away if host.name in self.away else well)]


def by_rule(world: World, fleet: Answering) -> tuple[list[str], list[str]]:
    """Who is asked in a sweep of the rule, and who has no sample."""
    world.context.fleet, fleet.asked = fleet, []  # type: ignore[assignment]
    told = sample_pops(world.context, ["lab1"], SweepOfRule(world.context, ["lab1"])).result()
    return fleet.asked, told["missing"]


def test_a_silent_host_is_asked_last_and_rests_once_the_guard_told_of_it(world: World) -> None:
    fleet = Answering()
    fleet.away = {"e001", "e004"}
    hosts = [f"e{number:03}" for number in range(8)]
    well = [host for host in hosts if host not in ("e001", "e004")]
    assert by_rule(world, fleet) == (hosts, ["e001", "e004"])
    asked = [by_rule(world, fleet) for _ in range(14)]
    assert {tuple(missing) for _, missing in asked} == {("e001", "e004")}
    assert [names[: len(well)] for names, _ in asked] == [well] * 14
    # Never two in a row: with those of the third, of which theirs come last, they would be lost.
    rests = ["" if names[len(well) :] else "-" for names, _ in asked]
    assert rests == ["", "", "", "-", "", "-", "", "-", "", "-", "", "-", "", "-"]
    fleet.away = set()
    assert by_rule(world, fleet) == ([*well, "e001", "e004"], [])
    assert by_rule(world, fleet) == (hosts, [])


def test_a_person_who_samples_asks_hosts_that_rest(world: World) -> None:
    fleet, silent = Answering(), Heartbeat(clock.wall(), silent={"e001": (5, 1)})
    world.context.heartbeats.beat(sampled_by_rule("lab1"), silent)
    assert by_rule(world, fleet)[1] == ["e001"]
    world.context.heartbeats.beat(sampled_by_rule("lab1"), silent)
    assert sample_hosts(world.context, "lab1")["missing"] == []
    why = sample_pops(world.context, ["lab1"], SweepOfRule(world.context, ["lab1"])).errors
    assert why == {"e001": "no answer to 5 sweeps in a row; the next sweep asks it again"}
    assert by_rule(world, fleet)[1] == []


def test_each_pop_says_when_it_was_sampled_as_it_ends(world: World) -> None:
    """A workflow that does not see it samples its hosts as well."""
    slow = Slow(threads=20)
    world.context.fleet = slow
    lab1 = world.context.inventory.pop("lab1")
    hosts = [replace(host, name=f"f{number}") for number, host in enumerate(lab1.hosts)]
    both = {"lab1": lab1, "lab2": replace(lab1, name="lab2", hosts=tuple(hosts))}
    world.context.inventory = SimpleNamespace(pop=both.get, pop_names=lambda: [*both])  # type: ignore[assignment]
    sweeping = threading.Thread(target=by_slow_rule, args=(world, slow))
    sweeping.start()

    def sampled(pop: str) -> bool:
        return world.context.heartbeats.last(sampled_by_rule(pop)) is not None

    wait_until(lambda: sampled("lab2"))
    assert not sampled("lab1")
    slow.may_answer.set()
    sweeping.join(60)
    assert sampled("lab1")


def by_slow_rule(world: World, slow: Slow) -> None:
    sample_pops(world.context, ["lab1", "lab2"], SweepOfRule(world.context, ["lab1", "lab2"]))


def test_no_pop_is_always_the_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An action that is killed at its timeout leaves out those that were to come."""
    names = ["lab1", "lab2", "lab3"]
    heads = [replace(world.head, pop=name) for name in names]
    monkeypatch.setattr("edgetune.rollout.evidence.sampling.living_heads", lambda context: heads)
    monkeypatch.setattr(type(world.context.inventory), "pop_names", lambda inventory: names)
    drawn = {next(iter(pops_under_way(world.context))) for _ in range(60)}
    assert drawn == {*names}
