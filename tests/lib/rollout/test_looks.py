# SPDX-License-Identifier: Apache-2.0
"""The baseline that is checked before anything is touched, and the looks of a soak."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest

from edgetune import clock
from edgetune.documents.baseline import Prospect
from edgetune.documents.look import Look
from edgetune.documents.words import Decision, Verdict
from edgetune.errors import InputError, RefusedError
from edgetune.metrics.table import SampleTable
from edgetune.report.text import prospect_text
from edgetune.rollout import soak
from edgetune.rollout.lease import as_owner
from edgetune.rollout.record import read_rollout
from edgetune.rollout.steps.check_baseline import _useless, check_baseline
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.rollout.steps.sample_hosts import sample_hosts
from edgetune.rollout.steps.show_verdict import show_verdict
from tests.support.builders import as_samples, samples
from tests.support.soaking import SEEDS, TIMES, USUAL, Altered, Soaking
from tests.support.virtual_clock import VirtualClock
from tests.support.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Soaking]:
    yield Soaking(tmp_path)


def test_the_baseline_says_what_could_be_seen(world: Soaking) -> None:
    found = check_baseline(world.context, world.rollout, world.epoch)
    assert 0 < found["effect"] < 0.2
    said = f"a change of listen_drops by {found['effect']:.0%} or more would be seen with 80% power"
    assert said in found["message"]
    assert said in rollout_status(world.context, world.rollout)["text"]


def test_a_host_that_fails_for_a_moment_ends_no_baseline(
    world: Soaking, clock: VirtualClock
) -> None:
    host = world.hosts_of("test")[0]
    world.balancer.up[host] = False
    clock.then = lambda: world.balancer.up.update({host: True})
    assert check_baseline(world.context, world.rollout, world.epoch)["effect"] > 0
    world.balancer.up[host] = False
    clock.then = lambda: None
    with pytest.raises(RefusedError, match=f"without: exclude={host}"):
        check_baseline(world.context, world.rollout, world.epoch)


def test_a_baseline_is_measured_once(world: Soaking) -> None:
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=0.9, began=700)
    kept = read_rollout(world.context, world.rollout).baseline()
    assert kept is not None
    world.keep("baseline", [0.0, 1.0])
    assert compare_groups(world.context, world.rollout)["decision"] == "promote"
    assert read_rollout(world.context, world.rollout).baseline() == kept


def test_a_rollout_from_before_baselines_were_kept_is_judged_all_the_same(world: Soaking) -> None:
    world.soak(test=0.9, began=700)
    assert read_rollout(world.context, world.rollout).baseline() is None
    assert compare_groups(world.context, world.rollout)["decision"] == "promote"


def test_what_could_not_be_seen_is_not_begun(tmp_path: Path) -> None:
    world = Soaking(tmp_path)
    world.context.config = world.context.config.__class__(
        **{**world.context.config.__dict__, "detectable_effect": 0.01}
    )
    with pytest.raises(RefusedError, match="detectable_effect of the configuration is 1%"):
        check_baseline(world.context, world.rollout, world.epoch)
    world.roll_back()
    assert world.hosts.told("apply") == []
    assert "detectable_effect" in world.head.history[-2].reason


def test_a_baseline_in_which_nothing_happened_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, **TIMES)
    world.mark("baseline")
    with pytest.raises(RefusedError, match="no host has more than 0 of the 2 samples"):
        check_baseline(world.context, world.rollout, world.epoch)
    quiet = Soaking.__new__(Soaking)
    quiet.__dict__.update(world.__dict__, now=clock.wall(), seeds=SEEDS)
    quiet.keep("baseline", [quiet.now - 1400, quiet.now - 800])
    quiet.count(dict.fromkeys(quiet.hosts_of("test", "control"), 0), quiet.now - 1400, 0)
    with pytest.raises(RefusedError, match="no effect on listen_drops could be seen"):
        check_baseline(world.context, world.rollout, world.epoch)


def test_nothing_in_the_baseline_is_no_obstacle_to_a_no_harm_tuning(tmp_path: Path) -> None:
    found = Prospect("no_harm", 0.1, "listen_drops", None, power=0.8, alpha=0.05)
    text = prospect_text(found)
    assert text == "no listen_drops in the baseline: harm can be seen, but not that there is none"
    assert _useless([], found, text, 0.9) == ""
    told = prospect_text(replace(found, effect=0.2))
    assert told.endswith("(alpha 0.05), but 10% are to be excluded: it may well be held")
    assert _useless([], replace(found, goal="improve"), text, 0.9)
    assert _useless([], replace(found, goal="improve"), text, 0) == ""


def _lacking(world: Soaking, name: str, hosts: list[str]) -> None:
    """Hosts do not tell a counter or a gauge."""

    def change(sample: dict[str, Any]) -> None:
        for kind in ("counters", "gauges") if sample["host"] in hosts else ():
            sample[kind].pop(name, None)

    world.alter(change)


@pytest.mark.parametrize(
    "name, metric",
    [
        ("listen_drops", "listen_drops"),
        ("health_failed", "health_failed"),
        ("rx_packets", "packets"),
    ],
)
def test_what_a_host_does_not_measure_ends_the_baseline(
    world: Soaking, name: str, metric: str
) -> None:
    hosts = world.hosts_of("control")[:2]
    _lacking(world, name, hosts)
    with pytest.raises(RefusedError) as caught:
        check_baseline(world.context, world.rollout, world.epoch)
    told = f"{metric}: is not measured in the baseline on {hosts[0]}, {hosts[1]}"
    assert str(caught.value).startswith(told)
    assert world.head.verdict and world.head.verdict.reason == str(caught.value)
    assert world.roll_back()["state"] == "rolled_back"
    assert world.hosts.told("apply") == []


def test_a_baseline_without_packets_stands_where_the_plan_says_so(tmp_path: Path) -> None:
    world = Soaking(tmp_path, without_packets=True)
    _lacking(world, "rx_packets", world.hosts_of("test", "control"))
    assert check_baseline(world.context, world.rollout, world.epoch)["effect"] > 0
    world.soak(test=0.9, began=700)
    found = compare_groups(world.context, world.rollout)
    assert found["decision"] == "promote"
    assert "; not watched, as it is optional: packets on e0" in found["message"]
    assert "  packets        not watched, as it is optional, on e0" in found["text"]


@pytest.mark.parametrize("at", [-5, 150])
def test_a_crash_between_two_looks_or_in_the_warm_up_is_told(world: Soaking, at: float) -> None:
    """Between two looks each of both has but one boot of the host."""
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=0.9, began=700)
    host, start = world.hosts_of("test")[0], world.head.soak[0]
    booted = {**samples({host: 1.0}, start - 9, 0)[0], "boot_id": "before"}
    world.context.samples.add("lab1", as_samples([booted]))

    def change(sample: dict[str, Any]) -> None:
        if sample["host"] == host and sample["time"] > start + at:
            sample["boot_id"] = "after"
        elif sample["host"] == host and sample["time"] > start - 20:
            sample["boot_id"] = "before"

    world.alter(change)
    found = compare_groups(world.context, world.rollout)
    assert found["decision"] == "hold"
    assert f"{host} rebooted in the soak" in found["message"]


def _breaks_health(world: Soaking, host: str) -> str:
    world.hosts.health[host] = "answers 404 Not Found"
    return f"{host}: http://127.0.0.1:80/health answers 404 Not Found: mend it, or begin again"


def _is_taken_out(world: Soaking, host: str) -> str:
    world.balancer.state[host] = "maint"
    return f"{host}: the load balancer has it maint: mend it, or begin again"


def _fails_its_check(world: Soaking, host: str) -> str:
    world.balancer.up[host] = False
    return f"{host}: the load balancer has it ready, and its check fails: mend it"


def _is_gone(world: Soaking, host: str) -> str:
    world.hosts.unreachable.add(host)
    return f"{host}: cannot be asked: timed out: mend it"


@pytest.mark.parametrize("group", ["test", "control"])
@pytest.mark.parametrize("fails", [_breaks_health, _is_taken_out, _fails_its_check, _is_gone])
def test_a_host_that_fails_already_ends_the_baseline_and_hinders_no_way_back(
    world: Soaking, fails: Callable[[Soaking, str], str], group: str
) -> None:
    host = world.hosts_of(group)[0]
    says = fails(world, host)
    with pytest.raises(RefusedError) as caught:
        check_baseline(world.context, world.rollout, world.epoch)
    assert str(caught.value).startswith(says)
    assert str(caught.value).endswith(f"without: exclude={host}")
    assert world.head.verdict and world.head.verdict.reason == str(caught.value)
    assert world.roll_back()["state"] == "rolled_back"
    assert world.hosts.told("apply") == []


def test_a_sick_pop_is_rolled_back_all_the_same(world: Soaking) -> None:
    """Nothing that a preflight asks for stands between a tuned host and its way back."""
    check_baseline(world.context, world.rollout, world.epoch)
    world.roll_all(world.mark("changing"))
    tuned = set(world.hosts.tuned)
    world.balancer.up = dict.fromkeys(world.balancer.up, False)
    assert tuned and world.roll_back()["state"] == "rolled_back"
    assert world.hosts.tuned == set()


def test_only_a_baseline_is_checked(world: Soaking) -> None:
    world.mark("changing")
    with pytest.raises(RefusedError, match="is changing; its baseline is over"):
        check_baseline(world.context, world.rollout, world.epoch)


def test_looks_are_taken_when_they_are_due(world: Soaking) -> None:
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=USUAL, began=160)
    first = compare_groups(world.context, world.rollout)
    assert (first["decision"], first["verdict"]) == ("wait", "inconclusive")
    assert ", look 1 of 4" in first["message"]
    again = compare_groups(world.context, world.rollout)
    assert (again["decision"], again["verdict"]) == ("wait", "")
    assert again["message"].startswith("the next look, 2 of 4, is in 2m")
    assert len(world.looked()) == 1
    assert "inconclusive so far" in rollout_status(world.context, world.rollout)["text"]


def test_looks_that_were_missed_are_made_up_for(world: Soaking) -> None:
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=0.9, began=700)
    assert compare_groups(world.context, world.rollout)["decision"] == "promote"
    assert [decision for _, decision in world.looked()] == ["wait", "wait", "wait", "promote"]


def test_harm_is_taken_back_at_the_look_that_proves_it(tmp_path: Path) -> None:
    world = Soaking(tmp_path, alpha_harm=0.2)
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=30, began=400)
    found = compare_groups(world.context, world.rollout)
    assert found["decision"] == "roll_back"
    assert world.looked() == [("degraded", "roll_back")]
    world.epoch = found["epoch"]
    assert "more connections than control" in world.mark("rolling_back")["message"]


def test_a_look_before_it_is_due_spends_the_alpha_of_its_time(world: Soaking) -> None:
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=USUAL, began=210)
    early = compare_groups(world.context, world.rollout, now=True)
    assert (early["decision"], len(world.looked())) == ("wait", 2)
    early_look = read_rollout(world.context, world.rollout).look(1)
    assert early_look.tests["harm"].spent == pytest.approx(0.05 * (210 / 600) ** 1.5, rel=0.02)
    assert "is in" in compare_groups(world.context, world.rollout, now=True)["message"]
    assert len(world.looked()) == 2


def test_a_soak_that_is_resumed_is_a_test_of_its_own(world: Soaking) -> None:
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=USUAL, began=700)
    found = compare_groups(world.context, world.rollout)
    assert found["decision"] == "hold"
    world.epoch = found["epoch"]
    world.mark("held")
    world.mark("soaking")
    assert world.head.first_look == world.head.looks == 4
    assert compare_groups(world.context, world.rollout)["message"].startswith(
        "the next look, 1 of 4"
    )


def test_what_was_decided_stands_until_somebody_acts_on_it(world: Soaking) -> None:
    """Whoever took the look may have died before it was acted on."""
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=USUAL, began=700)
    first = compare_groups(world.context, world.rollout)
    assert first["decision"] == "hold"
    assert compare_groups(world.context, world.rollout) == first
    assert len(world.looked()) == 4


def test_harm_that_was_not_acted_on_does_not_wait_for_the_next_look(tmp_path: Path) -> None:
    world = Soaking(tmp_path, alpha_harm=0.2)
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=30, began=310)
    for _ in range(3):
        assert compare_groups(world.context, world.rollout)["decision"] == "roll_back"
    assert world.looked() == [("degraded", "roll_back")]


def test_looks_of_the_version_before_are_no_part_of_the_test(world: Soaking) -> None:
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=0.9, began=700)
    old = Look(Verdict.INCONCLUSIVE, Decision.HOLD, "too few")
    opened = as_owner(world.context, world.rollout)
    opened.save_look(old)
    opened.head.looks, opened.head.verdict = 1, old.conclusion
    opened.save()
    assert "inconclusive so far: too few" in rollout_status(world.context, world.rollout)["text"]
    found = compare_groups(world.context, world.rollout)
    assert (found["decision"], len(world.looked())) == ("promote", 5)
    assert ", look 4 of 4" in found["message"]


def test_whoever_finds_no_owner_writes_its_epoch_down(world: Soaking) -> None:
    world.soak(test=USUAL, began=100)
    world.context.claims.release("lab1", as_owner(world.context, world.rollout).lease.claim)
    for _ in range(2):
        assert "is in" in compare_groups(world.context, world.rollout)["message"]
        assert world.head.epoch == world.epoch + 1


def test_a_look_that_is_lost_from_the_record_stops_the_judge(world: Soaking) -> None:
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=USUAL, began=160)
    compare_groups(world.context, world.rollout)
    world.keep("looks", 2)
    with pytest.raises(RefusedError, match="lacks look 1"):
        compare_groups(world.context, world.rollout)


def test_an_error_is_no_verdict_and_holds_at_the_end(
    world: Soaking, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=0.9, began=700)

    def fails(*given: object) -> object:
        raise InputError("baseline", "metrics", "is odd")

    monkeypatch.setattr("edgetune.judge.measured.measure_block", fails)
    found = compare_groups(world.context, world.rollout)
    assert found["decision"] == "hold"
    assert world.looked() == [("inconclusive", "wait")] * 3 + [("inconclusive", "hold")]
    said = "inconclusive: baseline: metrics: is odd, look 4 of 4"
    assert found["message"] == said
    assert found["text"].startswith(said)


@pytest.mark.parametrize(
    "drops", [-4, math.nan, math.inf, 10**400], ids=["less", "nan", "inf", "huge"]
)
def test_a_damaged_sample_ends_no_look(world: Soaking, drops: float) -> None:
    """Samples that others put into the store may be anything."""
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=0.9, began=700)
    (some, *_) = world.context.samples.window("lab1", world.now - 600, world.now - 590).rows()
    damaged: list[dict[str, Any]] = [{"counters": {"listen_drops": drops}}, {"uptime": drops}]
    for number, damage in enumerate([*damaged, {"gauges": {"x": drops}}], 1):
        at = {"time": some.time + number, "uptime": some.uptime + number}
        world.context.samples.add("lab1", [replace(some, **{**at, **damage})])
    assert compare_groups(world.context, world.rollout)["decision"] == "promote"


def test_all_test_hosts_skipped_hold(world: Soaking) -> None:
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=0.9, began=700)
    opened = as_owner(world.context, world.rollout)
    for batch in opened.batches():
        if batch.group == "test":
            opened.move(batch, list(batch.hosts), "skipped")
    found = compare_groups(world.context, world.rollout)
    assert found["decision"] == "hold"
    assert "one of the groups is empty" in found["message"]


@pytest.mark.parametrize("drops", [-4, 10**400], ids=["negative", "huge"])
def test_samples_that_make_no_sense_are_no_answer(world: Soaking, drops: int) -> None:
    sampled = world.hosts._sample
    nonsense = {"counters": {"listen_drops": drops}}
    world.hosts._sample = lambda name, request: {  # type: ignore[method-assign]
        **sampled(name, request),
        **(nonsense if name == "e002" else {}),
    }
    found = sample_hosts(world.context, pop="lab1")
    assert (found["samples"], found["missing"]) == (7, ["e002"])


class HalfASweep(Altered):
    """Of one host there is no sample yet after a moment; somebody else's sweep is under way."""

    host, after = "", 0.0

    def window(self, pop: str, start: float, end: float) -> SampleTable:
        rows = super().window(pop, start, end).rows()
        return SampleTable([row for row in rows if row.host != self.host or row.time < self.after])


