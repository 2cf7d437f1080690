# SPDX-License-Identifier: Apache-2.0
"""The baseline that is checked before anything is touched, and the looks of a soak."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.clock import wall
from edgetune.documents.baseline import Prospect
from edgetune.documents.look import Look
from edgetune.documents.words import Decision, Verdict
from edgetune.errors import InputError, RefusedError
from edgetune.metrics.table import SampleTable
from edgetune.report.text import prospect_text
from edgetune.rollout import soak
from edgetune.rollout.lease import as_owner
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.check_baseline import _useless
from tests.support.builders import as_samples, samples
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


def refused(world: Soaking, says: str, ends: str = "") -> None:
    """The baseline, and the verdict tells why; the rollback has nothing to take back."""
    with pytest.raises(RefusedError) as caught:
        world.run("check_baseline")
    why = str(caught.value)
    assert why.startswith(says) and why.endswith(ends), why
    assert world.head.verdict and world.head.verdict.reason == why
    assert world.roll_back()["state"] == "rolled_back"
    assert world.hosts.told("apply") == []


class TestBaseline:
    def test_it_says_what_could_be_seen(self, world: Soaking) -> None:
        found = world.run("check_baseline")
        assert 0 < found["effect"] < 0.2
        least = f"a change of listen_drops by {found['effect']:.0%} or more"
        said = f"{least} would be seen with 80% power"
        assert said in found["message"]
        assert said in world.status(rollout=world.rollout)

    def test_a_host_that_fails_for_a_moment_ends_none(
        self, world: Soaking, clock: VirtualClock
    ) -> None:
        host = world.hosts_of("test")[0]
        world.balancer.up[host] = False
        clock.then = lambda: world.balancer.up.update({host: True})
        assert world.run("check_baseline")["effect"] > 0
        world.balancer.up[host] = False
        clock.then = lambda: None
        with pytest.raises(RefusedError, match=f"without: exclude={host}"):
            world.run("check_baseline")

    def test_it_is_measured_once(self, improved: Soaking) -> None:
        kept = read_rollout(improved.context, improved.rollout).baseline()
        assert kept is not None
        improved.keep("baseline", [0.0, 1.0])
        assert improved.run("compare_groups")["decision"] == "promote"
        assert read_rollout(improved.context, improved.rollout).baseline() == kept
        assert [own for _, own in improved.looked()] == ["wait", "wait", "wait", "promote"]
        # Each write of the datastore is dispatched with the old and the new value.
        first = read_rollout(improved.context, improved.rollout).look(0)
        assert max(len(json.dumps(each.document())) for each in (kept, first)) < 12000

    def test_a_rollout_from_before_they_were_kept_is_judged_all_the_same(
        self, world: Soaking
    ) -> None:
        world.soak(test=0.9, began=700)
        assert read_rollout(world.context, world.rollout).baseline() is None
        assert world.run("compare_groups")["decision"] == "promote"

    def test_what_could_not_be_seen_is_not_begun(self, world: Soaking) -> None:
        world.context.config = replace(world.context.config, detectable_effect=0.01)
        with pytest.raises(RefusedError, match="detectable_effect of the configuration is 1%"):
            world.run("check_baseline")
        world.roll_back()
        assert world.hosts.told("apply") == []
        assert "detectable_effect" in world.head.history[-2].reason

    def test_one_in_which_nothing_happened_is_refused(self, tmp_path: Path) -> None:
        world = World(tmp_path, **TIMES)
        world.mark("baseline")
        with pytest.raises(RefusedError, match="no host has more than 0 of the 2 samples"):
            world.run("check_baseline")
        quiet = Soaking.__new__(Soaking)
        quiet.__dict__.update(world.__dict__, now=wall(), seeds=SEEDS)
        quiet.keep("baseline", [quiet.now - 1400, quiet.now - 800])
        quiet.count(dict.fromkeys(quiet.hosts_of("test", "control"), 0), quiet.now - 1400, 0)
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

    @pytest.mark.parametrize(
        ("name", "metric"),
        [
            ("listen_drops", "listen_drops"),
            ("health_failed", "health_failed"),
            ("rx_packets", "packets"),
        ],
    )
    def test_what_a_host_does_not_measure_ends_it(
        self, world: Soaking, name: str, metric: str
    ) -> None:
        hosts = world.hosts_of("control")[:2]
        _lacking(world, name, hosts)
        refused(world, f"{metric}: is not measured in the baseline on {hosts[0]}, {hosts[1]}")

    def test_one_without_packets_stands_where_the_plan_says_so(self, tmp_path: Path) -> None:
        world = Soaking(tmp_path, without_packets=True)
        _lacking(world, "rx_packets", world.hosts_of("test", "control"))
        assert world.run("check_baseline")["effect"] > 0
        world.soak(test=0.9, began=700)
        found = world.run("compare_groups")
        assert found["decision"] == "promote"
        assert "; not watched, as it is optional: packets on e0" in found["message"]
        assert "  packets        not watched, as it is optional, on e0" in found["text"]

    @pytest.mark.parametrize(
        ("group", "fails", "says"),
        [
            ("test", "health", "http://127.0.0.1:80/health answers 404 Not Found"),
            ("control", "maint", "the load balancer has it maint"),
            ("test", "down", "the load balancer has it ready, and its check fails"),
            ("control", "gone", "cannot be asked: timed out"),
        ],
    )
    def test_a_host_that_fails_already_ends_it_and_hinders_no_way_back(
        self, world: Soaking, group: str, fails: str, says: str
    ) -> None:
        host = world.hosts_of(group)[0]
        if fails == "health":
            world.hosts.health[host] = "answers 404 Not Found"
        elif fails == "maint":
            world.balancer.state[host] = "maint"
        elif fails == "down":
            world.balancer.up[host] = False
        else:
            world.hosts.unreachable.add(host)
        refused(world, f"{host}: {says}: mend it, or begin again", f"without: exclude={host}")

    def test_it_alone_is_checked_and_hinders_no_rollback(self, world: Soaking) -> None:
        """Nothing that a preflight asks for stands between a tuned host and its way back."""
        world.run("check_baseline")
        world.roll_all(world.mark("changing"))
        with pytest.raises(RefusedError, match="is changing; its baseline is over"):
            world.run("check_baseline")
        tuned = set(world.hosts.tuned)
        world.balancer.up = dict.fromkeys(world.balancer.up, False)
        assert tuned and world.roll_back()["state"] == "rolled_back"
        assert world.hosts.tuned == set()


def _lacking(world: Soaking, name: str, hosts: list[str]) -> None:
    """Hosts do not tell a counter or a gauge."""

    def change(sample: dict[str, Any]) -> None:
        for kind in ("counters", "gauges") if sample["host"] in hosts else ():
            sample[kind].pop(name, None)

    world.alter(change)


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


def test_looks_are_taken_when_they_are_due(tmp_path: Path) -> None:
    world = soaking(tmp_path, USUAL, began=160)
    first, again = (world.run("compare_groups") for _ in range(2))
    assert (first["decision"], first["verdict"]) == ("wait", "inconclusive")
    assert ", look 1 of 4" in first["message"]
    assert (again["decision"], again["verdict"]) == ("wait", "")
    assert again["message"].startswith("the next look, 2 of 4, is in 2m")
    assert len(world.looked()) == 1
    assert "inconclusive so far" in world.status(rollout=world.rollout)
    world.keep("looks", 2)
    with pytest.raises(RefusedError, match="lacks look 1"):
        world.run("compare_groups")


def test_harm_is_taken_back_at_the_look_that_proves_it_and_waits_for_no_other(
    tmp_path: Path,
) -> None:
    world = soaking(tmp_path, 30, began=400, alpha_harm=0.2)
    for _ in range(3):
        found = world.run("compare_groups")
        assert found["decision"] == "roll_back"
    assert world.looked() == [("degraded", "roll_back")]
    world.epoch = found["epoch"]
    assert "more connections than control" in world.mark("rolling_back")["message"]


def test_a_look_before_it_is_due_spends_the_alpha_of_its_time(tmp_path: Path) -> None:
    world = soaking(tmp_path, USUAL, began=210)
    early = world.run("compare_groups", now=True)
    assert (early["decision"], len(world.looked())) == ("wait", 2)
    early_look = read_rollout(world.context, world.rollout).look(1)
    assert early_look.tests["harm"].spent == pytest.approx(0.05 * (210 / 600) ** 1.5, rel=0.02)
    assert "is in" in world.run("compare_groups", now=True)["message"]
    assert len(world.looked()) == 2


def test_what_was_decided_stands_until_a_soak_is_resumed_which_is_a_test_of_its_own(
    tmp_path: Path,
) -> None:
    """Whoever took the look may have died before it was acted on."""
    world = soaking(tmp_path, USUAL, began=700)
    found = world.run("compare_groups")
    assert found["decision"] == "hold"
    assert world.run("compare_groups") == found
    assert len(world.looked()) == 4
    world.epoch = found["epoch"]
    world.mark("held")
    world.mark("soaking")
    assert world.head.first_look == world.head.looks == 4
    assert world.run("compare_groups")["message"].startswith("the next look, 1 of 4")


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


def test_whoever_finds_no_owner_writes_its_epoch_down(world: Soaking) -> None:
    world.soak(test=USUAL, began=100)
    world.context.claims.release("lab1", as_owner(world.context, world.rollout).lease.claim)
    for _ in range(2):
        assert "is in" in world.run("compare_groups")["message"]
        assert world.head.epoch == world.epoch + 1


def test_an_error_is_no_verdict_and_holds_at_the_end(
    improved: Soaking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object) -> object:
        raise InputError("baseline", "metrics", "is odd")

    monkeypatch.setattr("edgetune.judge.measured.measure_block", fails)
    found = improved.run("compare_groups")
    assert found["decision"] == "hold"
    assert improved.looked() == [("inconclusive", "wait")] * 3 + [("inconclusive", "hold")]
    said = "inconclusive: baseline: metrics: is odd, look 4 of 4"
    assert found["message"] == said
    assert found["text"].startswith(said)


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


def test_all_test_hosts_skipped_hold(improved: Soaking) -> None:
    opened = as_owner(improved.context, improved.rollout)
    for batch in opened.batches():
        if batch.group == "test":
            opened.move(batch, list(batch.hosts), "skipped")
    found = improved.run("compare_groups")
    assert found["decision"] == "hold"
    assert "one of the groups is empty" in found["message"]


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


def test_a_sick_test_host_is_not_promoted(improved: Soaking) -> None:
    host, end = improved.hosts_of("test")[0], improved.head.soak[1]
    last = improved.context.samples.window("lab1", end - 1, end).rows()
    (newest,) = (sample for sample in last if sample.host == host)
    gauges = {"health_failed": 0.9, "health_p50_ms": 1.0}
    sick = replace(newest, time=end + 1, uptime=newest.uptime + 1, gauges=gauges)
    improved.context.samples.add("lab1", [sick])
    found = improved.run("compare_groups")
    assert found["decision"] == "hold"
    assert f"; but {host} fails 90% of its health checks" in found["message"]


def test_the_newest_verdict_is_shown_and_nothing_is_looked_at(world: Soaking) -> None:
    world.soak(test=0.9, began=400)
    shown = world.run("show_verdict")
    titled = f"{world.rollout}  accept_queue on lab1: soaking"
    assert shown["text"] == f"{titled}\nNo look was taken yet."
    assert (shown["color"], world.looked()) == ("", [])
    world.run("compare_groups")
    shown = world.run("show_verdict")
    first, second, *table = shown["text"].split("\n")
    assert (first, shown["color"]) == (titled, "warning")
    assert second.startswith("inconclusive: Test hosts dropped ")
    assert any(line.startswith("  listen_drops   test ") for line in table)
