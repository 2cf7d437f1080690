# SPDX-License-Identifier: Apache-2.0
"""A record that cannot be read is named, and stops nothing but what rests on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base.documents.batch import read_batch
from edgetune.base.documents.head import Head, Quarantine, read_head
from edgetune.base.documents.reading import read_document
from edgetune.base.errors import DamagedError, EdgetuneError, RefusedError
from edgetune.report.text import rollout_text
from edgetune.rollout.gates.approval import Approval, load_approval, save_approval
from edgetune.rollout.gates.pause import pauses_of
from edgetune.rollout.guard import Guard
from edgetune.rollout.ownership.lease import as_owner
from edgetune.rollout.record.heads import read_living_heads, unreadable_rollouts
from edgetune.rollout.record.rollout import load_plan, read_rollout, save_plan
from tests.support.builders import concluded, plan
from tests.support.damage import JUNK, damaged, places, put, without
from tests.support.soaking import USUAL, soaking
from tests.support.world import EmptyWorld, World, changing

OTHER = "ams1-20261121T052018-503b"
BESIDE = "lab1-20261121T052018-503b"
NO_POP = "somebody"
LATER = "lab1-99991231T235959-503b"
LATER_ELSEWHERE = "ams1-99991231T235959-503b"

TEXTS = [
    *("", "{", "7", "null", "[]", "{}", '"x"', "\x00", "[" * 100_000, '{"schema": 2}'),
    *('{"schema": []}', '{"schema": true}', '{"schema": "2"}'),
]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """It is about to change its first batch."""
    return changing(tmp_path / "world")


@pytest.fixture
def empty(tmp_path: Path) -> EmptyWorld:
    return EmptyWorld(tmp_path)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The head of a rollout, with something in every field that can hold something, and the first
    batch."""
    world = changing(tmp_path_factory.mktemp("records") / "world")
    (host,) = world.at(0)
    why = {"reason": "gone", "since": 1.0, "batch": 0, "step": "rebooting", "boot_id": "b"}
    bmc = {"power": "On", "events": [{"message": "m"}]}
    night = {"name": "night", "days": ["mon"], "start": 0, "end": 60, "zone": "UTC"}
    world.set_head(
        soak=[1.0, 2.0],
        channel="edge",
        only=[host],
        verdict=concluded("wait", "improved"),
        freezes=[night, {"name": "final", "start": 1.0, "end": 2.0}],
        quarantined={host: Quarantine(load_balancer="ready", bmc=bmc, **why)},
    )
    world.roll(0)
    keys = {"head": f"rollout.{world.rollout}", "batch": f"batch.{world.rollout}.0"}
    texts = {name: world.context.store.get(f"edgetune.{key}") for name, key in keys.items()}
    return {name: json.loads(text or "") for name, text in texts.items()}


def as_head(document: dict[str, Any], text: str) -> Head | None:
    """What a text says, which people can be told; or one line in place of it."""
    try:
        head = read_head(document["id"], text)
    except RefusedError as error:
        assert "\n" not in str(error) and len(str(error)) < 500
        return None
    assert (head.id, head.pop) == (document["id"], document["pop"])
    assert head.may_become is not None
    assert rollout_text(head)
    return head


@given(st.data())
def test_any_damage_gives_a_head_or_batch_that_can_be_shown_or_one_line(
    documents: dict[str, dict[str, Any]], data: st.DataObject
) -> None:
    head, document = documents["head"], documents["batch"]
    as_head(head, data.draw(damaged(head)))
    try:
        batch = read_batch(document["rollout"], 0, data.draw(damaged(document)))
    except RefusedError as error:
        assert "\n" not in str(error) and len(str(error)) < 500
        return
    assert batch.finished in (True, False)
    assert batch.at("done") is not None and batch.failures is not None


@pytest.mark.slow
def test_no_place_of_a_head_takes_whatever_it_is_given(
    documents: dict[str, dict[str, Any]],
) -> None:
    """The same for each place and each junk value, without dice."""
    document = documents["head"]
    refused = 0
    for path in places(document):
        refused += sum(as_head(document, json.dumps(put(document, path, j))) is None for j in JUNK)
        as_head(document, json.dumps(without(document, path)))
    assert refused > 400


