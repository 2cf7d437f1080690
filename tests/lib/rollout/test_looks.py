# SPDX-License-Identifier: Apache-2.0
"""The baseline that is checked before anything is touched, and the looks of a soak."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.base.clock import wall
from edgetune.base.documents.baseline import Baseline, Prospect
from edgetune.base.documents.look import Look
from edgetune.base.documents.table import SampleTable
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.errors import RefusedError
from edgetune.judge.verdict import prospect_text
from edgetune.rollout.evidence import soak
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.record.rollout import read_rollout
from edgetune.rollout.steps.check_baseline import _useless
from tests.support.builders import as_samples, samples
from tests.support.scenarios import Scenario, scenarios
from tests.support.soaking import SEEDS, TIMES, USUAL, Altered, Soaking, soaking
from tests.support.virtual_clock import VirtualClock
from tests.support.world import World


@pytest.fixture
def world(tmp_path: Path) -> Soaking:
    """Its baseline is to be checked."""
    return Soaking(tmp_path)


@pytest.fixture
def improved(tmp_path: Path) -> Soaking:
    """All its looks are due, and the last one promotes it."""
    return soaking(tmp_path, 0.9, began=700)


class LookMoves(Scenario):
    world: Soaking

    def lacking(self, readings: dict[str, list[str]]) -> None:
        def change(sample: dict[str, Any]) -> None:
            for name, hosts in readings.items():
                for kind in ("counters", "gauges") if sample["host"] in hosts else ():
                    sample[kind].pop(name, None)

        self.world.alter(change)

    def ends(self, says: str) -> None:
        self._refused("step", "check_baseline", {"RefusedError": says})
        verdict = self.world.head.verdict
        assert verdict
        self._compare("the verdict", verdict.reason, says)
        assert self.world.roll_back()["state"] == "rolled_back"
        assert self.world.hosts.told("apply") == []

    @property
    def hindrance(self) -> str:
        return soak.Soak(as_owner(self.world.context, self.world.rollout)).hindrance

    @property
    def baseline(self) -> Baseline | None:
        return read_rollout(self.world.context, self.world.rollout).baseline()


@pytest.mark.parametrize("case", scenarios(__file__))
def test_a_baseline_is_checked_and_looks_are_taken(
    case: Any, tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = case[0]
    soaks, planned = first.pop("soaking", None), first.pop("plan", {})
    world = Soaking(tmp_path, **planned) if soaks is None else soaking(tmp_path, **soaks)
    LookMoves(world, clock, monkeypatch).play(case)


class TestBaseline:
    def test_it_is_measured_once(self, improved: Soaking) -> None:
        kept = read_rollout(improved.context, improved.rollout).baseline()
        assert kept is not None
        improved.keep("baseline", [0.0, 1.0])
        assert improved.run("compare_groups")["decision"] == "promote"
        assert read_rollout(improved.context, improved.rollout).baseline() == kept
        assert [own for _, own in improved.looked()] == ["wait", "wait", "wait", "promote"]
        # What tells capacity is kept of each part, and told by the look that decides.
        looks = [read_rollout(improved.context, improved.rollout).look(n) for n in range(4)]
        blocks = [look.block for look in looks]
        assert all(own and [*own.loads] == ["health_failed"] for own in (kept, *blocks))
        assert [bool(look.headroom) for look in looks] == [False, False, False, True]
        assert {own.why for own in looks[-1].headroom[0].groups.values()} == {"never"}
        # Each write of the datastore is dispatched with the old and the new value.
        first = read_rollout(improved.context, improved.rollout).look(0)
        assert max(len(json.dumps(each.document())) for each in (kept, first)) < 12000

    def test_one_in_which_nothing_happened_is_refused(self, tmp_path: Path) -> None:
        world = World(tmp_path, **TIMES)
        world.mark("baseline")
        with pytest.raises(RefusedError, match="no host has more than 0 of the 2 samples"):
            world.run("check_baseline")
        quiet = Soaking.__new__(Soaking)
        quiet.__dict__.update(world.__dict__, now=wall(), seeds=SEEDS)
        quiet.keep("baseline", [quiet.now - 1400, quiet.now - 800])
        none = samples(dict.fromkeys(quiet.hosts_of("test", "control"), 0.0), quiet.now - 1400, 600)
        world.context.samples.add("lab1", as_samples(none))
        with pytest.raises(RefusedError, match="is not known: measured in 4. % of the baseline"):
            world.run("check_baseline")
        quiet.count(dict.fromkeys(quiet.hosts_of("test", "control"), 0.0), quiet.now - 1400, 0)
        with pytest.raises(RefusedError, match="no effect on listen_drops could be seen"):
            world.run("check_baseline")

    def test_nothing_in_it_is_no_obstacle_to_a_no_harm_tuning(self) -> None:
        found = Prospect("no_harm", 0.1, "listen_drops", None, power=0.8, alpha=0.05)
        text = prospect_text(found)
        said = "no listen_drops in the baseline: harm can be seen, but not that there is none"
        assert text == said
        assert _useless([], found, text, 0.9) == ""
        told = prospect_text(replace(found, effect=0.2))
        assert told.endswith("(alpha 0.05), but 10% are to be excluded: it may well be held")
        assert _useless([], replace(found, goal="improve"), text, 0.9)
        assert _useless([], replace(found, goal="improve"), text, 0) == ""


@pytest.mark.parametrize("at", [-5, 150])
def test_a_crash_between_two_looks_or_in_the_warm_up_is_told(improved: Soaking, at: float) -> None:
    """Between two looks each of both has but one boot of the host."""
    host, start = improved.hosts_of("test")[0], improved.head.soak[0]
    booted = {**samples({host: 1.0}, start - 9, 0)[0], "boot_id": "before"}
    improved.context.samples.add("lab1", as_samples([booted]))

    def change(sample: dict[str, Any]) -> None:
        if sample["host"] == host and sample["time"] > start - 20:
            sample["boot_id"] = "after" if sample["time"] > start + at else "before"

    improved.alter(change)
    found = improved.run("compare_groups")
    assert found["decision"] == "hold"
    assert f"{host} rebooted in the soak" in found["message"]


def test_a_look_before_it_is_due_spends_the_alpha_of_its_time(tmp_path: Path) -> None:
    world = soaking(tmp_path, USUAL, began=210)
    early = world.run("compare_groups", now=True)
    assert (early["decision"], len(world.looked())) == ("wait", 2)
    early_look = read_rollout(world.context, world.rollout).look(1)
    assert early_look.tests["help"].spent == pytest.approx(0.05 * (210 / 600) ** 3, rel=0.05)
    assert "is in" in world.run("compare_groups", now=True)["message"]
    assert len(world.looked()) == 2


def test_looks_of_the_version_before_are_no_part_of_the_test(improved: Soaking) -> None:
    old = Look(Verdict.INCONCLUSIVE, Decision.HOLD, "too few")
    opened = as_owner(improved.context, improved.rollout)
    opened.save_look(old)
    opened.head.looks, opened.head.verdict = 1, old.conclusion
    opened.save()
    assert "inconclusive so far: too few" in improved.status(rollout=improved.rollout)
    found = improved.run("compare_groups")
    assert (found["decision"], len(improved.looked())) == ("promote", 5)
    assert ", look 4 of 4" in found["message"]


def test_damaged_samples_of_others_end_no_look_and_those_of_a_host_are_no_answer(
    improved: Soaking,
) -> None:
    """Samples that others put into the store may be anything."""
    world = improved
    (some, *_) = world.context.samples.window("lab1", world.now - 600, world.now - 590).rows()
    number, sampled = 0, world.hosts._sample
    for amount in (-4, math.nan, math.inf, 10**400):
        counters = {"counters": {"listen_drops": amount}}
        for damage in (counters, {"uptime": amount}, {"gauges": {"x": amount}}):
            number += 1
            at = {"time": some.time + number / 8, "uptime": some.uptime + number / 8}
            world.context.samples.add("lab1", [replace(some, **{**at, **damage})])
        if amount in (-4, 10**400):
            world.hosts._sample = lambda name, request, told=counters: {
                **sampled(name, request),
                **(told if name == "e002" else {}),
            }
            found = world.run("sample_hosts", "lab1")
            assert (found["samples"], found["missing"]) == (7, ["e002"])
    world.hosts._sample = sampled
    assert world.run("compare_groups")["decision"] == "promote"


class HalfASweep(Altered):
    """Of one host there is no sample yet after a moment; somebody else's sweep is under way."""

    host, after = "", 0.0

    def window(self, pop: str, start: float, end: float) -> SampleTable:
        rows = super().window(pop, start, end).rows()
        return SampleTable([row for row in rows if row.host != self.host or row.time < self.after])


