# SPDX-License-Identifier: Apache-2.0
"""What has ended leaves those under way: nothing of it is lost, whoever stops where, and what is
under way is read at the same cost."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetune.base import clock
from edgetune.base.documents.head import ENDED, ID, Entry, Head, Quarantine, archive_key, head_key
from edgetune.base.documents.look import Conclusion
from edgetune.base.documents.past import past_key
from edgetune.base.documents.steps import StepsTaken, StepTaken, steps_key
from edgetune.base.documents.words import Decision, Verdict
from edgetune.base.durations import utc
from edgetune.base.errors import FencedError, InputError
from edgetune.base.sanitize import command
from edgetune.fleet.campaign.record import seized
from edgetune.report.steps.campaign_status import campaign_status
from edgetune.rollout.context import Context
from edgetune.rollout.record import archive
from edgetune.rollout.record.archive import (
    CLAIMED_BY,
    count_rollouts,
    largest_epoch,
    past_of,
    what_stands,
)
from edgetune.rollout.record.heads import all_heads, living_heads, unreadable_rollouts
from edgetune.rollout.record.rollout import read_rollout
from edgetune.rollout.steps.take_over_rollout import take_over
from edgetune.rollout.store.nodes import Node
from edgetune.rollout.store.records import KEY
from tests.support import ROOT
from tests.support.asked_store import AskedStore
from tests.support.builders import concluded
from tests.support.campaign_world import CampaignWorld
from tests.support.exported import put_one, put_steps
from tests.support.virtual_clock import VirtualClock
from tests.support.world import Died, EmptyWorld, World

DAY = 1440.0
POPS = ("lab1", "ams1", "lab1-b")
STAMP = "20260101T{:06d}-7a54"
# How a rollout may stand: its state, whether a host is in quarantine, and minutes since its end.
STANDS = st.tuples(
    st.sampled_from(["complete", "rolled_back", "handed_over", "soaking", "held"]),
    st.booleans(),
    st.sampled_from([5.0, DAY + 1]),
)
HISTORY = st.lists(st.tuples(st.sampled_from(POPS), STANDS), max_size=7)


@pytest.fixture
def world(tmp_path: Path, clock: VirtualClock) -> EmptyWorld:
    return EmptyWorld(tmp_path)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> EmptyWorld:
    """One for many examples."""
    made = EmptyWorld(tmp_path_factory.mktemp("kept"))
    # Its tables are there now.
    made.context.claims.holder("lab1")
    return made


def put(
    world: EmptyWorld, pop: str, number: int, state: str, minutes: float = DAY + 1, **more: Any
) -> str:
    """The rollout of that number on a PoP, which has that epoch, too; its id."""
    stamp = STAMP.format(number)
    created = clock.wall() - 60 * minutes - 1000 + number
    more = {"created": created, "epoch": number + 1, "owned": False, **more}
    return put_one(world, pop, state, minutes, stamp=stamp, **more)


def counted(world: EmptyWorld) -> dict[tuple[str, str], dict[str, Any]]:
    """What is exported of rollouts, without zeros and without the time that goes on."""

    def shown(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: own for name, each in value.items() if (own := shown(each)) not in (0, {})}

    found = count_rollouts(world.context, living_heads(world.context))
    for tally in found.values():
        tally.seconds.pop("soaking", None)
    return {key: shown(asdict(tally)) for key, tally in found.items()}


def sweep(world: EmptyWorld) -> int:
    return int(world.run("find_orphans")["archived"])


def keys(world: EmptyWorld, start: str) -> list[str]:
    return [key[len(start) :] for key in world.context.store.list(start)]


def living(world: EmptyWorld) -> list[str]:
    return keys(world, head_key(""))


def archived(world: EmptyWorld) -> list[str]:
    return keys(world, archive_key(""))


def told(heads: list[Head]) -> dict[str, dict[str, Any]]:
    return {head.id: {**asdict(head), "clock": None} for head in heads}


def standing(world: EmptyWorld) -> dict[str, set[str]]:
    """By PoP the rollouts by which a tuning stands there."""
    return {
        pop: {*own} for pop, own in what_stands(world.context, living_heads(world.context)).items()
    }


def begin(world: EmptyWorld, folder: Path) -> None:
    world.begin(folder, interval=10)


def test_they_leave_as_the_next_one_begins(world: EmptyWorld, tmp_path: Path) -> None:
    old = [put(world, "lab1", n, state, 5) for n, state in enumerate(ENDED)]
    stuck = put(world, "lab1", 7, "rolled_back", 5, quarantined={"e001": Quarantine("gone")})
    beside = put(world, "ams1", 8, "rolled_back", 5)
    begin(world, tmp_path)
    assert world.epoch == 9
    assert set(living(world)) == {world.rollout, stuck, beside}
    assert archived(world) == old
    # They are found by their ids, as before.
    for rollout in old:
        assert read_rollout(world.context, rollout).head.id == rollout
        assert world.run("rollout_status", rollout=rollout)["ids"] == [rollout]
    assert world.context.claims.holder("lab1").epoch == world.epoch  # type: ignore[union-attr]


FAILED = ("changing", "rolling_back", "rolled_back")
HELD = ("changing", "soaking", "held", "rolling_back", "rolled_back")
RETIRED = ("changing", "complete", "rolling_back", "rolled_back")
AGAIN = (*FAILED, "rolling_back", "rolled_back", "rolled_back")
UNTOUCHED = ("claimed", "baseline", "rolling_back", "rolled_back")
USELESS = Conclusion(Verdict.NO_DIFFERENCE, Decision.HOLD, "3 % fewer: no proven improvement")
WORSE = Conclusion(Verdict.DEGRADED, Decision.ROLL_BACK, "40 % more")
BETTER = Conclusion(Verdict.IMPROVED, Decision.PROMOTE, "40 % fewer")
# The states that it was in, what its last look found, and what is told.
TRIED: dict[str, tuple[Sequence[str], Conclusion | None, str]] = {
    "by its look": (FAILED, WORSE, "40 % more"),
    "by a person who read its look": (HELD, USELESS, USELESS.reason),
    "by a host": (FAILED, None, "rolling_back 1 (ana)"),
    "by a host, in spite of its look": (FAILED, BETTER, "rolling_back 1 (ana)"),
    "by a host, before its look decided": (FAILED, USELESS, "rolling_back 1 (ana)"),
    "retired": (RETIRED, WORSE, "rolling_back 2 (ana)"),
    "once more, for a host in quarantine": (AGAIN, None, "rolling_back 1 (ana)"),
    "before it touched a host": (UNTOUCHED, None, ""),
}


def planned(world: EmptyWorld) -> str:
    return " ".join(world.run("plan_rollout", "lab1", "accept_queue")["text"].split())


@pytest.mark.parametrize("where", ["living", "archived", "archived, and the past is damaged"])
@pytest.mark.parametrize("case", TRIED)
def test_a_plan_says_why_it_was_taken_back_here_before(
    world: EmptyWorld, case: str, where: str
) -> None:
    states, verdict, why = TRIED[case]
    tried, began = {"tuning": "accept_queue"}, clock.wall() - 60 * (DAY + 9)
    history = [
        Entry(began + 60 * n, state, "ana", f"{state} {n}") for n, state in enumerate(states)
    ]
    rollout = put(world, "lab1", 2, "rolled_back", history=history, verdict=verdict, **tried)
    put(world, "lab1", 3, "rolled_back", history=history)
    put(world, "ams1", 4, "rolled_back", history=history, **tried)
    if where != "living":
        # The newest leaves with a later one.
        assert sweep(world)
        put(world, "lab1", 5, "rolled_back", history=history)
        assert sweep(world) and rollout in archived(world)
    if "damaged" in where:
        world.context.store.put(past_key("lab1"), "{")
    text = planned(world)
    if not why:
        assert "tried here" not in text
        return
    at = began + 60 * states.index("rolling_back")
    assert f"taken back at {utc(at)}: {why}" in text
    assert command("rollout_status", rollout=rollout) in text


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_of_several_the_newest_is_told_whichever_left_first(
    world: EmptyWorld, order: tuple[int, int]
) -> None:
    for number in order:
        put_failed(world, number, days=5 - number)
        assert sweep(world)
    assert f"{utc(clock.wall() - 3 * 86400)}" in planned(world)


def put_failed(world: EmptyWorld, number: int, days: int, state: str = "rolled_back") -> None:
    at = clock.wall() - days * 86400
    history = [Entry(at, word, "ana", "so") for word in FAILED[:-1]]
    put(world, "lab1", number, state, history=history, tuning="accept_queue")


def test_one_that_stood_later_was_not_in_vain(world: EmptyWorld) -> None:
    put_failed(world, 1, days=5)
    put(world, "lab1", 2, "complete", tuning="accept_queue")
    assert "tried here" not in planned(world)
    assert sweep(world) == 2
    assert "tried here" not in planned(world)


def test_of_a_long_reason_the_beginning_is_kept(world: EmptyWorld) -> None:
    why = "e001 failed " * 100
    history = [Entry(clock.wall() - 2 * 86400, word, "", why) for word in FAILED]
    put(world, "lab1", 1, "rolled_back", history=history, tuning="accept_queue")
    assert sweep(world)
    past = past_of(world.context, "lab1")
    assert past and len(past.tried["accept_queue"].why) == 300


def test_the_last_leaves_a_day_after_its_end(world: EmptyWorld, clock: VirtualClock) -> None:
    first, last = (put(world, "lab1", n, "complete", DAY - 1) for n in (1, 2))
    assert sweep(world) == 1
    assert (living(world), archived(world)) == ([last], [first])
    clock.wait(61)
    assert sweep(world) == 1
    assert (living(world), archived(world)) == ([], [first, last])
    assert sweep(world) == 0
    # Its PoP tells it, and what stands there.
    text = world.status(pop="lab1")
    assert text.startswith(last) and "Ended rollouts: " in text
    assert world.status().splitlines()[:2] == [
        "Nothing to do: no rollout is under way.",
        "lab1  nic_ring stands for 1d",
    ]
    assert "\nEnded rollouts: " in world.status()
    assert world.run("rollout_status", with_ended=True)["ids"] == [first, last]
    assert world.run("rollout_status", state="complete")["ids"] == [first, last]
    assert world.run("list_applied", pop="lab1", tuning="nic_ring")["rollouts"] == [last, first]
    assert standing(world) == {"lab1": {first, last}}
    assert largest_epoch(world.context, "lab1") == 3


def test_a_claim_that_cannot_be_read_keeps_its_pop_alone_and_is_told(
    world: EmptyWorld, tmp_path: Path
) -> None:
    for pop in ("ams1", "fra1"):
        put(world, pop, 1, "complete")
    # What the archive holds of another PoP has yet to be counted.
    world.context.store.put(past_key("ber1"), "{}")
    with sqlite3.connect(tmp_path / "state.sqlite") as db:
        for pop in ("ams1", "ber1"):
            db.execute("INSERT INTO claims VALUES (?, '{', 1e10)", (pop,))
    for moved, stays in ((1, ["ams1"]), (0, ["ams1", "ber1"])):
        told = world.run("find_orphans")
        assert told["archived"] == moved
        for pop in stays:
            assert f"{pop}: its ended rollouts are not archived: claims.{pop}" in told["message"]
    assert [ID.fullmatch(rollout)[1] for rollout in archived(world)] == ["fra1"]  # type: ignore[index]


def test_nothing_leaves_where_somebody_is_at_work_or_all_is_stopped(world: EmptyWorld) -> None:
    put(world, "lab1", 1, "complete")
    put(world, "lab1", 2, "soaking")
    put(world, "ams1", 1, "complete")
    world.context.claims.take("ams1", "uninstall_agent", 60)
    put(world, "fra1", 1, "complete")
    world.run("stop_all", requested_by="ana")
    assert sweep(world) == 0
    world.run("resume_all", requested_by="ana")
    assert sweep(world) == 1
    assert [ID.fullmatch(rollout)[1] for rollout in archived(world)] == ["fra1"]  # type: ignore[index]


def restored(world: EmptyWorld, records: Mapping[str, str]) -> None:
    """Nothing but these records, and no claims."""
    with sqlite3.connect(world.context.config.records[len("sqlite:///") :]) as db:
        for table in ("records", "claims"):
            db.execute(f"DELETE FROM {table}")
        db.executemany("INSERT INTO records VALUES (?, ?)", [*records.items()])


@settings(deadline=None, max_examples=30)
@given(data=st.data(), history=HISTORY)
def test_wherever_it_stops_each_is_readable_and_the_next_goes_on(
    kept: EmptyWorld, data: st.DataObject, history: list[Any]
) -> None:
    """No epoch gets lost, and nothing that stands."""
    restored(kept, {})
    for number, (pop, (state, stuck, minutes)) in enumerate(history):
        put(
            kept,
            pop,
            number,
            state,
            minutes,
            quarantined={"e1": Quarantine("gone")} if stuck else {},
            looks=number,
            verdict=concluded("promote", "improved"),
        )
        put_steps(kept, f"{pop}-{STAMP.format(number)}", drain_hosts=StepTaken(2, 1.5))
    before, context = told(all_heads(kept.context)), kept.context
    counts = counted(kept)
    epochs = {pop: largest_epoch(context, pop) for pop in POPS}
    stands = {head.id for head in all_heads(context) if head.state == "complete"}

    def look() -> None:
        assert told(all_heads(context)) == before
        assert counted(kept) == counts
        for pop in POPS:
            assert largest_epoch(context, pop) == epochs[pop]
            assert told(all_heads(context, pop)) == {
                name: own for name, own in before.items() if own["pop"] == pop
            }
        for rollout, own in before.items():
            assert told([read_rollout(context, rollout).head])[rollout] == own
        assert {id for own in standing(kept).values() for id in own} == stands

    kept.moments.seen.clear()
    kept.moments.at = lambda moment: look()
    try:
        for _ in range(2):
            kept.moments.die_at = data.draw(st.integers(-1, 30))
            try:
                sweep(kept)
            except Died:
                # Whoever died there holds nothing for longer than it said.
                look()
            kept.moments.die_at = -1
            kept.moments.seen.clear()
        sweep(kept)
    finally:
        kept.moments.at, kept.moments.die_at = lambda what: None, -1
    look()
    assert not set(living(kept)) & set(archived(kept))
    busy = {own["pop"] for own in before.values() if own["state"] not in ENDED}
    for name, own in before.items():
        at_rest = own["state"] in ENDED and not own["quarantined"]
        if own["pop"] in busy or not at_rest:
            assert name in living(kept)
        elif clock.wall() - own["history"][-1]["at"] > 60 * DAY:
            assert name in archived(kept)


def test_who_lost_the_claim_deletes_nothing(world: EmptyWorld) -> None:
    """The record may be another one by then."""
    rollout = put(world, "lab1", 1, "complete")

    def lose(moment: str) -> None:
        if moment == f"after put {archive_key(rollout)}":
            with sqlite3.connect(world.context.config.records[len("sqlite:///") :]) as db:
                db.execute("DELETE FROM claims")
            take_over(world.context, read_rollout(world.context, rollout).head)

    world.moments.at = lose
    assert sweep(world) == 0
    assert living(world) == [rollout]
    assert read_rollout(world.context, rollout).head.history[-1].reason.startswith("taken over")


def test_what_is_taken_up_again_is_read_where_it_is_written(world: EmptyWorld) -> None:
    rollout = put(world, "lab1", 1, "complete")
    assert (sweep(world), living(world)) == (1, [])
    head = take_over(world.context, read_rollout(world.context, rollout).head)
    # The copy is not seen any more, nor counted.
    assert living(world) == archived(world) == [rollout]
    assert counted(world)["lab1", "nic_ring"]["rollouts"] == {"complete": 1}
    assert [own.epoch for own in all_heads(world.context)] == [head.epoch]
    assert read_rollout(world.context, rollout).head.epoch == head.epoch > 2
    back = Entry(clock.wall() - 60 * (DAY + 1), "rolled_back", "ana", "back")
    put(world, "lab1", 1, "rolled_back", epoch=7, history=[*head.history, back])
    assert largest_epoch(world.context, "lab1") == 7
    assert sweep(world) == 0
    world.context.claims.release("lab1", world.context.claims.holder("lab1"))  # type: ignore[arg-type]
    assert (sweep(world), living(world)) == (1, [])
    assert read_rollout(world.context, rollout).head.state == "rolled_back"
    assert counted(world)["lab1", "nic_ring"]["rollouts"] == {"rolled_back": 1}
    # And nothing stands there any more.
    assert (standing(world), largest_epoch(world.context, "lab1")) == ({}, 7)


def test_a_sweep_takes_so_many_and_the_next_ones_the_others(
    world: EmptyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "SWEPT_AT_ONCE", 4)
    for pop in POPS:
        for number in range(3):
            put(world, pop, number, "complete")
    assert [sweep(world) for _ in range(4)] == [4, 4, 1, 0]
    assert (len(archived(world)), living(world)) == (9, [])


def test_as_one_begins_only_some_are_moved(
    world: EmptyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "AT_ONCE", 2)
    for number in range(5):
        put(world, "lab1", number, "rolled_back")
    begin(world, tmp_path)
    assert (len(archived(world)), len(living(world))) == (2, 4)


def test_of_what_stands_in_many_versions_the_newest_are_told(
    world: EmptyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the newest of each tuning, however old."""
    monkeypatch.setattr(archive, "MOST_STANDING", 2)
    old = put(world, "lab1", 0, "complete", 9 * DAY, tuning="accept_queue")
    ids = [put(world, "lab1", number, "complete", 9 * DAY - number) for number in range(1, 6)]
    assert standing(world) == {"lab1": {old, *ids[-2:]}}
    assert sweep(world) == 6
    assert standing(world) == {"lab1": {old, *ids[-2:]}}


