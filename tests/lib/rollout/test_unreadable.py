# SPDX-License-Identifier: Apache-2.0
"""A record that cannot be read is named, and stops nothing but what rests on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.documents.batch import read_batch
from edgetune.documents.head import Head, Quarantine, read_head
from edgetune.documents.plan import Plan
from edgetune.documents.reading import read_document
from edgetune.errors import DamagedError, EdgetuneError, InputError, RefusedError
from edgetune.report.text import rollout_text
from edgetune.rollout.approval import Approval, load_approval, save_approval
from edgetune.rollout.guard import Guard
from edgetune.rollout.heads import all_heads, read_heads
from edgetune.rollout.lease import as_owner
from edgetune.rollout.pause import pauses_of
from edgetune.rollout.record import load_plan, read_rollout
from edgetune.rollout.steps.check_baseline import check_baseline
from edgetune.rollout.steps.claim_pop import claim_pop
from edgetune.rollout.steps.compare_groups import compare_groups
from edgetune.rollout.steps.pause_pop import pause_pop
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.release_record import release_record
from edgetune.rollout.steps.restore_hosts import restore_hosts
from edgetune.rollout.steps.rollout_status import rollout_status
from edgetune.rollout.steps.sample_hosts import sample_hosts
from edgetune.rollout.unreadable import unreadable_rollouts
from tests.support.builders import concluded, plan
from tests.support.damage import JUNK, damaged, places, put, without
from tests.support.soaking import USUAL, Soaking
from tests.support.world import EmptyWorld, World, changing, ended

OTHER = "ams1-20261121T052018-503b"
BESIDE = "lab1-20261121T052018-503b"
NO_POP = "somebody"
LATER = "lab1-99991231T235959-503b"
LATER_ELSEWHERE = "ams1-99991231T235959-503b"

TEXTS = [
    *("", "{", "7", "null", "[]", "{}", '"x"', "\x00", "[" * 100_000, '{"schema": 2}'),
    '{"schema": []}',
    '{"schema": true}',
    '{"schema": "2"}',
]


def quarantined(folder: Path) -> World:
    """A rollout whose head has something in every field that can hold something."""
    world = changing(folder)
    (host,) = world.at(0)
    opened = as_owner(world.context, world.rollout)
    head = opened.head
    head.soak, head.channel, head.only = [1.0, 2.0], "edge", [host]
    head.verdict = concluded("wait", "improved")
    night = {"name": "night", "days": ["mon"], "start": 0, "end": 60, "zone": "UTC"}
    head.freezes = [night, {"name": "final", "start": 1.0, "end": 2.0}]
    head.quarantined[host] = Quarantine(
        reason="gone",
        since=1.0,
        batch=0,
        step="rebooting",
        boot_id="b",
        load_balancer="ready",
        bmc={"power": "On", "events": [{"message": "m"}]},
    )
    opened.save()
    return world


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The head of a rollout, and the first batch."""
    world = quarantined(tmp_path_factory.mktemp("records") / "world")
    world.roll(0)
    keys = {"head": f"rollout.{world.rollout}", "batch": f"batch.{world.rollout}.0"}
    texts = {name: world.context.store.get(f"edgetune.{key}") for name, key in keys.items()}
    return {name: json.loads(text or "") for name, text in texts.items()}


def as_head(document: dict[str, Any], text: str) -> Head | None:
    try:
        return read_head(document["id"], text)
    except RefusedError as error:
        assert "\n" not in str(error) and len(str(error)) < 500
        return None


def shown(head: Head) -> str:
    """What people are told of it."""

    return rollout_text(head)


@given(st.data())
def test_any_damage_gives_a_head_that_can_be_shown_or_one_line(
    documents: dict[str, dict[str, Any]], data: st.DataObject
) -> None:
    document = documents["head"]
    head = as_head(document, data.draw(damaged(document)))
    if head is not None:
        assert (head.id, head.pop) == (document["id"], document["pop"])
        assert head.may_become is not None
        assert shown(head)


