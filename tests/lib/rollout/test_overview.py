# SPDX-License-Identifier: Apache-2.0
"""All rollouts at a glance: what needs a person first; what is absent is not taken for zero."""

from __future__ import annotations

import inspect
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.documents.head import ENDED, Head, Quarantine, head_key
from edgetune.documents.head import Entry as Noted
from edgetune.errors import InputError, StoreError
from edgetune.report.color import ATTENTION
from edgetune.report.findings import WIDTH
from edgetune.report.lines import block, shown
from edgetune.rollout import needs
from edgetune.rollout.needs import Need, Urgency
from edgetune.rollout.overview import Entry, blocks
from edgetune.rollout.record import save_plan
from tests.support.builders import concluded, plan, reading
from tests.support.soaking import Soaking
from tests.support.world import EmptyWorld, changing

pytestmark = pytest.mark.usefixtures("clock")

STAMP = "20261124T100727-7a54"
MORE = "st2 run edgetune.rollout_status"
GOES_ON = "lab1  accept_queue  changing for 0s: batch 1 of 4, 0 hosts out"


def put(
    world: EmptyWorld, pop: str, state: str, minutes: float = 5, owned: bool = True, **more: Any
) -> str:
    """A rollout on a PoP that entered its state so many minutes ago; its id."""
    at, rollout = time.time() - 60 * minutes, f"{pop}-{STAMP}"
    fields = {"id": rollout, "pop": pop, "tuning": "nic_ring", "plan": "", "state": state}
    history = [Noted(at, state, "ana", "so")]
    rest = {"epoch": 1, "owner": "run-1", "by": "ana", "created": at, "history": history}
    head = Head(**{**fields, **rest, **more})
    world.context.store.put(head_key(rollout), head.document())
    if owned and state not in ENDED:
        world.context.claims.take(pop, rollout, world.context.config.claim_ttl)
    return rollout


def lines(world: EmptyWorld, **given: Any) -> list[str]:
    return world.status(**given).splitlines()


@pytest.fixture
def world(tmp_path: Path) -> EmptyWorld:
    return EmptyWorld(tmp_path)


@pytest.fixture
def beside(tmp_path: Path) -> EmptyWorld:
    """A rollout is changing the first hosts of lab1."""
    return changing(tmp_path / "beside")


def test_without_any_rollout_it_says_how_to_begin_one(world: EmptyWorld) -> None:
    begins = "st2 run edgetune.rollout_pop pop=POP tuning=TUNING"
    assert world.status() == f"No rollouts. Begin one with: {begins}"
    assert world.status(pop="lab1").startswith("No rollouts on lab1. Begin one with: ")
    assert world.status(state="held") == "No rollouts."


def test_a_list_that_nobody_may_see_is_not_an_empty_one(world: EmptyWorld) -> None:
    def may_not(prefix: str) -> dict[str, str]:
        raise StoreError("its user may not list")

    world.context.store.list = may_not
    with pytest.raises(StoreError, match="may not list"):
        world.status()


def test_where_nothing_is_to_do_it_says_so_and_counts_what_has_ended(world: EmptyWorld) -> None:
    put(world, "ams1", "complete", verdict=concluded("promote", "improved"))
    put(world, "lax1", "rolled_back", 90)
    nothing = "Nothing to do: no rollout is under way."
    assert lines(world) == [nothing, f"2 ended rollouts: {MORE} with_ended=true"]
    first, *ended = lines(world, with_ended=True)
    assert first == nothing
    assert f"ams1-{STAMP}  nic_ring  complete 5m ago: improved" in ended
    assert f"lax1-{STAMP}  nic_ring  rolled back 1h30m ago" in ended


def test_what_needs_a_person_comes_first(beside: EmptyWorld) -> None:
    world = beside
    assert world.status() == GOES_ON
    stuck = {"e003": Quarantine("not as before", out_of_service=True)}
    put(world, "a1", "complete")
    put(world, "b1", "held", 4, verdict=concluded("hold", "inconclusive", "too few events"))
    put(world, "c1", "rolled_back", quarantined=stuck)
    put(world, "d1", "claimed", minutes=0, owned=False)
    world.context.store.put(head_key(f"e1-{STAMP}"), "{")
    world.run("pause_pop", "lab1", reason="peak", requested_by="ana")
    found = lines(world, ended=["run-1"])
    told = [line for line in found if not line.startswith("  ")]
    assert [line.split()[0] for line in told] == ["d1", "lab1", "c1", "b1", "e1", "1"]
    assert told[1] == "lab1  accept_queue  NO OWNER; PAUSED (asked, by ana: peak); changing for 0s:"
    assert told[2] == "c1    nic_ring      QUARANTINED e003: not as before; rolled back 5m ago"
    assert told[3] == "b1    nic_ring      HELD for 4m, inconclusive: too few events"
    assert told[4].startswith(f"e1                  DAMAGED: edgetune.rollout.e1-{STAMP} is")
    assert told[5] == f"1 ended rollout: {MORE} with_ended=true"
    assert {
        f"  carry on:   st2 run edgetune.rollout_pop rollout=d1-{STAMP}",
        "  resume:     st2 run edgetune.resume_pop pop=lab1",
        "  once mended: st2 run edgetune.release_host host=e003",
        f"  look longer: st2 run edgetune.rollout_pop rollout=b1-{STAMP} wait=true",
        f"  give it up: st2 run edgetune.release_record rollout=e1-{STAMP}",
    } <= {*found}
    world.run("stop_all", reason="errors", requested_by="ana")
    first, helps, *_ = lines(world, ended=["run-1"])
    assert first == "EVERYTHING IS STOPPED: stopped by ana: errors"
    assert helps == "  resume:     st2 run edgetune.resume_all"