def test_the_error_names_key_and_field(world: World) -> None:
    key = f"edgetune.rollout.{world.rollout}"
    good = json.loads(world.context.store.get(key) or "")
    for field, value, problem in (
        ("epoch", "7", "must be a whole number, not text"),
        ("epoch", 10**13, "is no epoch"),
        ("state", "tuned", "is none of claimed, "),
        ("pop", "lab2", "is not that of the id"),
        ("id", OTHER, "is that of another rollout"),
        ("created", None, "must be a finite number, not nothing"),
        ("soak", [1.0], "is no span"),
        ("restore_batches", 10**9, "is out of range"),
        ("history", [{"at": 1.0}], "is missing"),
        ("freezes", [{"zone": "Nowhere/At_all", "days": []}], "holds what is no freeze"),
        ("surprise", 1, "is not known to this version of the pack"),
    ):
        world.context.store.put(key, json.dumps({**good, field: value}))
        with pytest.raises(DamagedError, match=f"{key} is damaged: {field}.*{problem}"):
            read_rollout(world.context, world.rollout)


def put_head(world: EmptyWorld, rollout: str, text: str) -> None:
    world.context.store.put(f"edgetune.rollout.{rollout}", text)


def no_complaint(problem: str) -> None:
    raise AssertionError(problem)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rollout, text",
    [(OTHER, "{"), (BESIDE, '{"schema": 2}'), (NO_POP, "7"), (OTHER, "[" * 100_000), (OTHER, "")],
)
def test_it_is_told_and_stops_nobody_else(world: World, rollout: str, text: str) -> None:
    world.roll(0)
    put_head(world, rollout, text)
    told = world.run("rollout_status", rollout="")
    assert told["ids"] == [world.rollout]
    (line,) = told["unreadable"]
    assert f"edgetune.rollout.{rollout} is damaged" in line
    assert f"release_record rollout={rollout}" in line
    assert line in told["message"] and rollout in told["text"]
    guard = Guard(no_complaint)
    (found,) = list(guard.look(world.context))
    assert (found.trigger, found.payload["rollout"]) == ("rollout_stalled", rollout)
    assert rollout in found.payload["reason"]
    # Once an hour.
    assert list(guard.look(world.context)) == []
    # The sweep names it, and goes on with the others.
    assert world.run("rollout_status", rollout="", orphaned=True)["unreadable"] == [line]
    assert world.run("sample_hosts", "")["samples"] == 8
    assert world.take_over()["claimed"]
    assert world.roll_back()["state"] == "rolled_back"
    assert world.hosts.tuned == set()


def planned(world: EmptyWorld, folder: Path) -> str:
    """The digest of a plan that is kept."""
    made = plan(folder)
    save_plan(world.context, made)
    return made.digest


@pytest.mark.parametrize("rollout", [BESIDE, NO_POP])
def test_its_pop_is_nobody_s_until_a_person_says_so(
    empty: EmptyWorld, tmp_path: Path, rollout: str
) -> None:
    put_head(empty, rollout, "{")
    # That of another PoP keeps nobody from beginning.
    put_head(empty, OTHER, "{")
    # The sweep sees the key that tells no PoP.
    empty.run("find_orphans")
    digest = planned(empty, tmp_path)
    for step, *what in (("claim_pop", digest), ("plan_rollout", "lab1", "accept_queue")):
        with pytest.raises(RefusedError, match=f"rollout.{rollout} is damaged.*release_record"):
            empty.run(step, *what)
    assert empty.context.claims.holder("lab1") is None
    message = empty.run("release_record", rollout, "nothing stands there", "ana")["message"]
    assert message.startswith(f"ana gives up the record of {rollout}")
    assert [each.id for each in unreadable_rollouts(empty.context)] == [OTHER]
    assert len(empty.run("rollout_status", "")["unreadable"]) == 1
    assert empty.run("plan_rollout", "lab1", "accept_queue")["plan"]
    assert empty.run("claim_pop", digest)["rollout"]


def test_a_release_that_cannot_be_read_releases_nothing(empty: EmptyWorld) -> None:
    put_head(empty, BESIDE, "{")
    for text in ("", "{", "7", '{"digest": 7}', "{}"):
        empty.context.store.put(f"edgetune.released.{BESIDE}", text)
        assert [each.id for each in unreadable_rollouts(empty.context)] == [BESIDE], text