@pytest.mark.slow
def test_no_place_of_a_head_takes_whatever_it_is_given(
    documents: dict[str, dict[str, Any]],
) -> None:
    """The same for each place and each junk value, without dice."""
    document = documents["head"]
    refused = 0
    for path in places(document):
        for text in [json.dumps(put(document, path, junk)) for junk in JUNK]:
            head = as_head(document, text)
            refused += head is None
            assert head is None or shown(head)
        head = as_head(document, json.dumps(without(document, path)))
        assert head is None or shown(head)
    assert refused > 400


@given(st.data())
def test_any_damage_gives_a_batch_or_one_line(
    documents: dict[str, dict[str, Any]], data: st.DataObject
) -> None:
    document = documents["batch"]
    try:
        batch = read_batch(document["rollout"], 0, data.draw(damaged(document)))
    except RefusedError as error:
        assert "\n" not in str(error) and len(str(error)) < 500
        return
    assert batch.finished in (True, False)
    assert batch.at("done") is not None and batch.failures is not None


def test_the_error_names_key_and_field(tmp_path: Path) -> None:
    world = changing(tmp_path)
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
def test_it_is_told_and_stops_nobody_else(tmp_path: Path, rollout: str, text: str) -> None:
    world = changing(tmp_path)
    world.roll(0)
    put_head(world, rollout, text)
    told = rollout_status(world.context)
    assert told["ids"] == [world.rollout]
    (line,) = told["unreadable"]
    assert (
        f"edgetune.rollout.{rollout} is damaged" in line
        and f"release_record rollout={rollout}" in line
    )
    assert line in told["message"] and rollout in told["text"]
    (found,) = list(Guard(no_complaint).look(world.context))
    assert (found.trigger, found.payload["rollout"]) == ("rollout_stalled", rollout)
    assert rollout in found.payload["reason"]
    # The sweep names it, and goes on with the others.
    assert rollout_status(world.context, orphaned=True)["unreadable"] == [line]
    assert sample_hosts(world.context)["samples"] == 8
    assert world.take_over()["claimed"]
    assert world.roll_back()["state"] == "rolled_back"
    assert world.hosts.tuned == set()


def test_the_guard_tells_it_once_an_hour(tmp_path: Path) -> None:
    world = changing(tmp_path)
    put_head(world, OTHER, "{")
    guard = Guard(no_complaint)
    assert [len(list(guard.look(world.context))) for _ in range(3)] == [1, 0, 0]


def planned(world: EmptyWorld, folder: Path) -> Plan:
    from edgetune.rollout.record import save_plan

    made = plan(folder)
    save_plan(world.context, made)
    return made


@pytest.mark.parametrize("rollout", [BESIDE, NO_POP])
def test_its_pop_is_nobody_s_until_a_person_says_so(tmp_path: Path, rollout: str) -> None:
    world = EmptyWorld(tmp_path)
    put_head(world, rollout, "{")
    digest = planned(world, tmp_path).digest
    for begin in (
        lambda: claim_pop(world.context, plan=digest),
        lambda: plan_rollout(world.context, "lab1", "accept_queue"),
    ):
        with pytest.raises(RefusedError, match=f"rollout.{rollout} is damaged.*release_record"):
            begin()
    assert world.context.claims.holder("lab1") is None
    message = release_record(world.context, rollout, "nothing stands there", "ana")["message"]
    assert message.startswith(f"ana gives up the record of {rollout}")
    assert unreadable_rollouts(world.context) == []
    assert rollout_status(world.context)["unreadable"] == []
    assert plan_rollout(world.context, "lab1", "accept_queue")["plan"]
    assert claim_pop(world.context, plan=digest)["rollout"]


def test_that_of_another_pop_keeps_nobody_from_beginning(tmp_path: Path) -> None:
    world = EmptyWorld(tmp_path)
    put_head(world, OTHER, "{")
    assert claim_pop(world.context, plan=planned(world, tmp_path).digest)["rollout"]


