# SPDX-License-Identifier: Apache-2.0
"""What is exported is what the records say; what cannot be read is left out, and no zero."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from edgetune import PACK
from edgetune.base import clock
from edgetune.base.documents.batch import Batch, HostStep, batch_key
from edgetune.base.documents.head import FORWARD, Quarantine, head_key
from edgetune.base.documents.steps import REASONS, STEPS, StepTaken, steps_key
from edgetune.base.errors import NoAnswerError, StoreError
from edgetune.fleet.export.families import FAMILIES, Values
from edgetune.fleet.export.state import read_state
from edgetune.net.databases import Database
from edgetune.rollout.context import Context
from edgetune.rollout.gates.pause import Pause, save_pause
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.steps.release_record import release_record
from edgetune.rollout.steps.stop_all import stop_all
from tests.support import ROOT
from tests.support.builders import concluded
from tests.support.exported import STAMP, fleet, put, put_steps
from tests.support.soaking import Soaking
from tests.support.world import EmptyWorld, World

EARLIER = "20261101T100727-7a54"

Series = dict[str, float]


def series(context: Context) -> Series:
    """By name and labels, such as ``edgetune_hosts_quarantined{pop="c1"}``."""
    found = {}
    for family in text_string_to_metric_families(read_state(context).text()):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Soaking:
    return fleet(tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="module")
def told(world: Soaking) -> Series:
    return series(world.context)


def test_no_action_pays_for_importing_prometheus_client_but_the_export() -> None:
    at_once = re.compile(r"^(from|import) prometheus_client", re.MULTILINE)
    files = [*(ROOT / "lib").rglob("*.py"), *(ROOT / "lab").rglob("*.py")]
    assert [path for path in files if at_once.search(path.read_text())] == []


def test_no_label_but_those_of_information_has_the_id_of_a_rollout() -> None:
    named = [
        family.name for family in FAMILIES if {"rollout", "execution", "by"} & {*family.labels}
    ]
    assert named == ["edgetune_rollout_info", "edgetune_rollout_paused_info"]
    known = {"pop", "tuning", "state", "verdict", "decision", "cause", "version"}
    known |= {"step", "reason", "group", "metric", "actor", "bound"}
    assert {label for family in FAMILIES for label in family.labels} == {
        *known,
        "rollout",
        "execution",
        "by",
    }


def test_every_family_has_a_value_on_a_busy_fleet(told: Series) -> None:
    names = {name.partition("{")[0] for name in told}
    ends = {"summary": "_count"}
    missing = [each.name for each in FAMILIES if each.name + ends.get(each.type, "") not in names]
    assert missing == []


@pytest.mark.processes
@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_promtool_finds_nothing_to_complain_of(world: Soaking) -> None:
    text = read_state(world.context).text().encode()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# Of the busy fleet, by name without ``edgetune_``.
TOLD: Series = {
    f'rollout_paused_info{{by="ana",execution="run-1",pop="ams1",rollout="ams1-{STAMP}"}}': 1,
    'rollbacks_total{actor="person",tuning="nic_ring"}': 1,
    'rollbacks_total{actor="recovery",tuning="nic_ring"}': 0,
    'rollout_state_entries_total{state="rolling_back",tuning="nic_ring"}': 1,
    'rollout_state_entries_total{state="soaking",tuning="nic_ring"}': 2,
    'rollout_state_seconds_total{state="soaking",tuning="nic_ring"}': 120,
    'rollout_state_seconds_total{state="complete",tuning="nic_ring"}': 0,
    'looks_total{tuning="accept_queue"}': 1,
    'effect_ratio{metric="listen_drops",pop="d1",tuning="nic_ring"}': 0.02,
    'headroom_ratio{metric="request_p99",pop="d1",tuning="nic_ring"}': 1.23,
    'capacity_ratio{bound="at_least",metric="listen_drops",pop="d1",tuning="nic_ring"}': 1.4,
    'hosts_out_of_service{pop="ams1"}': 2,
    'hosts_out_of_service{pop="d1"}': 0,
    # Quarantined hosts outlive their rollout.
    'hosts_quarantined{pop="c1"}': 2,
    'hosts_quarantined_in_service{pop="c1"}': 1,
    f'rollout_info{{pop="c1",rollout="c1-{STAMP}",state="rolled_back",tuning="nic_ring"}}': 1,
    'hosts_failed{pop="ams1",step="applying"}': 1,
    'hosts_at_step{pop="ams1",step="drained"}': 1,
    'host_out_seconds_sum{pop="ams1"}': 90,
    'host_boot_seconds_sum{pop="ams1"}': 42,
    'host_boot_seconds_count{pop="ams1"}': 1,
    'step_seconds_count{step="drain_hosts",tuning="nic_ring"}': 4,
    'step_seconds_sum{step="drain_hosts",tuning="nic_ring"}': 10,
    'step_failures_total{reason="drain",step="drain_hosts"}': 1,
    'step_failures_total{reason="failed",step="drain_hosts"}': 2,
}


def test_a_busy_fleet_is_told_as_its_records_say(told: Series) -> None:
    found = {name: told.get(f"edgetune_{name}") for name in TOLD}
    assert found == pytest.approx(TOLD)
    judged = [name for name in told if name.startswith("edgetune_rollouts_judged{")]
    words = "wait accept_queue inconclusive promote nic_ring improved hold nic_ring inconclusive"
    assert sorted(re.findall(r'"(\w+)"', " ".join(judged))) == sorted(words.split())
    # Each state is there.
    own = {state: f'edgetune_rollouts{{state="{state}",tuning="nic_ring"}}' for state in FORWARD}
    ones = ("changing", "held", "rolled_back", "complete")
    assert {state: told[name] for state, name in own.items()} == {
        state: float(state in ones) for state in FORWARD
    }
    assert 'edgetune_rollout_without_owner{pop="c1"}' not in told
    since = told['edgetune_hosts_out_since_timestamp_seconds{pop="ams1"}']
    assert clock.wall() - since == pytest.approx(100, abs=60)
    assert 'edgetune_hosts_out_since_timestamp_seconds{pop="d1"}' not in told


def test_effects_are_those_of_the_newest_rollout_that_was_looked_at(tmp_path: Path) -> None:
    world, now = EmptyWorld(tmp_path), clock.wall()
    judged = concluded("promote", "improved")
    stamps = {"3": (300, {"cpu": 0.9}), "1": (200, {"packets": 1.1}), "2": (100, None)}
    for stamp, (ago, ratios) in stamps.items():
        verdict = ratios and replace(judged, ratios=ratios, headroom=ratios)
        more = {"plan": "", "verdict": verdict, "created": now - ago}
        put(world, "d1", "complete", stamp=EARLIER[:-1] + stamp, **more)
    told = {name: value for name, value in series(world.context).items() if "_ratio{" in name}
    labels = '{metric="packets",pop="d1",tuning="nic_ring"}'
    assert told == {f"edgetune_{own}_ratio{labels}": 1.1 for own in ("effect", "headroom")}


class TestSteps:
    FAILED = 'edgetune_step_failures_total{{reason="{}",step="{}"}}'
    TOOK = 'edgetune_step_seconds_{}{{step="drain_hosts",tuning="nic_ring"}}'

    def test_the_first_failure_of_a_step_grows_from_zero(self, told: Series) -> None:
        failures = {name for name in told if name.startswith("edgetune_step_failures_total")}
        every = {self.FAILED.format(reason, step) for reason in REASONS for step in STEPS}
        assert failures == every
        assert told[self.FAILED.format("host", "apply_tuning")] == 0

    @pytest.mark.parametrize(
        "text", ["{", '{"schema": 4, "rollout": "x"}', '{"schema": 99, "rollout": "x"}']
    )
    def test_what_cannot_be_read_is_left_out_alone(self, tmp_path: Path, text: str) -> None:
        world = fleet(tmp_path)
        world.context.store.put(steps_key(f"d1-{STAMP}"), text)
        told = series(world.context)
        assert told[self.TOOK.format("count")] == 4
        assert told['edgetune_hosts_out_of_service{pop="d1"}'] == 0

    def test_what_another_version_counted_makes_no_label(self, tmp_path: Path) -> None:
        world = fleet(tmp_path)
        counted = StepTaken(2, 5.0, {"failed": 1})
        put_steps(world, f"d1-{STAMP}", dance=StepTaken(1, 1.0, {"failed": 1}), drain_hosts=counted)
        put_steps(world, f"b1-{STAMP}", drain_hosts=StepTaken(1, 1.0, {"tired": 1}))
        told = series(world.context)
        assert [name for name in told if "dance" in name or "tired" in name] == []
        assert told[self.FAILED.format("other", "drain_hosts")] == 1
        # Those of all rollouts add up, also when they are over.
        assert (told[self.TOOK.format("count")], told[self.TOOK.format("sum")]) == (7, 16)


def test_a_look_that_was_taken_and_the_one_that_is_due_are_told(told: Series) -> None:
    taken = told['edgetune_last_look_timestamp_seconds{pop="lab1"}']
    due = told['edgetune_look_due_timestamp_seconds{pop="lab1"}']
    assert taken < due < taken + 150
    assert 'edgetune_look_due_timestamp_seconds{pop="b1"}' not in told


def test_a_look_that_nobody_takes_was_due(tmp_path: Path) -> None:
    world = Soaking(tmp_path)
    world.soak(test=3.0, began=400)
    told = series(world.context)
    assert told['edgetune_look_due_timestamp_seconds{pop="lab1"}'] < clock.wall() - 200
    assert 'edgetune_last_look_timestamp_seconds{pop="lab1"}' not in told


def test_a_pop_that_was_never_sampled_has_no_time_of_a_sample(told: Series) -> None:
    assert 'edgetune_last_sample_timestamp_seconds{pop="lab1"}' in told
    assert 'edgetune_last_sample_timestamp_seconds{pop="ams1"}' not in told
    assert 'edgetune_rollout_created_timestamp_seconds{pop="ams1"}' in told


class TestOwner:
    WITHOUT = 'edgetune_rollout_without_owner{pop="lab1"}'

    def test_its_last_step_is_its_sign_of_life_until_its_claim_runs_out(
        self, tmp_path: Path
    ) -> None:
        world = World(tmp_path)
        claim = as_owner(world.context, world.rollout).claim
        for ago in (0, 300):
            world.context.claims.renew("lab1", claim, world.context.config.claim_ttl - ago)
            told = series(world.context)
            seen = told['edgetune_owner_last_seen_timestamp_seconds{pop="lab1"}']
            assert ago <= clock.wall() - seen < ago + 100
            assert told[self.WITHOUT] == 0
        assert [name for name in told if name.startswith("edgetune_step_")] == []
        world.context.claims.release("lab1", claim)
        assert series(world.context)[self.WITHOUT] == 1
        stop_all(world.context, reason="errors", requested_by="ana")
        told = series(world.context)
        assert (told["edgetune_stopped"], told[self.WITHOUT]) == (1, 0)


class TestWhatCannotBeRead:
    def test_a_damaged_batch_leaves_out_the_hosts_of_its_pop_alone(self, tmp_path: Path) -> None:
        world = fleet(tmp_path)
        world.context.store.put(batch_key(f"ams1-{STAMP}", 0), "{")
        told = series(world.context)
        assert told["edgetune_pops_unknown"] == 1
        assert 'edgetune_hosts_out_of_service{pop="ams1"}' not in told
        assert 'edgetune_hosts_quarantined{pop="ams1"}' not in told
        assert told['edgetune_hosts_quarantined{pop="c1"}'] == 2
        assert 'edgetune_owner_last_seen_timestamp_seconds{pop="ams1"}' in told

    def test_a_damaged_head_is_told_and_leaves_out_the_hosts_of_its_pop_alone(
        self, tmp_path: Path
    ) -> None:
        world = fleet(tmp_path)
        put(world, "ams1", "soaking", "promoting", "complete", stamp=EARLIER)
        world.context.store.put(head_key(f"ams1-{STAMP}"), "{")
        told = series(world.context)
        info = f'pop="ams1",rollout="ams1-{STAMP}",state="unreadable",tuning=""'
        assert told[f"edgetune_rollout_info{{{info}}}"] == 1
        assert told["edgetune_records_unreadable"] == told["edgetune_pops_unknown"] == 1
        assert [name for name in told if "hosts" in name and 'pop="ams1"' in name] == []
        assert told['edgetune_hosts_quarantined{pop="c1"}'] == 2
        assert told['edgetune_hosts_out_of_service{pop="d1"}'] == 0
        # One that was given up hides nothing.
        release_record(world.context, f"ams1-{STAMP}", reason="looked", requested_by="ana")
        told = series(world.context)
        assert told["edgetune_pops_unknown"] == 0
        assert told['edgetune_hosts_out_of_service{pop="ams1"}'] == 0

    def test_a_head_under_a_key_of_a_stranger_makes_no_label(self, tmp_path: Path) -> None:
        world = fleet(tmp_path)
        world.context.store.put(head_key('x"} 1\nevil{a="'), "{")
        told = series(world.context)
        assert (told["edgetune_records_unreadable"], told["edgetune_pops_unknown"]) == (1, 0)
        assert [name for name in told if "evil" in name or "unreadable{" in name] == []
        assert told['edgetune_hosts_quarantined{pop="c1"}'] == 2

    def test_a_damaged_heartbeat_of_the_guard_is_no_look(self, tmp_path: Path) -> None:
        world = fleet(tmp_path)
        with Database(world.config["coordination"]).transaction() as db:
            db.execute("UPDATE heartbeats SET value = '{'")
        told = series(world.context)
        assert "edgetune_guard_last_look_timestamp_seconds" not in told
        assert told['edgetune_hosts_quarantined{pop="c1"}'] == 2

    @pytest.mark.parametrize("lost", ["restore", "text"])
    def test_a_rollback_of_which_a_batch_is_lost_is_not_known(
        self, tmp_path: Path, lost: str
    ) -> None:
        world = fleet(tmp_path)
        store, rollout = world.context.store, f"c1-{STAMP}"
        stuck = {"e000": Quarantine("gone", out_of_service=True)}
        put(world, "c1", "rolling_back", "rolled_back", quarantined=stuck, restore_batches=2)
        step = HostStep("quarantined", lb_before="ready", out_at=50.0)
        for number in (4, 10):
            batch = Batch(rollout, number, "restore", "", {f"e{number:03d}": step})
            store.put(batch_key(rollout, number), batch.document())
        told = series(world.context)
        assert told['edgetune_hosts_out_of_service{pop="c1"}'] == 2
        if lost == "text":
            store.put(batch_key(rollout, 10), "{")
        else:
            put(world, "c1", "rolling_back", "rolled_back", quarantined=stuck, restore_batches=3)
        told = series(world.context)
        assert 'edgetune_hosts_out_of_service{pop="c1"}' not in told
        assert told["edgetune_pops_unknown"] == 1

    def test_a_source_that_is_away_hides_no_other_pop(self, tmp_path: Path) -> None:
        world = fleet(tmp_path)
        newest, name = world.context.samples.newest, "edgetune_last_sample_timestamp_seconds"

        def away(pops: Sequence[str]) -> tuple[dict[str, float], dict[str, str]]:
            rest = [pop for pop in pops if pop != "ams1"]
            return newest(rest), {"ams1": "prometheus of ams1: does not answer"}

        world.context.samples.newest_known = away  # type: ignore[method-assign]
        told = series(world.context)
        assert [own for own in told if own.startswith(name)] == [f'{name}{{pop="lab1"}}']
        assert 'edgetune_rollout_created_timestamp_seconds{pop="ams1"}' in told

    @pytest.mark.parametrize("prefix", ["", f"{PACK}.batch."])
    def test_a_store_that_goes_away_is_no_record_that_cannot_be_read(
        self, tmp_path: Path, prefix: str
    ) -> None:
        world = fleet(tmp_path)
        listed = world.context.store.list

        def away(asked: str) -> Mapping[str, str]:
            if asked.startswith(prefix):
                raise StoreError("is away")
            return listed(asked)

        world.context.store.list = away  # type: ignore[method-assign]
        with pytest.raises(StoreError):
            read_state(world.context)


def test_without_rollouts_there_are_no_series_of_pops(tmp_path: Path) -> None:
    told = series(EmptyWorld(tmp_path).context)
    assert [name for name in told if "pop=" in name] == []
    assert told["edgetune_pops_unknown"] == 0


def test_whether_a_rollout_has_an_owner_is_not_told_where_that_is_not_known(tmp_path: Path) -> None:
    context = World(tmp_path).context
    known = series(context)
    context._executions = NoAnswerError("GET /executions: 503")
    assert {*known} - {*series(context)} == {'edgetune_rollout_without_owner{pop="lab1"}'}


def test_a_pause_that_was_lifted_is_zero_and_one_of_a_made_up_key_none(tmp_path: Path) -> None:
    world = World(tmp_path)
    save_pause(world.context, "lab1", "surge", Pause(False, 1.0, "ana"))
    save_pause(world.context, "lab1", "execution", Pause(False, 1.0, "ana", "", "r", "run-1"))
    save_pause(world.context, 'x"} 1\nevil{a="', "asked", Pause(True, 1.0, "eve"))
    told = {name: value for name, value in series(world.context).items() if "paused" in name}
    causes = ("execution", "surge")
    assert told == {f'edgetune_pop_paused{{cause="{cause}",pop="lab1"}}': 0 for cause in causes}


def test_a_rollout_under_way_and_one_that_left_hosts_in_quarantine_add_up(
    tmp_path: Path,
) -> None:
    world = fleet(tmp_path)
    stuck = {"e002": Quarantine("gone")}
    put(world, "ams1", "rolling_back", "rolled_back", stamp=EARLIER, quarantined=stuck)
    out = HostStep("quarantined", lb_before="ready", out_at=50.0)
    batch = Batch(f"ams1-{EARLIER}", 0, "change", "test", {"e002": out})
    world.context.store.put(batch_key(batch.rollout, 0), batch.document())
    told = series(world.context)
    assert told['edgetune_hosts_quarantined{pop="ams1"}'] == 1
    assert told['edgetune_hosts_out_of_service{pop="ams1"}'] == 3
    assert told['edgetune_hosts_out_since_timestamp_seconds{pop="ams1"}'] == 50
    assert told['edgetune_sample_interval_seconds{pop="ams1"}'] == 10
    assert told['edgetune_hosts_failed{pop="ams1",step="applying"}'] == 1


def test_a_host_stands_where_the_last_batch_left_it_that_began(tmp_path: Path) -> None:
    world = fleet(tmp_path)
    number, rollout = len(world.plan.every_batch), f"ams1-{STAMP}"
    put(world, "ams1", "changing", "rolling_back", first_restore=number, restore_batches=1)
    host = next(iter(world.plan.batches[2].hosts))
    planned = Batch(rollout, number, "restore", "", {host: HostStep()})
    world.context.store.put(batch_key(rollout, number), planned.document())
    told = series(world.context)
    assert told['edgetune_hosts_at_step{pop="ams1",step="drained"}'] == 1
    since = told['edgetune_hosts_out_since_timestamp_seconds{pop="ams1"}']
    assert clock.wall() - since == pytest.approx(100, abs=60)


def test_how_long_a_host_was_out_is_not_known_of_an_earlier_version(tmp_path: Path) -> None:
    world = fleet(tmp_path)
    host = next(iter(world.plan.batches[0].hosts))
    old = HostStep("done", clock.wall(), lb_before="ready")
    batch = Batch(f"ams1-{STAMP}", 0, "change", "test", {host: old}, checked=True)
    world.context.store.put(batch_key(batch.rollout, 0), batch.document())
    told = series(world.context)
    assert [name for name in told if name.startswith("edgetune_host_out_seconds")] == []
    assert [name for name in told if name.startswith("edgetune_host_boot_seconds")] == []


@given(st.text(max_size=30), st.floats(allow_nan=False))
def test_no_text_of_a_label_makes_a_series(text: str, value: float) -> None:
    values = Values()
    values.put("edgetune_campaigns", value, text)
    (family,) = text_string_to_metric_families(values.text())
    (sample,) = family.samples
    assert (sample.labels, sample.value) == ({"state": text}, value)


def test_the_plan_of_a_rollout_that_has_ended_is_not_read(tmp_path: Path) -> None:
    world = fleet(tmp_path)
    put(world, "c1", "rolled_back", plan="sha256:0", quarantined={"e000": Quarantine("gone")})
    assert series(world.context)["edgetune_pops_unknown"] == 0
