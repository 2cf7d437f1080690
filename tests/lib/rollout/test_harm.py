# SPDX-License-Identifier: Apache-2.0
"""Late harm is found in samples that are kept, shown, and told by the guard."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetune.base.clock import wall
from edgetune.base.documents.effect import KeptEffect, Part, effect_key
from edgetune.base.documents.head import Entry
from edgetune.base.documents.past import Past, Standing, Tried, past_key
from edgetune.base.documents.words import Verdict
from edgetune.base.durations import DAY
from edgetune.base.errors import InputError, RefusedError, SourceError
from edgetune.rollout.evidence.harm import DailyRates, days_until_today
from edgetune.rollout.guard import Guard
from edgetune.rollout.record.heads import living_heads
from edgetune.rollout.record.promotions import promotions_of
from tests.support.builders import as_samples, inventory_document
from tests.support.exported import put
from tests.support.virtual_clock import VirtualClock
from tests.support.world import EmptyWorld

POPS = [f"p{number:02d}" for number in range(16)]
HARMED = POPS[:8]
LATE = 2
LAST = "p1-20261124T100727-7a54"


@pytest.fixture
def world(tmp_path: Path, clock: VirtualClock) -> EmptyWorld:
    """``guilty`` came to half of the PoPs, two a day, and ``other`` to others."""
    made = EmptyWorld(tmp_path, chat_channel="edge")
    one = inventory_document(hosts=len(POPS))["pops"]["lab1"]
    hosts = [*one["hosts"].items()]
    pops = {pop: {**one, "hosts": dict([own])} for pop, own in zip(POPS, hosts)}
    made.change_inventory({"pops": pops})
    for number, pop in enumerate(POPS):
        own = {"guilty": since(number)} if number < 8 else {}
        stands(made, pop, {**own, **({"other": since(11 - number)} if 4 <= number < 12 else {})})
    return made


def since(number: int) -> float:
    """Nine days ago, or later."""
    return (wall() // DAY - 9 + number // 2) * DAY - 3600


def stands(world: EmptyWorld, pop: str, tunings: Mapping[str, float]) -> None:
    ids = [f"{pop}-2026112{number}T100727-7a54" for number in range(2)]
    standing = {id: Standing(*own) for id, own in zip(ids, tunings.items())}
    world.context.store.put(past_key(pop), Past(1, ids[0], standing).document())


def judged(world: EmptyWorld, pop: str, tuning: str, rollout: str, at: float) -> None:
    part = Part(1, 1)
    kept = KeptEffect(rollout, pop, tuning, "", "listen_drops", at, Verdict.IMPROVED, part)
    world.context.store.put(kept.key, kept.document())


def retired(world: EmptyWorld, pop: str) -> None:
    """``guilty``, from the first of its PoPs."""
    back = Tried(f"{pop}-20261120T100727-7a54", wall(), "retired")
    past = Past(1, back.rollout, {}, {"guilty": back})
    world.context.store.put(past_key(pop), past.document())
    judged(world, pop, "guilty", back.rollout, since(0))


def sampled(world: EmptyWorld, harm: float, ambient: float = 1.0, without: float = 0) -> None:
    """Each host six hours apart; what ``guilty`` harms drops so many times as much."""
    dice, today = np.random.default_rng(3), wall() // DAY
    for number, pop in enumerate(POPS):
        (host,) = world.context.inventory.pop(pop).hosts
        begun, drops, rows = (today - 14) * DAY, 0.0, []
        for step in range(14 * 4 + 1):
            at = begun + 21600 * step - 60
            own = {"host": host.name, "time": at, "uptime": at - begun + 100, "boot_id": "b"}
            counters = {"listen_drops": int(drops), "rx_packets": 10**6 * step}
            counters.update(rx_missed=0, rx_dropped=50 * step + int(dice.integers(9)))
            rows.append({**own, "counters": counters, "gauges": {}})
            is_late = number < 8 and at >= since(number) + 3600 + LATE * DAY
            worse = harm if is_late else 1.0
            worse *= ambient if at >= (today - 5) * DAY else 1.0
            drops += 10_000 * worse * math.exp(dice.normal(0, 0.05))
        kept = [row for row in rows if row["time"] >= begun + without * DAY]
        world.context.samples.add(pop, as_samples(kept))


def told(world: EmptyWorld, guard: Guard) -> list[dict[str, Any]]:
    return [own for name, own in guard.look(world.context) if name == "harm_traced"]


def refuse(problem: str) -> None:
    raise AssertionError(problem)


def test_the_tuning_that_did_it_is_named_with_the_commands(world: EmptyWorld) -> None:
    sampled(world, 1.25)
    found = world.run("trace_harm")
    assert found["accused"] == ["guilty"] and found["unknown"] == {}
    first = found["suspects"][0]
    assert (first["metric"], first["tuning"], first["days"]) == ("listen_drops", "guilty", LATE)
    # Two metrics were looked at, each with a p of 1/500 at least.
    assert first["p"] == pytest.approx(2 / 500)
    text = " ".join(found["text"].split())
    assert "harm listen_drops +2" in text and "with guilty on 8 PoPs from 2 days after it" in text
    assert "retire_tuning pop=p00 tuning=guilty" in found["text"].splitlines()[-8]
    retired(world, "p00")
    again = world.run("trace_harm")
    shown = [line for line in again["text"].splitlines() if "retire_tuning" in line]
    assert again["accused"] == ["guilty"] and len(shown) == 7 and "pop=p01" in shown[0]
    assert world.run("trace_harm", metric="health_p99")["suspects"] == []
    with pytest.raises(InputError, match="metric: is none of packet_drops, listen_drops"):
        world.run("trace_harm", metric="cpu")


def test_what_takes_too_long_to_read_is_told(
    world: EmptyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled(world, 1.25)
    assert "none were read" not in world.run("trace_harm")["message"]
    monkeypatch.setattr("edgetune.report.steps.trace_harm._LONGEST", 0.0)
    assert world.run("trace_harm")["message"].endswith("; of some PoPs none were read in 0s")


def test_what_is_everywhere_is_laid_at_no_door(world: EmptyWorld) -> None:
    sampled(world, 1.0, ambient=1.4)
    found = world.run("trace_harm")
    assert found["accused"] == [] and found["message"].startswith("no change explains it: 16 prom")
    assert told(world, Guard(refuse)) == []


def test_the_guard_tells_the_next_pop_of_its_rings(world: EmptyWorld) -> None:
    sampled(world, 1.25)
    stands(world, "gone", {"guilty": since(-2)})
    guard = Guard(refuse)
    (own,) = told(world, guard)
    assert (own["tuning"], own["pop"], own["pops"]) == ("guilty", "p00", HARMED)
    assert own["command"].endswith("retire_tuning pop=p00 tuning=guilty") and own["first"]
    assert own["reason"].startswith(own["evidence"]) and own["channel"] == "edge"
    assert told(world, guard) == []
    retired(world, "p00")
    assert [own["pop"] for own in told(world, guard)] == ["p01"]
    advised = world.run("trace_harm")["text"]
    assert "pop=p01" in advised and "pop=p00" not in advised


def test_the_next_pop_waits_until_the_tuning_is_taken_back(world: EmptyWorld) -> None:
    sampled(world, 1.25)
    # The rollout has no plan, which its own checks complain of.
    guard = Guard(str)
    assert [own["pop"] for own in told(world, guard)] == ["p00"]
    of_it = {"stamp": "20261120T100727-7a54", "tuning": "guilty", "plan": ""}
    states = [Entry(since(0), "complete", "", ""), Entry(wall(), "rolling_back", "", "")]
    put(world, "p00", "rolling_back", **of_it, history=states)
    assert told(world, guard) == []
    states += [Entry(wall(), "rolled_back", "", "")]
    put(world, "p00", "rolled_back", **of_it, history=states)
    handed = [Entry(since(0), "complete", "", ""), Entry(wall(), "handed_over", "", "")]
    put(world, "p01", "handed_over", **of_it, history=handed)
    assert [own["pop"] for own in told(world, guard)] == ["p02"]


def test_what_was_taken_back_costs_the_guard_no_request(
    world: EmptyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled(world, 1.25)
    guard = Guard(refuse)
    told(world, guard)
    for pop in HARMED[:5]:
        back = Tried(f"{pop}-20261120T100727-7a54", wall(), "retired")
        world.context.store.put(
            past_key(pop), Past(1, back.rollout, {}, {"guilty": back}).document()
        )
        judged(world, pop, "guilty", back.rollout, since(0))
    asked: list[str] = []
    listed = world.context.store.list
    monkeypatch.setattr(world.context.store, "list", lambda key: asked.append(key) or listed(key))
    assert [own["pop"] for own in told(world, guard)] == ["p05"]
    assert not [key for key in asked if key.startswith(effect_key())]


def test_the_guard_reads_a_part_at_each_look(
    world: EmptyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled(world, 1.25)
    monkeypatch.setattr("edgetune.rollout.guard.tracing._SECONDS", 0.0)
    guard = Guard(refuse)
    assert told(world, guard) == []
    monkeypatch.setattr("edgetune.rollout.guard.tracing._SECONDS", 1.0)
    assert len(told(world, guard)) == 1


def test_days_without_samples_are_absent(world: EmptyWorld) -> None:
    sampled(world, 1.0, without=4)
    rates, days = DailyRates(), days_until_today(world.context)
    assert rates.read(world.context, days) and len(days) == 14
    known = np.isfinite(rates.of(POPS, days, "listen_drops"))
    assert known[:, 4:].all() and not known[:, :4].any()
    assert not np.isfinite(rates.of(POPS, days, "health_slowest")).any()


@pytest.mark.parametrize("problem", [SourceError, RefusedError])
def test_a_source_that_is_away_is_told_and_hides_no_other_pop(
    world: EmptyWorld, monkeypatch: pytest.MonkeyPatch, problem: type[Exception]
) -> None:
    sampled(world, 1.25)
    thinned = world.context.samples.thinned

    def away(pop: str, *window: float) -> Any:
        if pop == "p15":
            raise problem("p15: no answer")
        return thinned(pop, *window)

    monkeypatch.setattr(world.context.samples, "thinned", away)
    found = world.run("trace_harm")
    assert found["accused"] == ["guilty"] and found["unknown"] == {"p15": "p15: no answer"}
    assert found["text"].endswith("p15: no answer")


def test_the_archive_tells_what_stands_and_what_stood(tmp_path: Path, clock: VirtualClock) -> None:
    world, now = EmptyWorld(tmp_path), wall()
    standing = {LAST: Standing("one", now - 5 * DAY)}
    tried = {
        "two": Tried("p1-20261101T100727-7a54", now - DAY, "ill"),
        "held": Tried("p1-20261102T100727-7a54", now - DAY, "ill"),
        "old": Tried("p1-20261104T100727-7a54", now - 32 * DAY, "ill"),
        "never": Tried("p1-20261103T100727-7a54", now - DAY, "ill"),
    }
    past = Past(3, LAST, standing, tried)
    world.context.store.put(past_key("p1"), past.document())
    world.context.store.put(past_key("p2"), "{")
    for tuning, at in (("two", now - 9 * DAY), ("held", now - DAY - 60), ("old", now - 40 * DAY)):
        judged(world, "p1", tuning, tried[tuning].rollout, at)
    promoted = promotions_of(world.context, living_heads(world.context))
    found = [(own.tuning, own.since, own.until) for own in promoted]
    assert found == [("two", now - 9 * DAY, now - DAY), ("one", now - 5 * DAY, math.inf)]
    history = [Entry(now - 5 * DAY, "promoting", "", ""), Entry(now - 60, "rolling_back", "", "")]
    put(world, "p1", "rolled_back", stamp=LAST[3:], tuning="one", plan="", history=history)
    assert promotions_of(world.context, living_heads(world.context))[-1].until == now - 60