@pytest.mark.parametrize("version", ["0.6.0", "0.10.0"])
def test_records_of_earlier_versions_leave_as_they_are(world: EmptyWorld, version: str) -> None:
    file = ROOT / f"tests/fixtures/versions/rollout_{version}.json"
    records = json.loads(file.read_text(encoding="utf-8"))["records"]
    (key,) = [key for key in records if key.startswith(head_key(""))]
    text = json.dumps({**records[key], "state": "rolled_back"})
    world.context.store.put(key, text)
    assert sweep(world) == 1
    rollout = key[len(head_key("")) :]
    assert world.context.store.get(archive_key(rollout)) == text
    assert read_rollout(world.context, rollout).head.epoch == records[key]["epoch"]
    assert largest_epoch(world.context, "lab1") == records[key]["epoch"]


@pytest.mark.parametrize("pack", ["0.9.0 0123456789abcdef", "0.10.0 is not there"])
def test_nothing_leaves_while_a_node_holds_another_pack(world: EmptyWorld, pack: str) -> None:
    """It would find nothing that stands on a PoP."""
    put(world, "lab1", 1, "complete")
    nodes: Any = world.context.nodes
    own = nodes.all
    nodes.all = lambda: [*own(), Node("other", clock.wall(), {"pack": pack})]
    assert (sweep(world), archived(world)) == (0, [])
    nodes.all = own
    assert sweep(world) == 1