def test_another_text_under_the_key_is_judged_anew(tmp_path: Path) -> None:
    world = changing(tmp_path)
    good = world.context.store.get(f"edgetune.rollout.{world.rollout}") or ""
    put_head(world, world.rollout, "{")
    release_record(world.context, world.rollout)
    put_head(world, world.rollout, "[")
    assert len(unreadable_rollouts(world.context)) == 1
    put_head(world, world.rollout, good)
    assert [head.id for head in all_heads(world.context)] == [world.rollout]
    with pytest.raises(RefusedError, match="can be read: st2 run edgetune.rollout_pop rollout="):
        release_record(world.context, world.rollout)
    with pytest.raises(InputError, match="there is no rollout 'nothing'"):
        release_record(world.context, "nothing")


@pytest.mark.parametrize("text", ["", "{", "7", '{"digest": 7}', "{}"])
def test_a_release_that_cannot_be_read_releases_nothing(tmp_path: Path, text: str) -> None:
    world = EmptyWorld(tmp_path)
    put_head(world, BESIDE, "{")
    world.context.store.put(f"edgetune.released.{BESIDE}", text)
    assert [each.id for each in unreadable_rollouts(world.context)] == [BESIDE]


def test_one_that_has_ended_is_not_taken_up_again_beside_it(tmp_path: Path) -> None:
    """The one that cannot be read may be half done on the same hosts."""
    world = ended(tmp_path)
    put_head(world, BESIDE, "{")
    with pytest.raises(RefusedError, match=f"{BESIDE} is damaged"):
        world.take_over()
    release_record(world.context, BESIDE)
    assert world.take_over()["claimed"]


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
    if released:
        release_record(world.context, rollout)
    assert not read_rollout(world.context, world.rollout).drains
    world.mark("rolling_back")
    assert read_rollout(world.context, world.rollout).drains == drains


def test_a_record_that_breaks_in_the_middle_quarantines_nobody(tmp_path: Path) -> None:
    """Hosts that were not drained are not said to be drained."""
    world = changing(tmp_path, disruption="live")
    world.roll(0)
    batch = world.mark("rolling_back")["first_batch"]
    world.roll(batch, until=restore_hosts)
    put_head(world, LATER, "{")
    assert world.step(restore_hosts, batch)["error"] == ""
    assert (world.hosts.tuned, world.head.quarantined) == (set(), {})


@pytest.mark.parametrize("state", ["ready", "maint"])
def test_a_drained_host_is_told_so_on_both_ways(tmp_path: Path, state: str) -> None:
    """Another machine behind its address refuses then."""
    world = changing(tmp_path)
    (host,) = world.at(0)
    world.balancer.state[host] = state
    world.roll(0)
    world.roll_back()
    asked = [(verb, request) for name, verb, request in world.hosts.asked if name == host]
    told = {verb: request["drained"] for verb, request in asked if verb in ("apply", "restore")}
    assert told == {"apply": True, "restore": True}
    assert world.balancer.state[host] == state


@pytest.mark.parametrize("text", ["{", '{"schema": 9}'])
def test_a_rollback_needs_no_baseline_that_can_be_read(tmp_path: Path, text: str) -> None:
    """It is good for an order only."""
    world = changing(tmp_path)
    world.roll_all({"first_batch": 0, "end_batch": 4})
    assert len(world.hosts.tuned) > 1
    world.context.store.put(f"edgetune.baseline.{world.rollout}", text)
    assert world.roll_back()["state"] == "rolled_back"
    assert world.hosts.tuned == set()


def test_the_epoch_that_it_tells_is_not_given_away_again(tmp_path: Path) -> None:
    world = EmptyWorld(tmp_path)
    put_head(world, BESIDE, json.dumps({"schema": 2, "epoch": 41}))
    release_record(world.context, BESIDE)
    digest = planned(world, tmp_path).digest
    assert claim_pop(world.context, plan=digest)["epoch"] == 42
    assert [each.epoch for each in read_heads(world.context)[1]] == [41]