def test_several_hosts_in_quarantine_and_those_that_serve_are_named(world: EmptyWorld) -> None:
    out, serves = Quarantine("so", out_of_service=True), Quarantine("so", out_of_service=False)
    stuck = {**dict.fromkeys(("e1", "e2", "e3", "e4"), out), "e5": serves}
    rollout = put(world, "ams1", "rolled_back", quarantined=stuck)
    row, more, helps, *_ = lines(world)
    told = "QUARANTINED e1, e2, e3 and 2 more (NOT seen out of service: e5); rolled"
    assert told in f"{row} {more.strip()}"
    assert helps == f"  once mended: st2 run edgetune.roll_back_pop rollout={rollout}"


@pytest.mark.parametrize(
    ("began", "sampled", "says"),
    [
        (4, None, ""),
        (9, None, "NO SAMPLE; "),
        (9, 1, ""),
        (90, 80, "NO SAMPLE for 1h20m; "),
        (1, 80, ""),
    ],
)
def test_a_pop_that_nobody_samples(
    world: EmptyWorld, tmp_path: Path, began: float, sampled: float | None, says: str
) -> None:
    made = plan(tmp_path, interval=15)
    save_plan(world.context, made)
    put(world, "lab1", "baseline", began, plan=made.digest)
    if sampled is not None:
        at = time.time() - 60 * sampled
        world.context.samples.add("lab1", [reading("e001", at)])
    assert lines(world)[0].startswith(f"lab1  nic_ring  {says}baseline")
    # A source that is away hides no other PoP.
    put(world, "ams1", "baseline", 9, plan=made.digest)
    lost = {"ams1": "prometheus of ams1: does not answer"}
    world.context.samples.newest_known = lambda pops: ({}, lost)
    told = lines(world)
    assert "When hosts were sampled is not known: prometheus of ams1: does not answer." in told
    assert sum("NO SAMPLE" in line for line in told) == (began > 5)


def test_samples_that_are_away_are_not_samples_that_are_old(beside: EmptyWorld) -> None:
    class Away:
        def newest_known(self, pops: list[str]) -> None:
            raise StoreError("Redis: is away")

    beside.context.samples = Away()
    assert lines(beside) == [
        "When hosts were sampled is not known: Redis: is away.",
        GOES_ON,
    ]


class TestSoaks:
    def test_before_a_look_of_its_own_there_is_no_verdict(self, tmp_path: Path) -> None:
        world = Soaking(tmp_path)
        world.soak(test=3.0, began=100)
        assert "soaking for 0s: look 1 of 4 in " in world.status()
        assert "so far" not in world.status()
        # That of an earlier soak.
        world.keep("verdict", concluded("hold"))
        assert "so far" not in world.status()
        world.set_head(looks=1, first_look=1)
        assert "so far" not in world.status()

    def test_a_look_that_nobody_takes_is_overdue(self, tmp_path: Path) -> None:
        world = Soaking(tmp_path)
        world.soak(test=3.0, began=2000)
        line, helps, *_ = lines(world)
        assert line.startswith("lab1  accept_queue  OVERDUE for ")
        assert helps == f"  go on:      st2 run edgetune.advance_rollout rollout={world.rollout}"

    def test_a_decision_is_told_before_somebody_acts_on_it(self, tmp_path: Path) -> None:
        world = Soaking(tmp_path)
        world.soak(test=3.0, began=610)
        world.run("compare_groups")
        told = world.head.verdict
        assert told is not None and told.decision != "wait"
        assert f"decided: {told.decision}" in world.status()


def test_a_part_that_cannot_be_read_hides_no_other_pop(beside: EmptyWorld) -> None:
    put(beside, "ams1", "changing")
    first, *others = lines(beside)
    assert first.startswith("ams1  nic_ring      NOT KNOWN: there is no plan")
    assert GOES_ON in others