@pytest.mark.parametrize(
    ("rollout", "text", "released", "drains"),
    [
        (LATER, "{", False, True),
        (NO_POP, "{", False, True),
        (LATER, '{"schema": 9, "state": "complete"}', False, True),
        (LATER, '{"schema": 9, "state": "rolled_back"}', False, False),
        (LATER, "{", True, False),
        (NO_POP, "{", True, False),
        (BESIDE, "{", False, False),
        (LATER_ELSEWHERE, "{", False, False),
    ],
)
def test_a_live_tuning_goes_back_under_a_drain_where_one_above_it_cannot_be_read(
    tmp_path: Path, rollout: str, text: str, released: bool, drains: bool
) -> None:
    """What stands above it may have to be suspended, and may need a drain."""
    world = changing(tmp_path, disruption="live")
    world.roll(0)
    put_head(world, rollout, text)
    world.run("find_orphans")
    if released:
        world.run("release_record", rollout)
    assert not read_rollout(world.context, world.rollout).drains
    world.mark("rolling_back")
    assert read_rollout(world.context, world.rollout).drains == drains


def test_the_epoch_that_it_tells_is_not_given_away_again(empty: EmptyWorld, tmp_path: Path) -> None:
    put_head(empty, BESIDE, json.dumps({"schema": 2, "epoch": 41}))
    empty.run("release_record", BESIDE)
    assert empty.run("claim_pop", planned(empty, tmp_path))["epoch"] == 42
    assert [each.epoch for each in read_living_heads(empty.context)[1]] == [41]


def test_a_batch_that_cannot_be_read_costs_its_own_rollout_alone(world: World) -> None:
    world.roll(0)
    key = f"edgetune.batch.{world.rollout}.0"
    for text in TEXTS:
        world.context.store.put(key, text)
        for read in (lambda: world.batch(0), lambda: world.mark("rolling_back")):
            with pytest.raises(DamagedError, match=f"{key} is damaged"):
                read()
        complaints: list[str] = []
        assert list(Guard(complaints.append).look(world.context)) == []
        assert all(f"{key} is damaged" in complaint for complaint in complaints)
        assert world.run("rollout_status", rollout="")["ids"] == [world.rollout]


@pytest.mark.parametrize("kind", ["baseline", "look"])
def test_any_damage_of_what_was_measured_is_one_line(tmp_path: Path, kind: str) -> None:
    world = soaking(tmp_path, USUAL, began=200)
    world.run("compare_groups")
    opened = as_owner(world.context, world.rollout)
    key = f"edgetune.{kind}.{world.rollout}" + (".0" if kind == "look" else "")
    good = world.context.store.get(key) or ""
    read = opened.baseline if kind == "baseline" else lambda: opened.look(0)
    document = json.loads(good)
    kept = {own: document[own] for own in document.keys() - {"digest", "schema", "rollout"}}
    assert read().document() == kept
    wrong = [json.dumps(put(document, path, "x")) for path in list(places(document))[::5] if path]
    for text in [*TEXTS, *wrong, good[:-1], good[: len(good) // 2]]:
        world.context.store.put(key, text)
        with pytest.raises(DamagedError, match=f"{key} is damaged"):
            read()
    # Earlier versions wrote no digest.
    world.context.store.put(key, json.dumps({**without(document, ("digest",)), "schema": 2}))
    assert read().document() == kept


def test_plans_and_pauses_and_approvals_that_cannot_be_read_are_one_line_or_hold(
    world: World,
) -> None:
    """A pause pauses, and an approval approves nothing."""
    context, digest, approval = world.context, world.plan.digest, "sha256:ab"
    world.run("pause_pop", "lab1", requested_by="ana")
    save_approval(context, Approval(approval, "a plan", "ben", 1.0, 2.0))
    assert load_approval(context, approval)
    for text in [*TEXTS, '{"paused": 0}', '{"paused": "no"}']:
        context.store.put("edgetune.pause.asked.lab1", text)
        assert pauses_of(context, "lab1")["asked"].paused
        assert world.run("rollout_status", rollout="")["ids"] == [world.rollout]
        context.store.put(f"edgetune.approval.{approval}", text)
        says = f"approval.* {approval}|approval.{approval} is damaged"
        with pytest.raises(RefusedError, match=says):
            load_approval(context, approval)
    for text in TEXTS:
        context.store.put(f"edgetune.plan.{digest}", text)
        with pytest.raises(RefusedError, match=digest):
            load_plan(context, digest)
        assert list(Guard(lambda problem: None).look(context)) is not None
        assert world.run("rollout_status", rollout="", orphaned=True)["ids"] == []


def test_a_document_is_refused_where_it_is_nested_without_end() -> None:
    with pytest.raises(DamagedError, match="x is damaged: is nested more than 40 deep"):
        read_document("x", '{"a":' * 41 + "1" + "}" * 41)
    assert read_document("x", '{"a":' * 40 + "1" + "}" * 40)
    assert issubclass(DamagedError, EdgetuneError)