@pytest.mark.parametrize("text", TEXTS)
def test_a_batch_that_cannot_be_read_costs_its_own_rollout_alone(tmp_path: Path, text: str) -> None:
    world = changing(tmp_path)
    world.roll(0)
    key = f"edgetune.batch.{world.rollout}.0"
    world.context.store.put(key, text)
    for read in (lambda: world.batch(0), lambda: world.mark("rolling_back")):
        with pytest.raises(DamagedError, match=f"{key} is damaged"):
            read()
    complaints: list[str] = []
    assert list(Guard(complaints.append).look(world.context)) == []
    assert all(f"{key} is damaged" in complaint for complaint in complaints)
    assert rollout_status(world.context)["ids"] == [world.rollout]


@pytest.fixture(scope="module")
def soaking(tmp_path_factory: pytest.TempPathFactory) -> Soaking:
    """A rollout with a baseline and a look."""
    world = Soaking(tmp_path_factory.mktemp("soaking"))
    check_baseline(world.context, world.rollout, world.epoch)
    world.soak(test=USUAL, began=200)
    compare_groups(world.context, world.rollout)
    return world


def without_all(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


@pytest.mark.parametrize("kind", ["baseline", "look"])
def test_any_damage_of_what_was_measured_is_one_line(soaking: Soaking, kind: str) -> None:
    opened = as_owner(soaking.context, soaking.rollout)
    key = f"edgetune.{kind}.{soaking.rollout}" + (".0" if kind == "look" else "")
    good = soaking.context.store.get(key) or ""
    read: Callable[[], Any] = opened.baseline if kind == "baseline" else lambda: opened.look(0)
    document = json.loads(good)
    assert read().document() == without_all(document, "digest", "schema", "rollout")
    wrong = [json.dumps(put(document, path, "x")) for path in list(places(document))[::5] if path]
    for text in [*TEXTS, *wrong, good[:-1], good[: len(good) // 2]]:
        soaking.context.store.put(key, text)
        with pytest.raises(DamagedError, match=f"{key} is damaged"):
            read()
    # Earlier versions wrote no digest.
    soaking.context.store.put(key, json.dumps({**without(document, ("digest",)), "schema": 2}))
    assert read().document() == without_all(document, "digest", "schema", "rollout")
    soaking.context.store.put(key, good)


@pytest.mark.parametrize("text", TEXTS)
def test_a_plan_that_cannot_be_read_is_one_line(tmp_path: Path, text: str) -> None:
    world = changing(tmp_path)
    digest = world.plan.digest
    world.context.store.put(f"edgetune.plan.{digest}", text)
    with pytest.raises(RefusedError, match=digest):
        load_plan(world.context, digest)
    assert list(Guard(lambda problem: None).look(world.context)) is not None
    assert rollout_status(world.context, orphaned=True)["ids"] == []


@pytest.mark.parametrize("text", [*TEXTS, '{"paused": 0}', '{"paused": "no"}'])
def test_a_pause_that_cannot_be_read_pauses(tmp_path: Path, text: str) -> None:
    world = changing(tmp_path)
    pause_pop(world.context, "lab1", requested_by="ana")
    world.context.store.put("edgetune.pause.asked.lab1", text)
    pause = pauses_of(world.context, "lab1")["asked"]
    assert pause.paused
    assert rollout_status(world.context)["ids"] == [world.rollout]


@pytest.mark.parametrize("text", TEXTS)
def test_an_approval_that_cannot_be_read_approves_nothing(tmp_path: Path, text: str) -> None:
    world = EmptyWorld(tmp_path)
    save_approval(world.context, Approval("sha256:ab", "a plan", "ben", 1.0, 2.0))
    assert load_approval(world.context, "sha256:ab")
    world.context.store.put("edgetune.approval.sha256:ab", text)
    with pytest.raises(RefusedError, match="approval.* sha256:ab|approval.sha256:ab is damaged"):
        load_approval(world.context, "sha256:ab")


def test_a_document_is_refused_where_it_is_nested_without_end() -> None:
    with pytest.raises(DamagedError, match="x is damaged: is nested more than 40 deep"):
        read_document("x", '{"a":' * 41 + "1" + "}" * 41)
    assert read_document("x", '{"a":' * 40 + "1" + "}" * 40)


def test_what_is_damaged_is_an_error_of_ours() -> None:
    assert issubclass(DamagedError, EdgetuneError)
