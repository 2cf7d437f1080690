# SPDX-License-Identifier: Apache-2.0
"""What a rollout did is kept by its tuning, and told before the next PoP is planned."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgetune.base import clock
from edgetune.base.documents.effect import KeptEffect, Part, effect_key, read_effect
from edgetune.base.documents.head import Entry
from edgetune.base.documents.plan import Groups, Plan
from edgetune.base.documents.words import Verdict
from edgetune.base.errors import InputError
from edgetune.judge.effects import estimate_of
from edgetune.rollout.evidence.soak import Soak
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.record.effects import kept_effects
from edgetune.rollout.record.rollout import load_plan
from tests.support.soaking import Soaking, soaking
from tests.support.world import EmptyWorld, World

pytestmark = pytest.mark.usefixtures("clock")


def kept(world: World | EmptyWorld) -> list[KeptEffect]:
    return kept_effects(world.context)[0]


@pytest.fixture
def world(tmp_path: Path) -> EmptyWorld:
    return EmptyWorld(tmp_path)


def put(world: EmptyWorld, pop: str, ratio: float | None, **more: Any) -> KeptEffect:
    """What accept_queue did there an hour ago, with an error of 10 %."""
    planned = load_plan(world.context, world.run("plan_rollout", "lab1", "accept_queue")["plan"])
    part = Part(4, 4, *((math.log(ratio), 0.1) if ratio else ()))
    made = KeptEffect(
        f"{pop}-20261124T100727-7a54",
        pop,
        "accept_queue",
        planned.tuning.digest,
        planned.intent.metric,
        clock.wall() - 3600,
        Verdict.IMPROVED,
        part,
        {"any": part},
    )
    made = replace(made, **more)
    world.context.store.put(made.key, made.document())
    return made


def test_a_look_that_decides_nothing_keeps_none(tmp_path: Path) -> None:
    world = soaking(tmp_path, 3.0, 320)
    world.run("compare_groups")
    assert [decision for _, decision in world.looked()] == ["wait", "wait"]
    assert kept(world) == []


def test_the_look_that_ends_a_soak_keeps_its_estimate(tmp_path: Path) -> None:
    world = soaking(tmp_path, 1.5, 700)
    world.run("compare_groups")
    opened = as_owner(world.context, world.rollout)
    look = opened.look(opened.head.looks - 1)
    (own,) = kept(world)
    assert look.decision == "promote" and own.verdict == "improved"
    assert (own.rollout, own.pop, own.metric) == (world.rollout, "lab1", "listen_drops")
    assert own.whole.log == pytest.approx(math.log(look.metrics[0].ratio or 0))
    record = Soak(opened).for_ring()
    assert own.whole.error == pytest.approx(_error(record))
    assert own.hardware == {"lab": own.whole} and own.load == opened.head.usual_load > 0
    assert read_effect(own.key, own.document()) == own


def _error(record: Any) -> float:
    from edgetune.judge.comparison import Comparison

    known = estimate_of(Comparison(record.plan, record.strata, record.baseline, record.blocks))
    assert known
    return known.error


def test_one_that_waits_for_its_ring_is_kept_as_well(tmp_path: Path) -> None:
    world = soaking(tmp_path, 1.5, 700)
    world.keep("ring", "autumn/canary")
    world.run("compare_groups")
    assert [decision for _, decision in world.looked()][-1] == "wait"
    assert len(kept(world)) == 1


class OneOfItsKind(Soaking):
    """One control host is of another hardware: nothing is compared with it."""

    def _planned(self, folder: Path, disruption: str = "", **planned: Any) -> Plan:
        made = super()._planned(folder, disruption, **planned)
        ((name, own),) = made.strata.items()
        odd = Groups([], own.control[-1:])
        made = replace(made, strata={name: Groups(own.test, own.control[:-1]), "odd": odd})
        return replace(made, digest=made.document()["digest"])


def test_a_host_that_nothing_is_compared_with_ends_no_soak_for_ever(tmp_path: Path) -> None:
    world = OneOfItsKind(tmp_path)
    world.run("check_baseline")
    world.soak(1.5, 700)
    world.run("compare_groups")
    assert [decision for _, decision in world.looked()][-1] == "promote"
    (own,) = kept(world)
    assert own.hardware == {"lab": replace(own.whole, control=3), "odd": Part(0, 1)}


def test_how_it_ended_is_told_by_its_record_and_then_by_the_archive(tmp_path: Path) -> None:
    world = soaking(tmp_path, 1.5, 700)
    world.run("compare_groups")
    text = world.run("effects", tuning="accept_queue")["text"]
    assert "lab1  " in text and text.endswith("improved 0s ago")
    history = [
        Entry(clock.wall(), state, "ana", "errors") for state in ("rolling_back", "rolled_back")
    ]
    world.set_head(state="rolled_back", history=history)
    text = world.run("effects", tuning="accept_queue")["text"]
    assert text.splitlines()[1] == "  lab1  −50 % alone; improved 0s ago; rolled back: errors (ana)"
    assert kept(world)[0].ended == ""


def test_the_next_pop_hears_what_three_others_had(world: EmptyWorld) -> None:
    for pop, ratio in (("ams1", 0.05), ("fra1", 0.04)):
        put(world, pop, ratio)
    assert "expected" not in shown(world)
    put(world, "lax1", 0.06)
    put(world, "nrt1", None)
    assert "expected listen_drops −95 % (" in shown(world)
    assert "on 3 PoPs; on the next one −9" in shown(world)
    # Another digest is another tuning.
    put(world, "lax1", 0.06, digest="sha256:0123456789abcdef")
    assert "expected" not in shown(world)


def test_a_plan_keeps_what_it_expected_and_is_the_same_when_more_is_known(
    world: EmptyWorld,
) -> None:
    for pop in ("ams1", "fra1", "lax1"):
        put(world, pop, 0.05)
    plan = world.run("plan_rollout", "lab1", "accept_queue")["plan"]
    own = load_plan(world.context, plan).expected
    assert own and own.next_pop and own.likely.keys() == {"ams1", "fra1", "lax1"}
    put(world, "nrt1", 0.5)
    again = world.run("plan_rollout", "lab1", "accept_queue", plan=plan)
    assert again["plan"] == plan and "on 3 PoPs" in " ".join(again["text"].split())


def shown(world: EmptyWorld) -> str:
    return " ".join(world.run("plan_rollout", "lab1", "accept_queue")["text"].split())


def test_all_tunings_are_told_together_and_one_by_pop(world: EmptyWorld) -> None:
    fast, slow = Part(2, 2, math.log(0.5), 0.1), Part(2, 2, math.log(0.9), 0.1)
    put(world, "ams1", 0.6, hardware={"fast": fast, "slow": slow})
    put(world, "fra1", 0.7, hardware={"fast": fast, "slow": slow}, ended="rolled_back", why="ill")
    put(world, "lax1", None, hardware={})
    put(world, "ams1", 0.9, tuning="nic_ring", metric="rx_missed")
    told = world.run("effects")["text"].splitlines()
    assert [line.split(" (")[0] for line in told] == [
        "accept_queue  listen_drops −35 %",
        "  listen_drops −50 %",
        "  listen_drops −10 %",
        "nic_ring  rx_missed −10 % on 1 PoP",
    ]
    assert "on 2 PoPs with slow" in told[2]
    told = world.run("effects", tuning="accept_queue")["text"].splitlines()
    assert told[3:] == [
        "  ams1  −40 % alone, −36 % given all others; improved 1h ago",
        "  fra1  −30 % alone, −34 % given all others; improved 1h ago; rolled back: ill",
        "  lax1  not compared; improved 1h ago",
    ]
    told = world.run("effects", tuning="accept_queue", hardware="slow")["text"]
    assert "  ams1  −10 % alone, −10 % given all others; improved 1h ago" in told
    (row,) = world.run("effects", metric="rx_missed")["effects"]
    assert (row["tuning"], row["expected"][0]["interval"]) == ("nic_ring", None)
    assert [own["pop"] for own in world.run("effects", hardware="slow")["effects"][0]["pops"]] == [
        "ams1",
        "fra1",
    ]


def test_a_tuning_that_changed_begins_anew(world: EmptyWorld) -> None:
    put(world, "ams1", 0.5, digest="sha256:0123456789abcdef", at=clock.wall() - 7200)
    for pop in ("fra1", "lax1"):
        put(world, pop, 0.9)
    told = world.run("effects", tuning="accept_queue")
    first = " ".join(told["text"].splitlines()[:2])
    assert first.startswith("accept_queue  listen_drops −10 % (")
    assert "on 2 PoPs; 1 PoP had another version" in " ".join(first.split())
    assert "  ams1  −50 % alone; improved 2h ago; another version" in told["text"]
    (row,) = told["effects"]
    assert [own["pop"] for own in row["pops"]] == ["ams1", "fra1", "lax1"]
    assert row["expected"][0]["likely"].keys() == {"fra1", "lax1"}


@pytest.mark.parametrize("field", ["tuning", "hardware", "metric"])
def test_what_is_not_known_is_refused_with_what_is(world: EmptyWorld, field: str) -> None:
    put(world, "ams1", 0.5)
    with pytest.raises(InputError, match=f"{field}.*no effect is known of 'x'; known: [a-z]"):
        world.run("effects", **{field: "x"})
    with pytest.raises(InputError, match="did you mean accept_queue"):
        world.run("effects", tuning="accept_que")


@pytest.mark.parametrize("part", [(1e9, 0.1), (0.5, 0.0), (0.5, -1.0), (0.5, None), (None, 0.1)])
def test_figures_that_make_no_sense_hold_up_no_plan(
    world: EmptyWorld, part: tuple[float | None, float | None]
) -> None:
    for pop in ("ams1", "fra1", "lax1"):
        put(world, pop, 0.9, whole=Part(4, 4, *part), hardware={})
    assert "expected" not in shown(world)
    told = world.run("effects")
    assert len(told["unreadable"]) == 3 and "whole: makes no sense" in told["text"]


@pytest.mark.parametrize("wrong", ["{", '{"schema": 99}', None])
def test_one_that_cannot_be_read_hides_no_other(world: EmptyWorld, wrong: str | None) -> None:
    own = put(world, "ams1", 0.5)
    moved = json.dumps({**json.loads(own.document()), "pop": 7})
    world.context.store.put(effect_key("accept_queue", "fra1-20261124T100727-7a54"), wrong or moved)
    found = world.run("effects")
    assert [row["tuning"] for row in found["effects"]] == ["accept_queue"]
    (why,) = found["unreadable"]
    assert "fra1-20261124T100727-7a54" in why and why in found["text"]
    with pytest.raises(InputError, match="'other'.*fra1-20261124T100727-7a54"):
        world.run("effects", tuning="other")
    assert "on 1 PoP" in found["text"]