@pytest.mark.parametrize("host", ["", "e002"])
def test_a_look_has_a_sample_of_every_host_after_its_end(
    world: Soaking, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=USUAL, began=160)
    (end,) = soak.Soak(read_rollout(world.context, world.rollout)).due(now=False)
    half = HalfASweep(world.context.samples, lambda row: None)
    half.host, half.after = host, end
    world.context.samples = half
    taken: list[str] = []
    monkeypatch.setattr(
        "edgetune.rollout.steps.compare_groups.sample_pop",
        lambda context, pop: taken.append(pop.name),
    )
    compare_groups(world.context, world.rollout)
    assert taken == (["lab1"] if host else [])


def test_two_who_look_at_once_take_one_look(
    world: Soaking, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=USUAL, began=160)
    own = soak.Soak.due

    def meanwhile(self: soak.Soak, now: bool) -> list[float]:
        monkeypatch.setattr(soak.Soak, "due", own)
        assert compare_groups(world.context, world.rollout)["verdict"] == "inconclusive"
        return own(self, now)

    monkeypatch.setattr(soak.Soak, "due", meanwhile)
    late = compare_groups(world.context, world.rollout)
    assert late["message"] == f"somebody else is looking at {world.rollout}"
    assert len(world.looked()) == 1


def test_a_sick_test_host_is_not_promoted(world: Soaking) -> None:
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=0.9, began=700)
    host, end = world.hosts_of("test")[0], world.head.soak[1]
    last = world.context.samples.window("lab1", end - 1, end).rows()
    (newest,) = (sample for sample in last if sample.host == host)
    gauges = {"health_failed": 0.9, "health_p50_ms": 1.0}
    sick = replace(newest, time=end + 1, uptime=newest.uptime + 1, gauges=gauges)
    world.context.samples.add("lab1", [sick])
    found = compare_groups(world.context, world.rollout)
    assert found["decision"] == "hold"
    assert f"; but {host} fails 90% of its health checks" in found["message"]


def test_documents_of_looks_are_small(world: Soaking) -> None:
    """Each write of the datastore is dispatched with the old and the new value."""
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=0.9, began=700)
    compare_groups(world.context, world.rollout)
    opened = as_owner(world.context, world.rollout)
    assert len(json.dumps(opened.look(0).document())) < 12000
    kept = opened.baseline()
    assert kept is not None and len(json.dumps(kept.document())) < 12000


def test_the_newest_verdict_is_shown_and_nothing_is_looked_at(world: Soaking) -> None:
    world.soak(test=0.9, began=400)
    for due in (False, True):
        shown = show_verdict(world.context, world.rollout)
        first, second, *table = shown["text"].split("\n")
        assert first == f"{world.rollout}  accept_queue on lab1: soaking"
        if not due:
            assert (second, shown["color"], world.looked()) == ("No look was taken yet.", "", [])
            compare_groups(world.context, world.rollout)
    assert second.startswith("inconclusive: Test hosts dropped ")
    assert any(line.startswith("  listen_drops   test ") for line in table)
    assert shown["color"] == "warning"
