# SPDX-License-Identifier: Apache-2.0
"""What the hosts of a PoP say is wrong with them, put together; and the text of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgetune.base.names import hosts_text
from edgetune.report.answers import text_of
from edgetune.report.findings import TICKET
from edgetune.rollout.context import Context
from edgetune.rollout.steps.diagnose_hosts import diagnose_hosts
from edgetune.rollout.steps.plan_rollout import plan_rollout
from tests.support.virtual_clock import VirtualClock
from tests.support.world import EmptyWorld

HOSTS = [f"e{i:03d}" for i in range(8)]


def found(
    name: str, value: float, tuning: str | None = None, severity: str = "", what: str = ""
) -> dict[str, Any]:
    """A finding as an agent answers it."""
    return {
        "finding": name,
        "severity": severity or ("helps" if tuning else "note"),
        "what": what or f"{name} is {value}",
        "measure": "rate",
        "numbers": {"rate": value, "other": 1},
        "tuning": tuning,
    }


@pytest.fixture
def world(tmp_path: Path) -> EmptyWorld:
    return EmptyWorld(tmp_path)


@pytest.fixture
def context(world: EmptyWorld) -> Context:
    return world.context


def test_like_findings_are_one_row_with_the_worst_host(world: EmptyWorld, context: Context) -> None:
    for host, value in zip(HOSTS, (3.0, 1.0, 9.0)):
        world.hosts.found[host] = [found("ring_overflow", value, "nic_ring")]
    (row,) = diagnose_hosts(context, "lab1")["findings"]
    numbers = {"rate": 9.0, "other": 1}
    assert row == {
        **{"finding": "ring_overflow", "severity": "helps", "tuning": "nic_ring", "count": 3},
        **{"hosts": HOSTS[:3], "measure": "rate", "median": 3.0},
        "worst": {"host": "e002", "what": "ring_overflow is 9.0", "numbers": numbers},
    }
    # A host with two cards counts once; what measures another thing is another finding.
    other = {**found("x", 5.0), "measure": "y", "numbers": {"y": 5.0}}
    world.hosts.found = {"e000": [found("x", 1.0), found("x", 5.0)], "e001": [other]}
    rows = diagnose_hosts(context, "lab1")["findings"]
    told = {(row["measure"], row["count"], row["median"], row["worst"]["host"]) for row in rows}
    assert told == {("rate", 1, 3.0, "e000"), ("y", 1, 5.0, "e001")}


def test_the_hardest_and_most_frequent_come_first(world: EmptyWorld, context: Context) -> None:
    for count, row in enumerate(
        (
            found("a", 1.0),
            found("b", 1.0, None, "conflict"),
            found("c", 1.0, "accept_queue"),
            found("d", 1.0, "nic_ring"),
            found("e", 1.0, "nic_ring"),
        )
    ):
        for host in HOSTS[: 2 if row["finding"] == "e" else count + 1]:
            world.hosts.found.setdefault(host, []).append(row)
    rows = diagnose_hosts(context, "lab1")["findings"]
    assert [(row["finding"], row["count"]) for row in rows] == [
        ("d", 4),
        ("c", 3),
        ("e", 2),
        ("b", 2),
        ("a", 1),
    ]


def test_which_tunings_would_help_where(world: EmptyWorld, context: Context) -> None:
    queue, ring = found("queue", 1.0, "accept_queue"), found("ring", 2.0, "nic_ring")
    world.hosts.found = {host: [queue] for host in HOSTS}
    world.hosts.found["e007"] = [queue, ring, found("more", 1.0, "nic_ring")]
    world.hosts.found["e006"] = [found("foreign", 1.0, "of_nobody")]
    world.hosts.tuned = {"e000", "e001"}
    rows = diagnose_hosts(context, "lab1")["tunings"]
    assert [(row["tuning"], row["findings"]) for row in rows] == [
        ("accept_queue", ["queue"]),
        ("of_nobody", ["foreign"]),
        ("nic_ring", ["ring", "more"]),
    ]
    assert rows[0]["hosts"] == ["e002", "e003", "e004", "e005", "e007"]
    assert rows[0]["stands"] == ["e000", "e001"]
    assert [row["known"] for row in rows] == [True, False, True]


def test_a_tuning_is_proposed_for_the_system_that_it_would_help(
    world: EmptyWorld, context: Context
) -> None:
    """Also on the hosts with that system which it would not help, and not on silent ones."""
    world.hosts.systems = dict.fromkeys(HOSTS[5:], "freebsd")
    world.hosts.found = {host: [found("queue", 1.0, "accept_queue")] for host in HOSTS[:3]}
    world.hosts.unreachable = {"e004"}
    told = diagnose_hosts(context, "lab1")
    assert told["tunings"][0]["only"] == ["e000", "e001", "e002", "e003"]
    assert text_of(told["text"]).endswith("tuning=accept_queue only=e000,e001,e002,e003")
    only = told["tunings"][0]["only"]
    unsure = {"alpha_benefit": 0.2, "alpha_harm": 0.2}
    world.hosts.unreachable = set()
    made = plan_rollout(context, "lab1", "accept_queue", only=only, **unsure)
    assert sorted(made["test"] + made["control"]) == only
    world.hosts.found["e007"] = [found("queue", 1.0, "accept_queue")]
    told = diagnose_hosts(context, "lab1")
    assert told["tunings"][0]["only"] == []
    assert text_of(told["text"]).endswith("tuning=accept_queue")


def test_racks_name_the_hosts_of_one_system(tmp_path: Path) -> None:
    world = EmptyWorld(tmp_path)
    inventory = tmp_path / "inventory.yaml"
    world.hosts.systems = {"e000": "freebsd", "e004": "freebsd"}
    world.hosts.found = {"e001": [found("queue", 1.0, "accept_queue")]}
    text = inventory.read_text()
    for name, rack in (("e000", "r0"), ("e001", "r1"), ("e002", "r1"), ("e003", "r0")):
        assert f"      {name}:\n" in text
        text = text.replace(f"      {name}:\n", f"      {name}:\n        rack: {rack}\n")
    inventory.write_text(text)
    (row,) = diagnose_hosts(world.context, "lab1")["tunings"]
    assert row["only"] == ["e003", "e005", "e006", "e007", "r1"]


def test_the_text(world: EmptyWorld, context: Context, clock: VirtualClock) -> None:
    clock.set_to(1795243200.0)
    for index, host in enumerate(HOSTS[:5]):
        world.hosts.found[host] = [
            found("ring_overflow", 100.0 * index + 7, "nic_ring", what="eth0 drops"),
            found("irqbalance", 0.0, what="irqbalance runs"),
        ]
    world.hosts.found["e004"].append(found("queue", 0.25, "accept_queue", what="it is full"))
    world.hosts.found["e004"].append(found("tuned", 1.0, None, "conflict", "tuned runs"))
    world.hosts.unread = dict.fromkeys(HOSTS[:7], ["ethtool -x eth0: not supported"])
    world.hosts.unreachable = {"e007"}
    world.hosts.tuned = {"e004"}
    assert text_of(diagnose_hosts(context, "lab1")["text"]) == (
        """\