def test_a_past_that_cannot_be_read_is_read_from_the_archive(world: EmptyWorld) -> None:
    put(world, "lab1", 4, "rolled_back")
    put(world, "lab1", 2, "complete")
    sweep(world)
    good, counts = past_of(world.context, "lab1"), counted(world)
    assert good
    for text in ("{", '{"schema": 4}', '{"schema": 99}', json.dumps({"schema": 4, "epoch": 0})):
        world.context.store.put(past_key("lab1"), text)
        assert past_of(world.context, "lab1") == replace(good, tallies=None)
        assert counted(world) == counts
        assert largest_epoch(world.context, "lab1") == 5
        assert [*standing(world)] == ["lab1"]
    world.context.store.put(past_key("ams1"), "{")
    assert past_of(world.context, "ams1") is None


def test_what_an_earlier_version_archived_is_counted_by_the_sweep(world: EmptyWorld) -> None:
    for pop, number in (("lab1", 1), ("lab1", 2), ("ams1", 1)):
        put_steps(world, put(world, pop, number, "complete"), drain_hosts=StepTaken(2, 1.5))
    counts = counted(world)
    assert counts["lab1", "nic_ring"]["steps"]["drain_hosts"]["count"] == 4
    with mock.patch.object(archive, "past_with", lambda past, *more: replace(past, tallies=None)):
        sweep(world)
    for pop in ("lab1", "ams1"):
        past = past_of(world.context, pop)
        assert past and past.tallies is None
    assert counted(world) == counts
    # What was kept of steps is needed until then.
    assert len(keys(world, steps_key(""))) == 3
    for left in (2, 0):
        assert sweep(world) == 0
        assert (len(keys(world, steps_key(""))), counted(world)) == (left, counts)
    world.context.store.put(past_key("ams1"), "{")
    assert (sweep(world), counted(world)["ams1", "nic_ring"]["rollouts"]) == (0, {"complete": 1})
    past = past_of(world.context, "ams1")
    assert past and past.tallies is not None


