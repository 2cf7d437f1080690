# SPDX-License-Identifier: Apache-2.0
"""All rollouts at a glance: what needs a person first; what is absent is not taken for zero."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.base import clock
from edgetune.base.documents.head import Quarantine, head_key
from edgetune.base.errors import InputError
from edgetune.report.findings import WIDTH
from edgetune.report.headline import ATTENTION
from edgetune.report.steps.rollout_status import block, blocks, first_of
from edgetune.rollout.record.rollout import save_plan
from edgetune.rollout.status import overview
from edgetune.rollout.status.overview import Entry, Need, Urgency
from tests.support.builders import concluded, plan, reading
from tests.support.exported import STAMP
from tests.support.exported import put_one as put
from tests.support.world import EmptyWorld, changing

pytestmark = pytest.mark.usefixtures("clock")

MORE = "st2 run edgetune.rollout_status"
GOES_ON = "lab1  accept_queue  changing for 0s: batch 1 of 4, 0 hosts out"


def lines(world: EmptyWorld, **given: Any) -> list[str]:
    return world.status(**given).splitlines()


@pytest.fixture
def world(tmp_path: Path) -> EmptyWorld:
    return EmptyWorld(tmp_path)


def test_what_needs_a_person_comes_first(tmp_path: Path) -> None:
    """A rollout is changing the first hosts of lab1."""
    world = changing(tmp_path / "beside")
    assert world.status() == GOES_ON
    stuck = {"e003": Quarantine("not as before", out_of_service=True)}
    doubted = "Test hosts dropped 99 % fewer connections than control; but too few events"
    put(world, "a1", "complete")
    put(world, "b1", "held", 4, verdict=concluded("hold", "inconclusive", doubted))
    put(world, "c1", "rolled_back", quarantined=stuck)
    put(world, "d1", "claimed", minutes=0, owned=False)
    world.context.store.put(head_key(f"e1-{STAMP}"), "{")
    world.run("pause_pop", "lab1", reason="peak", requested_by="ana")
    found = lines(world, ended=["run-1"])
    told = [line for line in found if not line.startswith("  ")]
    assert [line.split()[0] for line in told] == ["d1", "lab1", "c1", "b1", "e1", "a1", "Ended"]
    assert told[1] == "lab1  accept_queue  NO OWNER; PAUSED (asked, by ana: peak); changing for 0s:"
    assert told[2] == "c1    nic_ring      QUARANTINED e003: not as before; rolled back 5m ago"
    assert told[3] == "b1    nic_ring      HELD for 4m, inconclusive: too few events"
    assert told[4].startswith(f"e1                  DAMAGED: edgetune.rollout.e1-{STAMP} is")
    assert told[6] == f"Ended rollouts: {MORE} with_ended=true"
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


FEWER = replace(concluded("promote", "improved"), metric="listen_drops", ratio=0.03)


def test_what_stands_is_told_with_its_effect_and_since_when(tmp_path: Path) -> None:
    """Of what changes hosts again, or is taken back, nothing stands."""
    world = changing(tmp_path)
    put(world, "a1", "complete", 90, tuning="accept_queue", verdict=FEWER, stamp=STAMP)
    put(world, "a1", "complete", 30, stamp=STAMP.replace("1007", "1107"))
    put(world, "b1", "rolled_back", verdict=FEWER)
    found = world.run("rollout_status", rollout="")
    assert found["text"].splitlines()[:2] == [
        GOES_ON,
        "a1  accept_queue stands for 1h30m (listen_drops −97 %); nic_ring stands for 30m",
    ]
    first, second = found["standing"]
    assert (first["tuning"], first["metric"], first["ratio"]) == (
        "accept_queue",
        "listen_drops",
        0.03,
    )
    assert (second["rollout"], second["ratio"]) == (f"a1-{STAMP.replace('1007', '1107')}", None)
    assert "Nothing stands on lab1." in lines(world, fleet=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "lab1  DAMAGED: "),
        ('{"schema": 99, "state": "changing"}', "lab1  DAMAGED: "),
        (
            '{"schema": 99, "state": "complete"}',
            "lab1  something (its record cannot be read) stands",
        ),
        ('{"schema": 99, "state": "rolled_back"}', "Nothing stands on lab1."),
    ],
)
def test_by_a_record_that_cannot_be_read_a_tuning_may_stand(
    world: EmptyWorld, text: str, says: str
) -> None:
    world.context.store.put(head_key(f"lab1-{STAMP}"), text)
    told = lines(world, fleet=True)
    assert any(line.startswith(says) for line in told), told
    assert ("Nothing stands on lab1." in told) == says.startswith("Nothing")


def test_on_many_pops_what_stands_is_counted_unless_the_fleet_is_asked_for(
    world: EmptyWorld,
) -> None:
    for number in range(6):
        put(world, f"a{number}", "complete", verdict=FEWER)
    put(world, "a0", "complete", tuning="accept_queue", stamp=STAMP.replace("1007", "1107"))
    assert lines(world)[1:3] == [
        "Stands: nic_ring on 6 PoPs, accept_queue on 1 PoP",
        f"  on which:   {MORE} fleet=true",
    ]
    told = lines(world, fleet=True)
    assert told[2] == "a1  nic_ring stands for 5m (listen_drops −97 %)"
    assert told[7] == "Nothing stands on lab1."
    # The command shows what is left out.
    *_, more, _ = lines(world, fleet=True, lines=4)
    assert more == f"... and 6 more: {MORE} fleet=true"
    assert not any("stands" in line.lower() for line in lines(world, state="complete"))


@pytest.mark.parametrize("beside", [{"pop": "lab1"}, {"state": "held"}, {"orphaned": True}])
def test_the_fleet_is_all_of_it(world: EmptyWorld, beside: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="fleet.*: shows all PoPs"):
        world.run("rollout_status", fleet=True, **beside)


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
        at = clock.wall() - 60 * sampled
        world.context.samples.add("lab1", [reading("e001", at)])
    assert lines(world)[0].startswith(f"lab1  nic_ring  {says}baseline")
    # A source that is away hides no other PoP.
    put(world, "ams1", "baseline", 9, plan=made.digest)
    lost = {"ams1": "prometheus of ams1: does not answer"}
    world.context.samples.newest_known = lambda pops: ({}, lost)
    told = lines(world)
    assert "When hosts were sampled is not known: prometheus of ams1: does not answer." in told
    assert sum("NO SAMPLE" in line for line in told) == (began > 5)


def test_long_names_fit(world: EmptyWorld) -> None:
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
    lines = first_of(found, MORE, most)
    assert len(lines) <= most
    left = lines[-1].split()[2] if lines[-1].startswith("... and ") else "0"
    begun = [line for line in lines if line[:1] not in (" ", ".")]
    assert len(begun) + int(left) == len(found)
    assert all(len(line) <= WIDTH or " " not in line.strip() for own in found for line in own.told)


def test_each_need_is_told_in_words_that_have_colour() -> None:
    """A word that is renamed would lose it."""
    source = inspect.getsource(overview)
    texts = re.findall(r'"((?:[A-Z]{4,}|NO [A-Z]+|NOT KNOWN)[^"]*)"', source)
    assert len(texts) >= 7
    assert [text for text in texts if not ATTENTION.match(text)] == []
