# SPDX-License-Identifier: Apache-2.0
"""PoPs whose hosts have another operating system than Linux, or several."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from edgetune.documents.options import Options
from edgetune.errors import InputError, RefusedError
from edgetune.rollout.planning import make_for, plan_and_notes
from edgetune.rollout.steps.doctor_pop import doctor_pop
from edgetune.rollout.steps.plan_rollout import plan_rollout
from tests.support.world import EmptyWorld


@pytest.fixture
def world(tmp_path: Path) -> EmptyWorld:
    return EmptyWorld(tmp_path)


def _plan(world: EmptyWorld, **options: Any) -> dict[str, Any]:
    return plan_rollout(world.context, "lab1", "accept_queue", **options)


def test_an_operating_system_that_nobody_has_tried_is_told_beside_the_plan(
    world: EmptyWorld,
) -> None:
    assert "experimental" not in _plan(world)["text"]
    assert "systems" not in doctor_pop(world.context, "lab1")["text"]
    world.hosts.systems = {"e001": "freebsd", "e002": "freebsd"}
    told = "FreeBSD is experimental: no real host ran this yet"
    assert f"e001, e002: {told}" in " ".join(_plan(world)["text"].split())
    assert told in " ".join(doctor_pop(world.context, "lab1")["text"].replace("|", "").split())
    assert doctor_pop(world.context, "lab1")["failed"] == ["systems"]


def test_a_doctor_that_cannot_ask_hosts_tells_that_and_goes_on(
    world: EmptyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise InputError("edgetune.yaml", "ssh_key_file", "cannot be read")

    monkeypatch.setattr(world.hosts, "ask", refuse)
    told = doctor_pop(world.context, "lab1")
    assert "hosts" in told["failed"] and "systems" not in told["failed"]


def test_hosts_with_different_systems_are_never_compared(world: EmptyWorld) -> None:
    """Also where a PoP is too small for strata of kernels."""
    world.hosts.systems = {"e001": "freebsd", "e002": "freebsd"}
    world.hosts.kernels = {f"e{number:03d}": f"6.1.0-{number}" for number in range(8)}
    made = make_for(
        world.context, "lab1", "accept_queue", Options(alpha_harm=0.04, alpha_benefit=0.04, seed=1)
    )
    assert list(made.strata) == ["lab, FreeBSD", "lab, Linux"] and made.assignments == 40
    own = made.strata["lab, FreeBSD"]
    assert sorted(own.test + own.control) == ["e001", "e002"]


def test_a_plan_says_when_one_verdict_is_of_two_systems(world: EmptyWorld) -> None:
    told = "hosts run FreeBSD and Linux: each is compared with its own, and the verdict is of all"
    assert told not in " ".join(_plan(world)["text"].split())
    world.hosts.systems = {"e001": "freebsd", "e002": "freebsd"}
    text = " ".join(_plan(world)["text"].split())
    assert f"{told}; they count in other ways: listen_drops, " in text
    assert "packets" in text.partition("other ways: ")[2]
    assert "health_failed" not in text.partition("other ways: ")[2]
    world.hosts.systems = {f"e{number:03d}": "freebsd" for number in range(8)}
    assert told not in " ".join(_plan(world)["text"].split())


RELEASES = {f"e{number:03d}": ("13.3-RELEASE", "14.1-RELEASE")[number % 2] for number in range(8)}


def test_releases_of_one_system_are_compared_apart_where_there_are_enough(
    world: EmptyWorld,
) -> None:
    world.hosts.systems = dict.fromkeys(RELEASES, "freebsd")
    world.hosts.kernels = RELEASES
    made, notes = plan_and_notes(world.context, "lab1", "accept_queue", Options(seed=1))
    assert not [note for note in notes if "compared with each other" in note.what]
    assert list(made.strata) == ["lab, 13.3-RELEASE", "lab, 14.1-RELEASE"]
    for own in made.strata.values():
        assert len({RELEASES[name] for name in own.hosts}) == 1


@pytest.mark.parametrize("few", [2, 3])
def test_a_plan_says_when_it_compares_several_releases_with_each_other(
    world: EmptyWorld, few: int
) -> None:
    world.hosts.systems = dict.fromkeys(RELEASES, "freebsd")
    newer = {f"e{number:03d}": "14.1-RELEASE" for number in range(few)}
    world.hosts.kernels = {**dict.fromkeys(RELEASES, "13.3-RELEASE"), **newer}
    six = tuple(f"e{number:03d}" for number in range(6))
    made = make_for(world.context, "lab1", "accept_queue", Options(seed=1, only=six))
    assert list(made.strata) == ["lab"]
    assert (
        "hosts that are compared with each other run 13.3-RELEASE, 14.1-RELEASE: of each there are "
        "too few for a comparison of their own"
    ) in " ".join(_plan(world, seed=1, only=[*six])["text"].split())


def test_a_kind_that_the_system_of_a_host_lacks_is_refused_with_its_field(
    world: EmptyWorld,
) -> None:
    world.hosts.systems = {"e001": "freebsd"}
    with pytest.raises(RefusedError) as caught:
        plan_rollout(world.context, "lab1", "quiet_thp")
    told = "quiet_thp.yaml: settings[0].kind: memory.thp is for Linux, and this host runs FreeBSD"
    assert re.search(rf"quiet_thp is not for e001: \S+/{re.escape(told)}", str(caught.value))
    assert (world.hosts.changing(), world.balancer.log) == ([], [])