def test_what_moves_while_it_is_counted_is_counted_once(world: EmptyWorld) -> None:
    """A counter that falls again would count as one that began anew."""
    put(world, "lab1", 0, "complete")
    sweep(world)
    put_steps(world, put(world, "lab1", 1, "complete"), drain_hosts=StepTaken(2, 1.5))
    counts, real = counted(world), archive._steps_taken

    def moved_meanwhile(context: Context, start: str) -> Mapping[str, StepsTaken]:
        found = real(context, start)
        with mock.patch.object(archive, "_steps_taken", real):
            assert sweep(world) == 1
        return found

    with mock.patch.object(archive, "_steps_taken", moved_meanwhile):
        assert counted(world) == counts
    assert counted(world) == counts


def test_to_count_costs_the_same_with_ten_times_as_many_that_have_ended(world: EmptyWorld) -> None:
    def requests() -> list[str]:
        world.moments.seen.clear()
        counted(world)
        return [*world.moments.seen]

    put(world, "lab1", 0, "complete")
    sweep(world)
    few = requests()
    for number in range(1, 11):
        put(world, "lab1", number, "complete")
    assert sweep(world) == 10
    assert requests() == few
    assert counted(world)["lab1", "nic_ring"]["rollouts"] == {"complete": 11}


def test_one_of_the_archive_that_cannot_be_read_hides_nothing_that_stands(
    world: EmptyWorld, tmp_path: Path
) -> None:
    rollout = put(world, "lab1", 1, "complete")
    sweep(world)
    world.context.store.put(archive_key(rollout), "{")
    lost = f"{archive_key(rollout)} is damaged"
    assert lost in world.run("list_applied", pop="lab1", tuning="nic_ring")["message"]
    assert lost in world.run("rollout_status", with_ended=True)["message"]
    world.context.store.put(archive_key(rollout), '{"schema": 99, "state": "complete"}')
    assert "lab1  nic_ring stands for" in world.status(with_ended=True)
    world.context.store.put(archive_key(rollout), "{")
    # Nor where what is known of the archive is damaged, too.
    world.context.store.put(past_key("lab1"), "{")
    assert "lab1  something (its record cannot be read) stands" in world.status()
    # It has ended: rollouts begin.
    begin(world, tmp_path)
    world.run("release_record", rollout)
    world.mark("rolling_back")
    world.mark("rolled_back")
    message = world.run("list_applied", pop="lab1", tuning="nic_ring")["message"]
    assert message == "nic_ring does not stand on lab1; there are: none"


