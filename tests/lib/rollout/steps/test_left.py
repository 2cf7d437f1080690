# SPDX-License-Identifier: Apache-2.0
"""What status says of rollouts whose workflow is gone: the hosts that are out, and the ways out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgetune.base.documents.head import Head
from edgetune.report.text import left_text
from edgetune.rollout.record.rollout import out_of_service, read_rollout
from tests.support.world import World, changing

pytestmark = pytest.mark.usefixtures("clock")


def left(world: World) -> list[str]:
    """Hosts that are out of service by the record."""
    return out_of_service(read_rollout(world.context, world.rollout).batches())


@pytest.mark.slow
def test_at_every_moment_the_record_names_the_hosts_that_are_out(tmp_path: Path) -> None:
    world, looks, missed = changing(tmp_path), [], []

    def look(moment: str) -> None:
        out = {name for name, state in world.balancer.state.items() if state != "ready"}
        looks.append(len(out))
        missed.extend((moment, name) for name in out - set(left(world)))

    world.moments.at = look
    world.roll_all(world.mark("changing"))
    world.moments.at = lambda moment: None
    assert left(world) == []
    world.moments.at = look
    world.roll_back()
    assert missed == []
    assert max(looks) >= 1
    assert left(world) == []


def test_a_rollback_is_carried_on_by_a_rollback() -> None:
    head = Head("r", "p", "t", "", "rolling_back", 1, "", "", 0.0)
    text = left_text(head, ["e000"])
    assert "t on p: rolling back\n" in text and "carry on" not in text
    assert text.endswith("roll_back_pop rollout=r")


@pytest.mark.parametrize("hosts", [0, 1, 12, 5000])
def test_a_terminal_of_80_columns_and_24_lines_shows_all_of_it(hosts: int) -> None:
    name = "edge-{:05d}.pop-amsterdam-12.example.net"
    id = "ams12-20261122T123456-abcd"
    text = left_text(
        Head(id, "ams12", "accept_queue", "", "changing", 1, "", "", 0.0),
        [name.format(number) for number in range(hosts)],
    )
    lines = text.splitlines()
    assert len(lines) <= 22
    assert max(map(len, lines)) < 80
    assert len(re.findall(r"rollout=ams12-20261122T123456-abcd$", text, re.MULTILINE)) == 2


def test_the_local_runner_names_its_own_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGETUNE_RUN", "edgetune run ")
    head = Head("r", "p", "t", "", "changing", 1, "", "", 0.0)
    assert "carry on:   edgetune run rollout_pop rollout=r" in left_text(head, None)
    assert "not known, its record cannot be read" in left_text(head, None)