class TestNames:
    def test_a_pop_stands_for_what_is_under_way_on_it(self, beside: EmptyWorld) -> None:
        put(beside, "lab1", "complete")
        for asked in ({"rollout": "lab1"}, {"pop": "lab1"}):
            told = beside.status(**asked)
            assert told.startswith(f"{beside.rollout}  accept_queue on lab1: changing\n")
            assert "  now: changing: batch 1 of 4, 0 hosts out: beginning\n" in told
            assert told.endswith(f"1 ended rollout more: {MORE} pop=lab1 with_ended=true")
            both = beside.status(**asked, with_ended=True)
            assert f"lab1-{STAMP}  nic_ring on lab1: complete" in both
        # In full, however few lines are wanted.
        whole = beside.status(rollout=beside.rollout)
        assert beside.status(rollout=beside.rollout, lines=1) == whole

    def test_a_pop_with_nothing_under_way_shows_its_last_rollout(self, world: EmptyWorld) -> None:
        rollout = put(world, "lab1", "complete")
        assert world.status(rollout="lab1").startswith(f"{rollout}  nic_ring on lab1: complete")
        for name in ("lab9", f"lab9-{STAMP}", "; rm", "a\nb"):
            with pytest.raises(InputError, match="parameter: rollout: there is no rollout"):
                world.status(rollout=name)

    def test_long_names_fit(self, world: EmptyWorld) -> None:
        put(world, "p" * 63, "claimed", 0, tuning="t" * 63)
        put(world, "q", "claimed", 0)
        told = lines(world)
        assert max(map(len, told)) <= WIDTH
        assert "q" + " " * 21 + "nic_ring" + " " * 14 + "claimed for 0s" in told


def test_a_text_of_a_stranger_begins_no_line(world: EmptyWorld) -> None:
    told = "x\nams1  nic_ring  complete"
    world.run("pause_pop", "lab1", reason=told, requested_by="ana")
    put(world, "ams1", "held", verdict=concluded("hold", reason="y\n2026-01-01 \x1b[31m"))
    assert all(line.startswith(("lab1 ", "ams1  nic_ring  HELD", " ")) for line in lines(world))
    assert "\x1b" not in world.status()


def test_of_300_pops_the_first_are_shown_and_the_others_counted(world: EmptyWorld) -> None:
    for number in range(300):
        put(world, f"pop{number:03d}", "claimed" if number % 50 else "held", 0)
    told = lines(world, lines=10)
    first = [*(f"pop{number:03d}" for number in range(0, 300, 50)), "pop001"]
    assert (len(told), [line.split()[0] for line in told[:7]]) == (10, first)
    assert told[9] == f"... and 291 more: {MORE}"
    assert max(map(len, told)) <= WIDTH
    assert len(lines(world)) == 300 + 2 * 6


def test_commands_are_shown_where_there_is_room(world: EmptyWorld) -> None:
    for number in range(3):
        put(world, f"pop{number}", "held", 0)
    assert len(lines(world, lines=10)) == 9
    put(world, "pop3", "held", 0)
    told = lines(world, lines=10)
    assert [line.split()[0] for line in told] == ["pop0", "pop1", "pop2", "pop3", "..."]
    assert told[4] == f"... the commands that help: {MORE}"


WORDS = st.text(st.sampled_from("abc \n"), max_size=150)
ENTRIES = st.builds(
    Entry,
    st.sampled_from(["a", "lab1", "p" * 63]),
    st.sampled_from(["", "nic_ring", "t" * 63]),
    st.text(st.sampled_from("ab "), min_size=1, max_size=120),
    st.lists(
        st.builds(Need, st.sampled_from(Urgency), WORDS, st.just({"carry on": "st2 run x"})),
        max_size=3,
    ),
)


@given(st.lists(ENTRIES, max_size=30), st.integers(2, 12))
def test_no_line_is_cut_and_none_is_lost(entries: list[Entry], most: int) -> None:
    found = [*blocks(entries, WIDTH), block("No rollouts.")]
    lines = shown(found, MORE, most)
    assert len(lines) <= most
    left = lines[-1].split()[2] if lines[-1].startswith("... and ") else "0"
    begun = [line for line in lines if line[:1] not in (" ", ".")]
    assert len(begun) + int(left) == len(found)
    assert all(len(line) <= WIDTH or " " not in line.strip() for own in found for line in own.told)


def test_each_need_is_told_in_words_that_have_colour() -> None:
    """A word that is renamed would lose it."""
    source = inspect.getsource(needs)
    texts = re.findall(r'"((?:[A-Z]{4,}|NO [A-Z]+|NOT KNOWN)[^"]*)"', source)
    assert len(texts) >= 7
    assert [text for text in texts if not ATTENTION.match(text)] == []
