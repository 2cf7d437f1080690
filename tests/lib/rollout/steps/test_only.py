# SPDX-License-Identifier: Apache-2.0
"""A rollout that keeps to some hosts of its PoP: the others are neither changed nor compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.errors import EdgetuneError, NothingToDo, RefusedError
from edgetune.rollout.record import load_plan
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.show_verdict import show_verdict
from tests.support.builders import inventory_document, write_yaml
from tests.support.soaking import Soaking
from tests.support.world import EmptyWorld

NORTH = [f"e{number:03d}" for number in range(6)]
SOUTH = ["e006", "e007"]
KEPT = (
    "6 of 8 hosts of lab1 (only=north); no other host is compared or changed, not even by a "
    "promotion"
)


@pytest.fixture
def world(tmp_path: Path) -> EmptyWorld:
    """The rack ``north`` has six hosts and ``south`` two."""
    made = EmptyWorld(tmp_path)
    document = inventory_document()
    for name, host in document["pops"]["lab1"]["hosts"].items():
        host["rack"] = "north" if name in NORTH else "south"
    write_yaml(Path(made.config["inventory"]), document)
    return made


def planned(world: EmptyWorld, **options: Any) -> dict[str, Any]:
    return plan_rollout(world.context, pop="lab1", tuning="accept_queue", seed=7, **options)


def complete(world: EmptyWorld, **options: Any) -> dict[str, Any]:
    """A whole rollout, promoted; what its last step answers."""
    world.begin_planned(planned(world, **options)["plan"])
    world.mark("baseline")
    for state in ("changing", "soaking", "promoting"):
        world.roll_all(world.mark(state))
    return world.mark("complete")


def hosts_of(plan: dict[str, Any]) -> list[str]:
    return sorted(plan["test"] + plan["control"])


def test_both_groups_come_from_its_hosts(world: EmptyWorld) -> None:
    plan = planned(world, only=["north"])
    assert (hosts_of(plan), len(plan["test"])) == (NORTH, 3)
    assert KEPT in " ".join(plan["text"].split())
    assert "  only  " not in planned(world)["text"]
    batches = load_plan(world.context, plan["plan"]).every_batch
    assert {host for batch in batches for host in batch.hosts} == {*NORTH}


def test_the_whole_pop_counts_for_the_hosts_in_service(world: EmptyWorld) -> None:
    plan = load_plan(world.context, planned(world, only=["north"])["plan"])
    assert (plan.must_serve, plan.hosts_in_pop) == (4, 8)


def test_hosts_and_racks_add_up_and_what_is_excluded_stays_out(world: EmptyWorld) -> None:
    assert hosts_of(planned(world, only=["e006", "north", "e001"])) == [*NORTH, "e006"]
    kept = planned(world, only=["north", "south"], exclude=["e000"])
    assert hosts_of(kept) == [*NORTH[1:], *SOUTH]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("e0011", "'e0011' is no host and no rack of lab1 (did you mean e001?)"),
        ("nort", "'nort' is no host and no rack of lab1 (did you mean north?)"),
        ("42", "'42' is no host and no rack of lab1; its racks: north, south"),
        ("", "'' is no host and no rack of lab1; its racks: north, south"),
    ],
)
def test_an_unknown_word_names_what_is_near(world: EmptyWorld, word: str, says: str) -> None:
    with pytest.raises(EdgetuneError) as caught:
        planned(world, only=["north", word])
    assert str(caught.value) == f"parameter: only: {says}"


def test_without_racks_in_the_inventory_a_word_is_a_host(tmp_path: Path) -> None:
    world = EmptyWorld(tmp_path)
    assert hosts_of(planned(world, only=NORTH)) == NORTH
    for word in ("north", ""):
        with pytest.raises(EdgetuneError, match="; the inventory names no rack there"):
            planned(world, only=[word])


def test_a_word_that_is_a_host_and_a_rack_is_refused(tmp_path: Path) -> None:
    world = EmptyWorld(tmp_path)
    document = inventory_document()
    document["pops"]["lab1"]["hosts"]["e005"]["rack"] = "e004"
    write_yaml(Path(world.config["inventory"]), document)
    with pytest.raises(EdgetuneError, match="'e004' is a host and a rack of lab1: give the names"):
        planned(world, only=["e004"])


@pytest.mark.parametrize("only", [["south"], ["e000"], ["e000", "e006", "e007"]])
def test_too_few_hosts_are_refused_with_how_many_would_do(
    world: EmptyWorld, only: list[str]
) -> None:
    with pytest.raises(RefusedError) as caught:
        planned(world, only=only)
    assert str(caught.value).startswith("what only= leaves of lab1 is too small to split: lab: ")
    assert "take at least 6 hosts of like hardware" in str(caught.value)
    assert planned(world, only=NORTH)["plan"]


def test_no_host_at_all_is_refused(world: EmptyWorld) -> None:
    with pytest.raises(RefusedError, match="exclude= leaves no host of lab1"):
        planned(world, only=["south"], exclude=SOUTH)


def test_a_sick_host_elsewhere_refuses_nothing(world: EmptyWorld) -> None:
    world.hosts.unreachable.add("e007")
    assert planned(world, only=["north"])["plan"]
    with pytest.raises(RefusedError, match="e007"):
        planned(world)


def test_a_promotion_touches_no_other_host_and_says_so(world: EmptyWorld) -> None:
    ended = complete(world, only=["north"])
    assert world.hosts.tuned == {*NORTH}
    touched = {name for name, verb, _ in world.hosts.asked if verb in ("ready", "apply", "reboot")}
    assert touched == {*NORTH}
    assert ended["message"].endswith("; a rollout without only= carries it on to the rest")


def test_the_next_rollout_carries_it_on_and_leaves_those_that_have_it_alone(
    world: EmptyWorld,
) -> None:
    complete(world, only=["north"])
    with pytest.raises(NothingToDo, match="every host that only= names of lab1 is as accept_queue"):
        planned(world, only=["north"])
    plan = planned(world, alpha_benefit=0.5, alpha_harm=0.5)
    assert hosts_of(plan) == SOUTH
    assert "as wanted already: e000, e001, e002, e003, e004, e005" in plan["text"]
    complete(world, alpha_benefit=0.5, alpha_harm=0.5)
    assert world.hosts.tuned == {*NORTH, *SOUTH}
    world.take_over()
    world.roll_back()
    assert world.hosts.tuned == {*NORTH}


def test_a_verdict_says_of_which_hosts_it_is(tmp_path: Path) -> None:
    world = Soaking(tmp_path, only=("e000", "e001"))
    world.soak(test=0.9, began=700)
    told = compare_groups(world.context, world.rollout)["text"]
    said = "  kept to 8 of 8 hosts of lab1 (only=e000,e001); no other host is compared or changed"
    assert said in told
    assert said in show_verdict(world.context, world.rollout)["text"]
