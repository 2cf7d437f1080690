# SPDX-License-Identifier: Apache-2.0
"""Hosts that cannot read their access logs are named, with the reason, wherever a person looks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgetune.base.documents.baseline import Facts, Load, Measured
from edgetune.base.documents.options import Options
from edgetune.base.errors import RefusedError
from edgetune.base.files import load_yaml
from edgetune.judge.coverage import baseline_doubts
from edgetune.rollout.evidence.access_log import LogProblem, log_problems, with_reasons
from edgetune.rollout.planning.make_plan import plan_and_notes
from edgetune.rollout.steps.diagnose_hosts import diagnose_hosts
from edgetune.rollout.steps.doctor_pop import doctor_pop
from edgetune.rollout.steps.sample_hosts import sample_hosts
from tests.support import ROOT
from tests.support.builders import inventory_document, write_yaml
from tests.support.soaked_fleet import Fleet
from tests.support.world import EmptyWorld

GONE = "[Errno 2] No such file or directory: '/var/log/edge.log'"


def world_of(folder: Path, *guards: str) -> EmptyWorld:
    """Hosts with an access log, and accept_queue with these guards."""
    document = load_yaml(ROOT / "tunings" / "accept_queue.yaml")
    (folder / "own").mkdir()
    judged = [{"metric": name, "margin": 0.2} for name in guards]
    write_yaml(folder / "own" / "accept_queue.yaml", {**document, "guards": judged})
    world = EmptyWorld(folder, tunings=[str(folder / "own")])
    site = inventory_document()
    site["pops"]["lab1"]["metrics"] = {"source": "hosts", "access_log": "/var/log/edge.log"}
    world.change_inventory(site)
    return world


def test_a_plan_names_hosts_and_reasons_and_is_refused_where_it_needs_them(tmp_path: Path) -> None:
    world = world_of(tmp_path, "health_p99")
    made, _ = plan_and_notes(world.context, "lab1", "accept_queue", Options(seed=7))
    assert made.beside == ["health_p50", "health_p95"]
    assert {*made.beside, "health_p99"} <= {*made.definitions}
    world.hosts.logs = {"e003": GONE}
    with pytest.raises(RefusedError) as caught:
        plan_and_notes(world.context, "lab1", "accept_queue", Options(seed=7))
    assert str(caught.value) == (
        "the access log, for health_p99 by which accept_queue is judged: "
        f"e003: {GONE} (exclude= leaves hosts out)"
    )
    assert plan_and_notes(world.context, "lab1", "accept_queue", Options(seed=7, exclude=["e003"]))
    assert world.hosts.changing() == []


def test_a_plan_that_does_not_need_them_only_tells(tmp_path: Path) -> None:
    world = world_of(tmp_path, "health_failed")
    world.hosts.logs = {"e003": GONE}
    _, notes = plan_and_notes(world.context, "lab1", "accept_queue", Options(seed=7))
    (found,) = [note for note in notes if "access log" in note.what]
    assert (found.host, found.what) == ("e003", f"its access log: {GONE}")
    world.hosts.logs = {}
    _, notes = plan_and_notes(world.context, "lab1", "accept_queue", Options(seed=7))
    assert not [note for note in notes if "access log" in note.what]


def test_doctor_diagnosis_and_samples_tell_them(tmp_path: Path) -> None:
    world = world_of(tmp_path, "health_failed")
    world.hosts.logs = {"e003": GONE, "e004": GONE}
    problem = LogProblem(GONE, are_counted=False)
    pop = world.context.inventory.pop("lab1")
    assert log_problems(world.context, pop, pop.hosts) == {"e003": problem, "e004": problem}
    assert (
        log_problems(world.context, replace(pop, metrics=pop.metrics.__class__()), pop.hosts) == {}
    )
    checked = {own.check: own for own in doctor_pop(world.context, "lab1")["text"].checks}
    (note,) = checked["access logs"].findings
    assert (note.hosts, note.what) == (["e003", "e004"], f"its access log: {GONE}")
    (unread,) = diagnose_hosts(world.context, "lab1", interval="0s")["unread"]
    assert unread == {"what": f"the access log: {GONE}", "hosts": ["e003", "e004"]}
    told = sample_hosts(world.context, "lab1")
    assert told["logs"] == {"e003": GONE, "e004": GONE}
    assert told["message"].endswith(f"; access logs: e003: {GONE}; e004: {GONE}")


def test_what_was_not_measured_says_why(tmp_path: Path) -> None:
    world = world_of(tmp_path, "health_failed")
    world.hosts.logs = {"e003": GONE, "e004": GONE}
    pop = world.context.inventory.pop("lab1")
    measured = Measured(600.0, {}, {}, {"request_ms": {"e003": 300.0}, "rx_packets": {"e004": 1.0}})
    facts = Facts({}, {}, {}, {}, {}, Load(None, None), measured=measured)
    found = with_reasons(world.context, pop, facts).measured
    assert found and found.why == {"e003": GONE}
    assert {name for name, verb, _ in world.hosts.asked if verb == "sample"} == {"e003"}
    none = replace(facts, measured=replace(measured, unread={}))
    assert with_reasons(world.context, pop, none) == none
    fleet = Fleet(tmp_path, hosts=8).intends("no_harm", "health_p99")
    fleet.soaks([lambda row: row["counters"].pop("request_ms") and None])
    lost = fleet.baseline.facts
    assert lost.measured
    told = replace(lost, measured=replace(lost.measured, why={fleet.test[0]: GONE, "x": "y"}))
    (doubt,) = [d for d in baseline_doubts(fleet.plan, fleet.hosts, told) if d.kind == "unmeasured"]
    assert doubt.text.endswith(f"(request_ms: not read, {fleet.test[0]}: {GONE})")