Diagnosis of lab1, 2026-11-21 06:40:00Z: 7 of 8 hosts answered. Rates are of the 5s between two \
looks.

A tuning would help
  5 of 7  ring_overflow -> nic_ring  rate  worst  407  median  207
          on e000..e004; worst e004: eth0 drops
  1 of 7  queue -> accept_queue      rate  worst 0.25  median 0.25
          e004: it is full

Works against tunings
  1 of 7  tuned
          e004: tuned runs

Worth knowing
  5 of 7  irqbalance
          on e000..e004; worst e000: irqbalance runs

Not read
  e000..e006: ethtool -x eth0: not supported

No answer
  e007: timed out

Tunings
  nic_ring      5 hosts  ring_overflow
  accept_queue  0 hosts  queue; stands already on e004

Next
  st2 run edgetune.plan_rollout pop=lab1 tuning=nic_ring"""
    )


def test_what_a_host_writes_cannot_break_the_text(world: EmptyWorld, context: Context) -> None:
    evil = "a\x1b[31m\r\nb ``` c\u2028 " + "word " * 200
    world.hosts.found["e000"] = [found("x", 1.0, what=evil)]
    world.hosts.unread["e000"] = [evil]
    world.hosts.errors["e001", "diagnose"] = evil
    text = text_of(diagnose_hosts(context, "lab1")["text"])
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "```" not in text
    assert max(map(len, text.splitlines())) <= TICKET + 5
    assert len(text) < 3000


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], ""),
        (["e001"], "e001"),
        (["e001", "e002"], "e001, e002"),
        (["e003", "e001", "e002"], "e001..e003"),
        (["e008", "e009", "e010", "e011"], "e008..e011"),
        (["ams1-e1", "ams1-e2", "ams1-e3", "fra1-e4"], "ams1-e1..ams1-e3, fra1-e4"),
        (["a", "b", "c"], "a, b, c"),
        (
            [f"e{2 * i:03d}" for i in range(10)],
            ", ".join(f"e{2 * i:03d}" for i in range(8)) + " and 2 more",
        ),
    ],
)
def test_names_of_hosts(names: list[str], expected: str) -> None:
    assert hosts_text(names) == expected