@pytest.mark.parametrize("host", ["", "e002"])
def test_a_look_has_a_sample_of_every_host_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    world = soaking(tmp_path, USUAL, began=160)
    (end,) = soak.Soak(read_rollout(world.context, world.rollout)).due(now=False)
    half = HalfASweep(world.context.samples, lambda row: None)
    half.host, half.after = host, end
    world.context.samples = half
    taken: list[str] = []
    monkeypatch.setattr(
        "edgetune.rollout.steps.compare_groups.sample_pop",
        lambda context, pop: taken.append(pop.name),
    )
    world.run("compare_groups")
    assert taken == (["lab1"] if host else [])


def test_two_who_look_at_once_take_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = soaking(tmp_path, USUAL, began=160)
    own = soak.Soak.due

    def meanwhile(self: soak.Soak, now: bool) -> list[float]:
        monkeypatch.setattr(soak.Soak, "due", own)
        assert world.run("compare_groups")["verdict"] == "inconclusive"
        return own(self, now)

    monkeypatch.setattr(soak.Soak, "due", meanwhile)
    late = world.run("compare_groups")
    assert late["message"] == f"somebody else is looking at {world.rollout}"
    assert len(world.looked()) == 1


@pytest.mark.parametrize("ring", ["", "queue-1/early"])
def test_a_sick_test_host_is_not_promoted(improved: Soaking, ring: str) -> None:
    improved.keep("ring", ring)
    host, end = improved.hosts_of("test")[0], improved.head.soak[1]
    last = improved.context.samples.window("lab1", end - 1, end).rows()
    (newest,) = (sample for sample in last if sample.host == host)
    gauges = {"health_failed": 0.9, "health_p50_ms": 1.0}
    sick = replace(newest, time=end + 1, uptime=newest.uptime + 1, gauges=gauges)
    improved.context.samples.add("lab1", [sick])
    found = improved.run("compare_groups")
    assert found["decision"] == ("wait" if ring else "hold")
    assert f"; but {host} fails 90% of its health checks" in found["message"]
    hindrance = soak.Soak(as_owner(improved.context, improved.rollout)).hindrance
    assert hindrance == f"{host} fails 90% of its health checks"
