# SPDX-License-Identifier: Apache-2.0
"""A kernel in the steps of a rollout: the service answers before it becomes the default."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from edgetune.documents.plan import Plan
from edgetune.report.text import plan_text
from edgetune.rollout.lease import as_owner
from edgetune.rollout.planning import plan_and_notes
from edgetune.rollout.record import load_plan
from edgetune.rollout.reverts import INSTALL_TIMEOUT, confirm_window
from edgetune.rollout.steps import apply_tuning as apply_step
from edgetune.rollout.steps.apply_tuning import apply_tuning
from edgetune.rollout.steps.check_rebooted import check_rebooted
from edgetune.rollout.steps.plan_rollout import plan_rollout
from edgetune.rollout.steps.verify_hosts import verify_hosts
from tests.support.builders import tuning
from tests.support.scenarios import Scenario, scenarios
from tests.support.virtual_clock import VirtualClock
from tests.support.world import EmptyWorld

OLD = {"package": "linux-image-6.1.0-39-amd64", "version": "6.1.148-1"}
NEW = {"package": "linux-image-6.1.0-40-amd64", "version": "6.1.153-1"}
KERNEL = "kernel.package"
DEADLINE = 100.0


class KernelWorld(EmptyWorld):
    """A context with `kernel_upgrade` planned; its hosts boot the new kernel once they reboot."""

    def __init__(self, folder: Path, **config: Any) -> None:
        super().__init__(folder, **config)
        self.hosts.standing = tuning("kernel_upgrade")
        self.facts: dict[str, dict[str, Any]] = {}
        self.verified: dict[str, dict[str, Any]] = {}
        self.unconfirmed: set[str] = set()
        hosts: Any = self.hosts
        own_facts, own_verify, own_confirm = hosts._facts, hosts._verify, hosts._confirm
        row = {"id": KERNEL, "runtime": OLD, "persistent": OLD, "wanted": NEW, "reason": "differs"}
        hosts._facts = lambda name, asked: {**own_facts(name, asked), **self.facts.get(name, {})}
        hosts._plan = lambda name, asked: {"settings": [{**row, "status": "change"}]}
        hosts._verify = lambda name, asked: {**own_verify(name, asked), **self._seen(name)}
        hosts._confirm = lambda name, asked: {
            **own_confirm(name, asked),
            "confirmed": name not in self.unconfirmed,
        }

    def _seen(self, name: str) -> dict[str, Any]:
        return {"verified": True, "state": "provisional", **self.verified.get(name, {})}

    def _planned(self, folder: Path, disruption: str = "", **planned: Any) -> Plan:
        made = plan_rollout(self.context, pop="lab1", tuning="kernel_upgrade", seed=7, **planned)
        return load_plan(self.context, made["plan"])


def changing(made: KernelWorld, folder: Path, **planned: Any) -> KernelWorld:
    made.begin(folder, **planned)
    for state in ("baseline", "changing"):
        made.mark(state)
    return made


@pytest.fixture
def world(tmp_path: Path) -> KernelWorld:
    return changing(KernelWorld(tmp_path), tmp_path)


def host_of(world: KernelWorld) -> str:
    (name,) = world.at(0)
    return name


def asked_since(world: KernelWorld, first: int, name: str) -> list[str]:
    return [
        f"{verb}{request.get('ready', '')}"
        for own, verb, request in world.hosts.asked[first:]
        if own == name
    ]


def test_the_service_answers_before_the_kernel_becomes_the_default(world: KernelWorld) -> None:
    name = host_of(world)
    world.roll(0, until=verify_hosts)
    assert "confirm" not in world.hosts.changing()
    first = len(world.hosts.asked)
    assert world.step(verify_hosts, 0)["failed"] == []
    asked = asked_since(world, first, name)
    assert asked.index("verify") < asked.index("readyTrue") < asked.index("sample")
    assert asked[-1] == "confirm" and asked.count("confirm") == 1
    assert world.at(0) == {name: "verified"}
    assert world.batch(0).hosts[name].reverts_at == 0


def test_a_repeated_step_finds_it_kept(world: KernelWorld) -> None:
    name = host_of(world)
    world.roll(0, until=verify_hosts)
    opened = as_owner(world.context, world.rollout)
    before = opened.batch(0)
    world.step(verify_hosts, 0)
    opened.save_batch(before)
    world.verified[name] = {"state": "confirmed"}
    assert world.step(verify_hosts, 0)["failed"] == []


def test_a_host_is_told_to_take_it_back_by_itself_and_has_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = changing(KernelWorld(tmp_path, reboot_deadline=DEADLINE), tmp_path)
    name, seen = host_of(world), []
    world.roll(0, until=apply_tuning)
    real = apply_step.ask_hosts

    def ask(opened: Any, names: Any, verb: str, request: Any, timeout: float) -> Any:
        seen.append((verb, timeout))
        return real(opened, names, verb, request, timeout)

    monkeypatch.setattr(apply_step, "ask_hosts", ask)
    world.step(apply_tuning, 0)
    (request,) = [asked for _, verb, asked in world.hosts.asked if verb == "apply"]
    opened = as_owner(world.context, world.rollout)
    assert seen == [("apply", INSTALL_TIMEOUT)]
    assert request["confirm_within"] == confirm_window(opened, 1) > 0
    assert request["grace_boots"] == 1
    window = confirm_window(opened, 1) + 60 + DEADLINE
    waits = world.batch(0).hosts[name].reverts_at - time.time()
    assert abs(waits - window) < 5, "it boots once more when it has taken the kernel back"


def test_a_plan_says_what_becomes_of_a_bad_kernel(world: KernelWorld) -> None:
    text = " ".join(plan_text(world.plan).split())
    assert "disruption reboot" in text
    assert "falls back the next boot tries it once; it becomes the default when its host is" in text
    assert "it boots twice" in text


ALL = ", ".join(f"e{number:03}" for number in range(8))


@pytest.mark.parametrize(
    ("forced", "bmcs", "who", "advice"),
    [
        (True, True, f"BMCs reset {ALL}", ""),
        (
            True,
            False,
            f"a person has to reset {ALL}",
            "be ready to reset it: no BMC is known that can force its restart",
        ),
        (
            False,
            True,
            f"a person has to reset {ALL}; force_restart=true has BMCs do it",
            "give force_restart=true: its BMC then resets it",
        ),
    ],
)
def test_a_plan_says_who_ends_a_hang_and_which_host_has_no_watchdog(
    tmp_path: Path, forced: bool, bmcs: bool, who: str, advice: str
) -> None:
    world = KernelWorld(tmp_path, bmcs=bmcs)
    world.hosts.told_by_dmi = lambda name: {"uuid": f"uuid-{name}", "serial": ""}
    world.facts["e002"] = {"watchdog": {"device": "iTCO_wdt", "armed": False}}
    world.facts["e003"] = {"watchdog": {"device": "", "armed": False}}
    made = world._planned(tmp_path, force_restart=forced)
    told = f"early hang no watchdog ends a hang before systemd has opened it; {who} guards"
    assert told in " ".join(plan_text(made).split())
    notes = plan_and_notes(world.context, "lab1", "kernel_upgrade", made.options)[1]
    seen = [own for own in notes if "watchdog" in own.what]
    what = "it has no watchdog: where the new kernel hangs, nothing resets the host"
    expected = ("e003", what, False, f"load the driver of its watchdog, or {advice}")
    found = [(own.host, own.what, own.refuses, own.advice) for own in seen]
    assert found == ([expected] if advice else [])


@pytest.mark.parametrize("case", scenarios(__file__))
def test_a_kernel_is_kept_only_where_the_service_answers(case: Any, world: KernelWorld) -> None:
    world.roll(0, until=verify_hosts)
    Scenario(world).play(case)


class HangMoves(Scenario):
    def looks(self, expected: list[Any]) -> None:
        for later, waiting, failed in expected:
            self.wait(later)
            self.looks_at("check_rebooted", waiting, failed)

    def garbage(self, is_said: bool) -> None:
        lie = "python3: not found"
        self.world.hosts.lies = lambda name, reply: lie if is_said else reply


@pytest.mark.parametrize("case", scenarios(__file__, "kernels_that_hang"))
def test_a_host_that_hangs_is_reset(case: Any, tmp_path: Path, clock: VirtualClock) -> None:
    made = KernelWorld(tmp_path, bmcs=True, reboot_deadline=DEADLINE)
    made.hosts.told_by_dmi = lambda name: {"uuid": f"uuid-{name}", "serial": ""}
    world = changing(made, tmp_path, **case[0].pop("plan", {}))
    world.bmcs.said["boot_progress"] = "OSRunning"
    world.roll(0, until=check_rebooted)
    world.hosts.unreachable.add(host_of(world))
    HangMoves(world, clock).play(case)


def test_hosts_with_different_kernels_are_strata_of_their_own(tmp_path: Path) -> None:
    world = KernelWorld(tmp_path)
    for name in ("e000", "e001", "e002", "e003"):
        world.facts[name] = {"kernel": "6.1.0-12-amd64"}
    made = world._planned(tmp_path, alpha_harm=0.2, alpha_benefit=0.2)
    assert list(made.strata) == ["lab, 6.1.0-12-amd64", "lab, 6.1.0-28-amd64"]
    old, new = made.strata.values()
    assert sorted([*old.test, *old.control]) == ["e000", "e001", "e002", "e003"]
    assert (len(old.test), len(new.test)) == (2, 2)


def test_a_pop_too_small_for_strata_of_kernels_is_split_by_hardware(tmp_path: Path) -> None:
    """Eight hosts with four kernels can be drawn in 16 ways, and in 70 ways without these."""
    world = KernelWorld(tmp_path)
    for number in range(8):
        world.facts[f"e{number:03d}"] = {"kernel": f"6.1.0-{20 + number // 2}-amd64"}
    made = world._planned(tmp_path)
    assert list(made.strata) == ["lab"] and made.assignments == 70
    made = world._planned(tmp_path, alpha_harm=0.1, alpha_benefit=0.1)
    assert len(made.strata) == 4 and made.assignments == 16