def test_an_id_that_is_nowhere_is_none(world: EmptyWorld) -> None:
    with pytest.raises(InputError, match="there is no rollout"):
        read_rollout(world.context, "lab1-20260101T000000-7a54")


def test_while_the_sweep_moves_nobody_begins_and_that_is_told(
    world: EmptyWorld, tmp_path: Path
) -> None:
    world.context.claims.take("lab1", CLAIMED_BY, 60)
    with pytest.raises((FencedError, Exception), match="lab1 is claimed by archive"):
        begin(world, tmp_path)


STEPS: dict[str, Any] = {
    "plan_rollout": lambda world: world.run("plan_rollout", "lab1", "accept_queue"),
    "rollout_status": lambda world: world.run("rollout_status", rollout=""),
    "rollout_status of a PoP": lambda world: world.run("rollout_status", pop="lab1"),
    "find_orphans": lambda world: world.run("find_orphans"),
    "begin_drain": lambda world: world.step("begin_drain", 0),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_asks_the_same_however_many_have_ended(tmp_path: Path, name: str) -> None:
    """On its PoP and on others, but for what the archive holds of its own PoP in one document."""
    found = []
    for number in (1, 30):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder) if name == "begin_drain" else EmptyWorld(folder)
        for each in range(number):
            put(world, "lab1", each, "rolled_back")
            put(world, "ams1", each, "complete")
        if name == "begin_drain":
            world.mark("baseline")
            world.mark("changing")
        while sweep(world) or archive_own(world):
            pass
        asked = AskedStore(world.context.store)
        world.context.store = asked  # type: ignore[assignment]
        STEPS[name](world)
        found.append((asked.requests, asked.texts))
    assert found[0] == found[1]


