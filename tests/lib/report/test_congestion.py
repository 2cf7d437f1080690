# SPDX-License-Identifier: Apache-2.0
"""What people read of a PoP whose congestion control is tuned."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from edgetune.base.documents.congestion import ROUND, Chosen, Configuration, PrefixEffect, Treated
from edgetune.base.documents.rounds import (
    Decisions,
    HostHas,
    Levels,
    LookTaken,
    RoundRow,
    Rounds,
    read_decisions,
    read_rounds,
)
from edgetune.base.errors import DamagedError
from edgetune.report.congestion import (
    CongestionMaterial,
    color_of_congestion,
    congestion_page,
    congestion_text,
    new_prefixes,
    overview_text,
    state_text,
)
from tests.lib.report.test_report import TAGS, Reader, said
from tests.support.hostile import HOSTILE

FIRST = 5_880_000
NOW = FIRST * ROUND + 90.0
HOSTS = ("e000", "e001", "e002")

BETTER = PrefixEffect("delivery_rate", 12, 8, 1.95, (1.4, 2.9), 0.001, 0.999, 0.007)
TOO_FEW = PrefixEffect("retransmits", 12, 3, alpha=0.007)


def one(prefix: str, since: int = FIRST - 3, **more: Any) -> Chosen:
    told: dict[str, Any] = {"held_out": False, "duty": 0.9, "flaps": 0.05, "initcwnd": 0}
    return Chosen(prefix, since, **{**told, "has_window": False, "before": [9.0, -4.0], **more})


CHOSEN = (
    one("203.0.113.0/24"),
    one("2001:db8:1234:5600::/56", FIRST - 2, initcwnd=24, has_window=True),
    one("198.51.100.0/24", held_out=True),
)
CONFIGURATION = Configuration(
    "lab1", 7, "bbr", 3600, [Treated("203.0.113.0/24"), Treated("2001:db8:1234:5600::/56", 24)]
).sealed()


def material(**more: Any) -> CongestionMaterial:
    has = HostHas(7, CONFIGURATION.checksum, NOW - 60)
    levels = {"delivery_rate": Levels([1e5, 2e5], [5e4, 6e4])}
    decisions = Decisions("lab1", "salt", number=7)
    decisions.looked(LookTaken(FIRST - 1, NOW - 600, [BETTER, TOO_FEW], [TOO_FEW]))
    rounds = Rounds(
        "lab1",
        configuration=CONFIGURATION,
        since=NOW - 1500,
        confirmed=NOW - 60,
        hosts={"e000": has, "e001": has, "e002": HostHas(6, "", NOW - 400, "timed out")},
        rows=[RoundRow(FIRST - 2, 40, 2, 2, 0), RoundRow(FIRST - 1, 41, 3, 1, 0, levels)],
    )
    own = CongestionMaterial("lab1", True, HOSTS, decisions, rounds, CHOSEN, [], NOW)
    return replace(own, **more)


def test_what_hosts_were_not_told_of_is_not_said_to_be_treated() -> None:
    more = one("192.0.2.0/24", FIRST - 1, initcwnd=30, has_window=True)
    text = congestion_text(material(chosen=(*CHOSEN, more)))
    assert "2 prefixes treated, 1 prefix chosen but not treated, 1 held out" in text
    (line,) = (line for line in text.splitlines() if "192.0.2.0/24" in line)
    assert line.endswith("  not treated")


def test_what_was_taken_back_is_not_said_to_be_treated() -> None:
    before = material()
    back = replace(before, rounds=replace(before.rounds, configuration=None))
    back.decisions.become("rolled_back", "calls", "ana")  # type: ignore[union-attr]
    text, page = congestion_text(back), said(congestion_page(back))
    assert "2 prefixes chosen but not treated, 1 held out" in text
    assert text.count("not treated") == 3 and "treated, window" not in text
    assert page.count("not treated") == 2 and "None is treated now." in page
    assert "None is treated now." not in said(congestion_page(before))


def test_a_pop_is_told_in_full() -> None:
    text = congestion_text(material())
    assert text.startswith("lab1: tuning, 2 prefixes treated on 2 of 3 hosts\n")
    for told in (
        f"configuration 7 ({CONFIGURATION.checksum}), bbr, 25m old, confirmed 1m ago",
        "not on     e002: timed out",
        "41 prefixes measured, 3 chosen, 1 new, 0 let go",
        "+95 % (+40 % to +190 %), p 0.001: better",
        "too few to compare: 12 against 3 prefixes",
        "delivery rate     treated 0.8 and 1.6, held out 0.4 and 0.48 Mbit/s",
        "2 prefixes treated, 1 held out",
        "st2 run edgetune.roll_back_congestion pop=lab1",
    ):
        assert told in text or told in " ".join(text.split()), told
    rows = [line.split() for line in text.splitlines() if "/24" in line or "/56" in line]
    # The newest first.
    assert rows[0] == [
        "2001:db8:1234:5600::/56",
        *("2025-11-24", "15:50Z", "90%", "5%", "treated,", "window", "24"),
    ]
    assert rows[-1][-2:] in (["held", "out"], ["5%", "treated"])
    assert max(map(len, text.splitlines())) < 80


@pytest.mark.parametrize(
    ("change", "says", "color"),
    [
        ({"decisions": None, "rounds": Rounds("lab1"), "chosen": ()}, "no round yet", ""),
        (
            {"decisions": None, "rounds": Rounds("lab1"), "chosen": (), "entry": False},
            "not tuned",
            "",
        ),
        ({"rounds": Rounds("lab1"), "chosen": ()}, "tuning, nothing is treated yet", "good"),
        ({}, "tuning, 2 prefixes treated on 2 of 3 hosts", "warning"),
        ({"hosts": HOSTS[:2]}, "tuning, 2 prefixes treated on 2 of 2 hosts", "good"),
        # Nobody renewed it, so hosts have taken it back.
        ({"made": NOW + 4000}, "tuning, 2 prefixes treated on 0 of 3 hosts", "warning"),
    ],
)
def test_how_a_pop_stands(change: dict[str, Any], says: str, color: str) -> None:
    own = material(**change)
    assert state_text(own) == says and color_of_congestion(own) == color
    assert says in said(congestion_page(own)) and congestion_text(own)


def test_a_rollback_tells_by_whom_why_and_what_is_left() -> None:
    own = material()
    assert own.decisions
    own.decisions.become("rolled_back", "calls from customers", "ana")
    own.decisions.pending = ["e002"]
    text = congestion_text(own)
    assert "by ana: calls from customers, not yet on 1 hosts" in " ".join(text.split())
    assert "st2 run edgetune.resume_congestion pop=lab1" in text
    assert color_of_congestion(own) == "danger"
    assert "rolled back" in said(congestion_page(own))


def test_the_page_is_green_only_where_all_is_well() -> None:
    text = said(congestion_page(material()))
    for told in (
        "203.0.113.0/24 2025-11-24 15:45Z 90 % 5 % treated",
        "198.51.100.0/24 2025-11-24 15:45Z 90 % 5 % held out",
        "delivery rate 0.8 and 1.6 0.4 and 0.48",
        "e000 yes",
        "e002 no timed out",
    ):
        assert told in text, told
    has = HostHas(7, CONFIGURATION.checksum, NOW - 60)
    well = replace(material().rounds, hosts=dict.fromkeys(HOSTS, has))
    assert '<b class="pill improved">tuning' in congestion_page(material(rounds=well))
    assert '<b class="pill inconclusive">tuning' in congestion_page(material())
    skipped = {"203.0.113.0/24": "somebody else has a route to it"}
    for more in ({"problem": "half a round"}, {"waits": "lab1 is paused"}, {"skipped": skipped}):
        page = congestion_page(material(rounds=replace(well, **more)))
        assert ('<b class="pill inconclusive">tuning' in page) is ("skipped" not in more)
    assert "treated, but not on some host: somebody else has a route to it" in page
    # The hold-out has no part in the comparison of windows.
    assert page.count("drawn at random, are held out") == 1
    wide, narrow = new_prefixes(material().rounds.rows)
    assert len(wide.bars) == len(narrow.bars) == 2
    heights = [height for _, _, height in wide.bars]
    assert heights[0] == pytest.approx(2 * heights[1], rel=0.02)
    assert new_prefixes([]) == []


def test_pops_without_an_entry_are_none() -> None:
    assert overview_text([]) == "No PoP has congestion: in the inventory."
    rounds = replace(material().rounds, problem="its source is away")
    text = overview_text([material(), material(rounds=rounds)])
    assert text.splitlines()[1:] == [
        "lab1  tuning, 2 prefixes treated on 2 of 3 hosts",
        "    its source is away",
    ]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_texts_are_only_shown(text: str) -> None:
    own = material()
    assert own.decisions
    own.decisions.become("rolled_back", text, text)
    own.decisions.windows_off = text
    rounds = replace(own.rounds, problem=text, waits=text, skipped={"203.0.113.0/24": text})
    rounds.hosts["e002"].error = text
    own = replace(own, rounds=rounds, missing=[text])
    read = Reader(congestion_page(own))
    assert read.tags <= TAGS
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    # No text begins a line that looks like one of ours.
    lines = congestion_text(own).splitlines()
    assert len([line for line in lines if line.startswith("lab1: ")]) == 1
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\x9b]", "\n".join(lines))
    assert congestion_text(own) and overview_text([own])


def test_what_is_stored_is_read_back_unless_it_was_changed_in_the_store() -> None:
    own = material()
    assert own.decisions
    assert read_decisions("lab1", own.decisions.document()) == own.decisions
    assert read_rounds("lab1", own.rounds.document()) == own.rounds
    text = own.rounds.document().replace("203.0.113.0/24", "0.0.0.0/0", 1)
    with pytest.raises(DamagedError, match="configuration: has another checksum"):
        read_rounds("lab1", text)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"lab1"', '"lab2"', "pop: is another one"),
        ('"tuning"', '"well"', "state: is none of tuning, rolled_back"),
        ('"salt": "salt"', '"salt": ""', "salt: is empty"),
        ('"number": 7', '"number": -1', "number: is negative"),
        ('"number": 7', '"number": "7"', "number: must be a whole number"),
        ('"schema": 1', '"schema": 9', "schema: is none of ours"),
    ],
)
def test_damaged_decisions_are_named(old: str, new: str, says: str) -> None:
    own = material().decisions
    assert own
    with pytest.raises(
        DamagedError, match=re.escape(f"edgetune.congestion.lab1 is damaged: {says}")
    ):
        read_decisions("lab1", own.document().replace(old, new, 1))


def test_what_is_kept_is_bounded() -> None:
    decisions, rounds = Decisions("lab1", "salt"), Rounds("lab1")
    for number in range(1000):
        decisions.note(f"{number}")
        decisions.looked(LookTaken(number, 0.0, [BETTER], []))
        rounds.add(RoundRow(number, 1, 1, 1, 1))
    assert (len(decisions.history), len(decisions.looks), len(rounds.rows)) == (100, 14, 576)
    assert decisions.history[-1].what == "999" and rounds.rows[-1].round == 999
