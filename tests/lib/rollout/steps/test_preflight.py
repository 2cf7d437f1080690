# SPDX-License-Identifier: Apache-2.0
"""What a dry run and the doctor look at before anything is begun, and what they say of it."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml

from edgetune.documents.options import Options
from edgetune.errors import DrainError, EdgetuneError, RefusedError, StoreError
from edgetune.metrics.samples import Limit
from edgetune.report.findings import WIDTH
from edgetune.rollout.planning import make_for
from edgetune.rollout.retention import most_bytes, refuse_short_retention
from edgetune.rollout.steps.doctor_pop import doctor_pop
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.stop_all import stop_all
from tests.support import ROOT
from tests.support.builders import inventory_document, write_yaml
from tests.support.scenarios import Scenario, scenarios
from tests.support.virtual_clock import VirtualClock
from tests.support.world import EmptyWorld, World, changing

URL = "http://127.0.0.1:80/health"
ALL = "e000..e007"


@pytest.fixture
def world(tmp_path: Path) -> EmptyWorld:
    return EmptyWorld(tmp_path)


def _plan(world: EmptyWorld, **options: Any) -> dict[str, Any]:
    return plan_rollout(world.context, "lab1", "accept_queue", **options)


class PreflightMoves(Scenario):
    """Moves upon a PoP on which nothing is begun."""

    def plans(self, options: dict[str, Any]) -> None:
        self.result = _plan(self.world, **options)

    def refused(self, why: str) -> None:
        self._compare("the refusal", _refusal(self.world), why)

    def told(self, text: str) -> None:
        self._compare("the plan", _plan(self.world)["text"], text)

    def everywhere(self, facts: dict[str, Any]) -> None:
        for path, value in facts.items():
            self.given({path: dict.fromkeys(self.world.hosts.boot, value)})

    def claimed(self, rollout: str) -> None:
        self.world.context.claims.take("lab1", rollout, 3600)

    @property
    def found(self) -> dict[str, Any]:
        return {check["check"]: check["findings"] for check in self.result["checks"]}

    @property
    def load_balancer(self) -> Any:
        return self.found["load balancer"]


@pytest.mark.parametrize("case", scenarios(__file__))
def test_what_is_wrong_is_found_before_anything_is_begun(case: Any, world: EmptyWorld) -> None:
    PreflightMoves(world).play(case)


def _refusal(world: EmptyWorld) -> str:
    with pytest.raises(RefusedError) as caught:
        _plan(world)
    assert "\n" not in str(caught.value)
    assert (world.hosts.changing(), world.balancer.log) == ([], [])
    return str(caught.value)


def test_a_health_check_that_fails_for_a_moment_is_asked_again(
    world: EmptyWorld, clock: VirtualClock
) -> None:
    world.hosts.health = {"e003": "gives no answer within 2 s"}
    clock.then = world.hosts.health.clear
    assert _plan(world)["plan"]
    assert world.hosts.told("sample").count("e003") == 2
    assert world.hosts.told("sample").count("e002") == 1


def test_sessions_that_nobody_can_count_are_found_by_the_dry_run(world: EmptyWorld) -> None:
    world.balancer.counting = False
    assert _plan(world)["plan"]
    document = inventory_document()
    del document["pops"]["lab1"]["health"]
    world.change_inventory(document)
    assert "hosts know no port to count them on -> give the PoP a health:" in _refusal(world)


@pytest.mark.parametrize(("ahead", "is_wrong"), [(-5, False), (65, False), (80, True), (-20, True)])
def test_a_clock_is_wrong_only_outside_of_question_and_answer(
    world: EmptyWorld, clock: VirtualClock, ahead: float, is_wrong: bool
) -> None:
    """Hosts are asked in turn: the last of many may answer a minute after the first question."""
    facts, now = world.hosts._facts, clock.wall()

    def in_turn(name: str, request: Any) -> dict[str, Any]:
        clock.wait(60 / len(world.balancer.state))
        return {**facts(name, request), "time": now + (ahead if name == "e005" else 0)}

    world.hosts._facts = in_turn  # type: ignore[method-assign]
    assert ("e005: its clock is" in _plan(world)["text"]) is is_wrong


@pytest.mark.parametrize("told", [None, "noon", True, -1.0, 1e300])
def test_a_host_that_does_not_tell_its_time_is_told(world: EmptyWorld, told: Any) -> None:
    facts = world.hosts._facts
    world.hosts._facts = lambda name, request: {  # type: ignore[method-assign]
        **facts(name, request),
        **({"time": told} if name == "e005" else {}),
    }
    assert "    e005: does not tell its time" in _plan(world)["text"]


def test_a_pop_of_somebody_else_is_told_beside_the_plan(tmp_path: Path) -> None:
    world = changing(tmp_path / "w")
    text = _plan(world)["text"]
    assert f"    lab1 is held by rollout {world.rollout} (changing)" in text


def test_an_unverified_certificate_and_a_missing_check_are_told_in_every_plan(
    tmp_path: Path,
) -> None:
    for name, told, says in (
        ("tls", {"health": "https://a/", "health_tls": "insecure"}, "certificate of https://a/ is"),
        ("none", {"health": ""}, "has no health check: a sick host would pass"),
    ):
        own = tmp_path / name / "tunings"
        own.mkdir(parents=True)
        kept = yaml.safe_load((ROOT / "tunings/accept_queue.yaml").read_text(encoding="utf-8"))
        guards = [{**guard, "optional": True} for guard in kept["guards"]]
        write_yaml(own / "accept_queue.yaml", {**kept, "guards": guards})
        world = EmptyWorld(tmp_path / name, tunings=[str(own)])
        document = inventory_document()
        document["pops"]["lab1"].update(told)
        write_yaml(tmp_path / name / "inventory.yaml", document)
        assert says in _plan(world)["text"]


def test_a_preflight_is_no_part_of_the_digest(world: EmptyWorld) -> None:
    first = _plan(world, seed=7)["plan"]
    world.hosts.ahead["e003"] = 3600.0
    assert _plan(world, seed=7)["plan"] == first
    assert "e003: its clock" in plan_rollout(world.context, plan=first)["text"]


def test_a_campaign_sees_what_refuses_a_pop(world: EmptyWorld) -> None:
    world.hosts.health = {"e003": "answers 404 Not Found"}
    with pytest.raises(RefusedError, match="e003: .* answers 404 Not Found"):
        make_for(world.context, "lab1", "accept_queue", Options(seed=1))


def _all_of(world: EmptyWorld) -> Mapping[str, list[Any]]:
    """Everything that is kept, byte for byte."""
    path = str(world.config["records"]).partition("///")[2]
    with sqlite3.connect(path) as db:
        tables = ("records", "claims", "epochs", "samples")
        return {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in tables}  # noqa: S608


def _checks(result: Mapping[str, Any]) -> dict[str, str]:
    return {
        check["check"]: "; ".join(
            f"{','.join(row['hosts'])}: {row['what']} -> {row['advice']}"
            for row in check["findings"]
        )
        for check in result["checks"]
    }


def test_the_doctor_changes_nothing_whatever_it_finds(tmp_path: Path) -> None:
    world = changing(tmp_path / "w")
    world.roll(0)
    stop_all(world.context, requested_by="ana")
    world.hosts.health = {"e003": "answers 404 Not Found"}
    world.hosts.unreachable = {"e004"}
    world.balancer.state["e005"] = "maint"
    moments, log = len(world.moments.seen), list(world.balancer.log)
    changes, kept = world.hosts.changing(), _all_of(world)
    for tuning in ("", "accept_queue"):
        assert doctor_pop(world.context, "lab1", tuning)["failed"]
    assert _all_of(world) == kept
    assert (world.hosts.changing(), world.balancer.log) == (changes, log)
    assert len(world.moments.seen) == moments


def test_the_doctor_lists_everything_that_is_wrong_and_what_to_do(tmp_path: Path) -> None:
    world = changing(tmp_path / "w")
    stop_all(world.context, requested_by="ana")
    world.hosts.health = dict.fromkeys(world.balancer.state, "answers 404 Not Found")
    world.hosts.unreachable, world.hosts.not_ready = {"e004"}, {"e006"}
    world.hosts.ahead["e007"] = 600
    world.hosts.unsupported["e001"] = "cannot be written: Read-only file system"
    world.hosts.unwritable["e002"] = ["/etc"]
    world.balancer.refusal = "Permission denied"
    found = _checks(doctor_pop(world.context, "lab1", "accept_queue"))
    assert found.pop("records") == ""
    parts = {
        "claim": f"lab1 is held by rollout {world.rollout} (changing) -> wait for its end",
        "permission": "everything is stopped: stopped by ana -> st2 run edgetune.resume_all",
        "load balancer": ": Permission denied -> let edgetune set states",
        "machines": "",
        "automation": "",
        "inventory": "",
        "nodes": "",
        "samples": "",
        "hosts": "e004: cannot be asked: timed out -> mend it",
        "disks": "e002: /etc cannot be written: read-only, or not there -> mend its disk",
        "health": f"e000,e001,e002,e003,e005,e006,e007: {URL} answers 404 Not Found -> mend the",
        "clocks": "e007: its clock is 10m ahead -> mend its clock",
        "settings": "e001: sysctl:net.core.somaxconn: cannot be written: Read-only file system ->",
    }
    assert found.keys() == parts.keys()
    for name, part in parts.items():
        assert part in found[name], name
    assert "e006: is not ready: a rollout drained it" in found["hosts"]


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (None, []),
        (Limit(10**9, "noeviction"), []),
        (
            Limit(10**7, "noeviction"),
            [r"Redis holds 10 MB \(maxmemory\); 14d of samples of all PoPs may take [3-9]\d MB"],
        ),
        (
            Limit(10**9, "allkeys-lru"),
            [r"Redis drops keys when it is full \(allkeys-lru\), and with them claims of PoPs"],
        ),
    ],
)
def test_the_doctor_says_whether_redis_holds_the_samples(
    world: EmptyWorld, limit: Limit | None, told: list[str]
) -> None:
    world.context.samples.limit = lambda: limit  # type: ignore[method-assign]
    found = doctor_pop(world.context, "lab1")
    (own,) = (check for check in found["checks"] if check["check"] == "samples")
    assert re.fullmatch(
        r"14d of them take at most [3-9]\d MB, and of all PoPs [3-9]\d MB", str(own["means"])
    )
    assert ("samples" in found["failed"]) == bool(told)
    assert all(re.search(each, _checks(found)["samples"]) for each in told)


def _most(world: EmptyWorld) -> int:
    return most_bytes(world.context, [world.context.inventory.pop("lab1")])


def test_a_rollout_that_is_sampled_faster_takes_more_memory(tmp_path: Path) -> None:
    world = World(tmp_path, interval=60)
    usual = _most(world)
    (tmp_path / "other").mkdir()
    faster = _most(World(tmp_path / "other", interval=10))
    assert 6.9 < faster / usual < 7.1


def test_a_plan_that_is_damaged_hides_no_bound(tmp_path: Path) -> None:
    world = World(tmp_path, interval=10)
    faster = _most(world)
    world.context.store.put(f"edgetune.plan.{world.plan.digest}", "{")
    assert 0 < _most(world) < faster


@pytest.mark.parametrize(
    ("kept", "options", "needs"),
    [
        (86_400, {"baseline": 86_400}, "1d2m"),
        (3_600, {"baseline": 600, "soak": 14_400, "looks": 2, "warmup": 0}, "2h2m"),
        (7_320, {"baseline": 600, "soak": 14_400, "looks": 2, "warmup": 0}, ""),
        (86_520, {"baseline": 86_400}, ""),
    ],
)
def test_a_plan_for_which_samples_are_not_kept_long_enough_is_refused(
    tmp_path: Path, kept: float, options: dict[str, Any], needs: str
) -> None:
    world = EmptyWorld(tmp_path, sample_retention=kept)
    pop, given = world.context.inventory.pop("lab1"), Options(**options).checked()
    if not needs:
        refuse_short_retention(world.context, pop, given)
        return
    with pytest.raises(RefusedError, match=f"next need them for {needs}; lengthen"):
        refuse_short_retention(world.context, pop, given)
    world.context.samples.stored_series = lambda pop: 0  # type: ignore[method-assign]
    refuse_short_retention(world.context, pop, given)


@pytest.mark.parametrize(
    ("breaks", "failing"),
    [
        ("load_balancer", ["load balancer", "machines"]),
        ("claims", ["claim"]),
        ("store", ["records", "claim", "inventory", "permission", "hosts"]),
    ],
)
def test_the_doctor_goes_on_after_a_check_that_fails(
    world: EmptyWorld, breaks: str, failing: list[str]
) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Callable[..., Any]:
            def fail(*arguments: Any, **more: Any) -> Any:
                raise errors[breaks]

            return fail

    errors: dict[str, EdgetuneError] = {
        "load_balancer": DrainError("tcp://127.0.0.1:9: HAProxy does not answer"),
        "claims": StoreError("Redis: Connection refused"),
        "store": StoreError("StackStorm's datastore: GET /keys: 500"),
    }
    broken: Any = (lambda pop: Broken()) if breaks == "load_balancer" else Broken()
    setattr(world.context, breaks, broken)
    result = doctor_pop(world.context, "lab1")
    assert result["failed"] == failing
    assert str(errors[breaks]) in json.dumps(result["checks"])


def test_the_doctor_writes_lines_that_fit_a_terminal(world: EmptyWorld) -> None:
    world.hosts.health = {
        name: f"answers {400 + number} {'so odd ' * number}"
        for number, name in enumerate(world.balancer.state)
    }
    world.balancer.refusal = "x" * 300
    lines = doctor_pop(world.context, "lab1")["text"].splitlines()
    short = [line for line in lines if "xxx" not in line]
    assert len(short) > 16 and max(map(len, short)) <= WIDTH < 80


def test_what_a_host_says_begins_no_line_of_the_doctor(world: EmptyWorld) -> None:
    world.hosts.health = {"e003": "answers 404\n  ok      claim  all is well " + "FAILED " * 40}
    lines = doctor_pop(world.context, "lab1")["text"].splitlines()
    assert sum(line.startswith("  ok      claim") for line in lines) == 1
    assert [line for line in lines if line.split()[0] == "FAILED"] == [
        line for line in lines if line.startswith("  FAILED  health")
    ]