def archive_own(world: EmptyWorld) -> int:
    """As the rollout of the world did when it began."""
    claim = world.context.claims.holder("lab1")
    return archive.archive_ended(world.context, "lab1", claim, 60) if claim else 0


def test_one_that_begins_before_the_claim_keeps_its_pop(world: EmptyWorld) -> None:
    put(world, "lab1", 1, "complete")
    claims: Any = world.context.claims
    take = claims.take

    def late(*given: Any, **more: Any) -> Any:
        put(world, "lab1", 5, "soaking")
        return take(*given, **more)

    claims.take = late
    assert (sweep(world), archived(world)) == (0, [])
    assert claims.holder("lab1") is None


def test_a_key_that_tells_no_pop_may_be_on_any_once_the_sweep_has_seen_it(
    world: EmptyWorld,
) -> None:
    world.context.store.put(head_key("somebody"), "{")

    def seen(pop: str) -> list[str]:
        world.context.__dict__.pop("strays", None)
        return [each.id for each in unreadable_rollouts(world.context, pop)]

    assert seen("lab1") == []
    for _ in range(2):
        sweep(world)
        assert seen("lab1") == seen("ams1") == ["somebody"]
        # As it is, it says no less.
        world.context.store.put(KEY, "{")
        assert seen("lab1") == ["somebody"]
    world.context.store.delete(head_key("somebody"))
    assert seen("lab1") == []
    sweep(world)
    assert json.loads(world.context.store.get(KEY) or "") == {"ids": []}


def test_a_campaign_goes_on_with_rollouts_that_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with one that was begun by somebody who died before writing down which."""
    monkeypatch.setattr(archive, "DAY", 0.0)
    world = CampaignWorld(tmp_path / "world")
    world.begin_campaign()
    assert world.advance() == ["ams1"]
    world.bring("ams1", "complete")
    assert (sweep(world), living(world)) == (1, [])
    (row,) = campaign_status(world.context, world.id)["campaigns"]
    assert row["rings"][0]["states"] == {"ams1": "complete"}
    with seized(world.context, world.id) as work:
        work.record.pops["ams1"].rollout = ""
        work.save()
    # It is opened as any other: what cannot be judged is its soak, which it never had.
    assert (world.advance(), world.last.endswith("was never compared")) == ([], True)
    assert [world.record.pops["ams1"].rollout] == archived(world)
