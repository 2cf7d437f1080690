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


def test_a_sick_service_leaves_the_old_kernel_as_the_default(world: KernelWorld) -> None:
    name = host_of(world)
    world.roll(0, until=verify_hosts)
    world.hosts.health[name] = "answers 500 Internal Server Error"
    result = world.step(verify_hosts, 0)
    assert result["failed"] == [name] and "answers 500" in result["error"]
    assert "confirm" not in world.hosts.changing() and name in world.hosts.not_ready


def test_a_kernel_with_which_connections_are_lost_is_not_kept(world: KernelWorld) -> None:
    name = host_of(world)
    world.roll(0, until=verify_hosts)
    world.hosts.losing[name] = "9 of 32 connections to 127.0.9.1:80 get no answer"
    result = world.step(verify_hosts, 0)
    assert result["failed"] == [name] and world.hosts.losing[name] in result["error"]
    assert "confirm" not in world.hosts.changing() and name in world.hosts.not_ready


def test_a_host_that_fell_back_says_so(world: KernelWorld) -> None:
    name = host_of(world)
    world.roll(0, until=verify_hosts)
    row = {"id": KERNEL, "runtime": OLD, "persistent": OLD, "wanted": NEW, "reason": "differs"}
    world.verified[name] = {
        "verified": False,
        "state": "none",
        "settings": [{**row, "ok": False}],
    }
    result = world.step(verify_hosts, 0)
    why = "the host has taken its change back by itself: not verified: kernel.package is {"
    assert result["failed"] == [name] and why in result["error"]
    assert "confirm" not in world.hosts.changing() and name in world.hosts.not_ready


def test_a_host_that_will_not_keep_it_is_not_ready_again(world: KernelWorld) -> None:
    name = host_of(world)
    world.roll(0, until=verify_hosts)
    world.unconfirmed.add(name)
    assert world.step(verify_hosts, 0)["failed"] == [name]
    assert name in world.hosts.not_ready and world.batch(0).hosts[name].reverts_at > 0


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
    ("forced", "bmcs", "who"),
    [
        (True, True, f"BMCs reset {ALL}"),
        (True, False, f"a person has to reset {ALL}"),
        (False, True, f"a person has to reset {ALL}; force_restart=true has BMCs do it"),
        (False, False, f"a person has to reset {ALL}"),
    ],
)
def test_a_plan_says_who_ends_a_hang_that_no_watchdog_sees(
    tmp_path: Path, forced: bool, bmcs: bool, who: str
) -> None:
    world = KernelWorld(tmp_path, bmcs=bmcs)
    world.hosts.told_by_dmi = lambda name: {"uuid": f"uuid-{name}", "serial": ""}
    text = plan_text(world._planned(tmp_path, force_restart=forced))
    told = f"early hang no watchdog ends a hang before systemd has opened it; {who} guards"
    assert told in " ".join(text.split())


class Hang:
    """A host that was told to boot the new kernel, and from which nobody heard since."""

    def __init__(self, folder: Path, clock: VirtualClock, **planned: Any) -> None:
        made = KernelWorld(folder, bmcs=True, reboot_deadline=DEADLINE)
        made.hosts.told_by_dmi = lambda name: {"uuid": f"uuid-{name}", "serial": ""}
        self.world = changing(made, folder, **planned)
        self.name = host_of(self.world)
        self.world.bmcs.said["boot_progress"] = "OSRunning"
        self.world.roll(0, until=check_rebooted)
        self.world.hosts.unreachable.add(self.name)
        self._clock = clock

    def look(self, later: float = DEADLINE + 5) -> tuple[int, list[str]]:
        """What is found that many seconds later."""
        self._clock.wait(later)
        result = self.world.step(check_rebooted, 0)
        return result["waiting"], result["failed"]

    @property
    def sent(self) -> list[str]:
        """The resets that reached its machine."""
        return self.world.bmcs.sent_to(self.name, "reset")


def test_a_kernel_that_hangs_is_reset_by_the_bmc(tmp_path: Path, clock: VirtualClock) -> None:
    hang = Hang(tmp_path, clock, force_restart=True)
    assert (hang.look(DEADLINE - 5), hang.sent) == ((1, []), [])
    assert (hang.look(10), hang.sent) == ((1, []), ["GracefulRestart"])
    assert (hang.look(DEADLINE - 5), hang.sent) == ((1, []), ["GracefulRestart"])
    assert (hang.look(10), hang.sent) == ((1, []), ["GracefulRestart", "ForceRestart"])
    hang.world.hosts.unreachable.clear()
    hang.world.hosts.reboot()
    assert (hang.look(5), hang.world.at(0)) == ((0, []), {hang.name: "rebooted"})


def test_a_kernel_that_hangs_has_its_time_anew_when_the_rollout_is_taken_over(
    tmp_path: Path, clock: VirtualClock
) -> None:
    hang = Hang(tmp_path, clock, force_restart=True)
    assert hang.look(DEADLINE - 5) == (1, [])
    hang.world.take_over()
    assert (hang.look(DEADLINE - 5), hang.sent) == ((1, []), [])
    assert (hang.look(10), hang.sent) == ((1, []), ["GracefulRestart"])


def test_a_boot_in_which_no_agent_runs_is_reset_by_the_bmc(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSH answers, and there is no Python."""
    hang = Hang(tmp_path, clock)
    hang.world.hosts.unreachable.clear()
    monkeypatch.setattr(hang.world.hosts, "lies", lambda name, reply: "python3: not found")
    assert (hang.look(DEADLINE - 5), hang.sent) == ((1, []), [])
    assert (hang.look(10), hang.sent) == ((1, []), ["GracefulRestart"])
    monkeypatch.undo()
    hang.world.hosts.reboot()
    assert (hang.look(5), hang.world.at(0)) == ((0, []), {hang.name: "rebooted"})


def test_one_that_no_reset_brings_back_is_given_up(tmp_path: Path, clock: VirtualClock) -> None:
    hang = Hang(tmp_path, clock, force_restart=True)
    assert [hang.look() for _ in range(3)] == [(1, []), (1, []), (0, [hang.name])]
    error = hang.world.batch(0).hosts[hang.name].error or ""
    assert "though its BMC was asked for GracefulRestart, then ForceRestart" in error


def test_a_hang_is_not_forced_where_the_plan_does_not_show_it(
    tmp_path: Path, clock: VirtualClock
) -> None:
    hang = Hang(tmp_path, clock)
    assert [hang.look() for _ in range(2)] == [(1, []), (0, [hang.name])]
    assert hang.sent == ["GracefulRestart"]


def test_a_machine_that_may_be_in_post_is_not_forced(tmp_path: Path, clock: VirtualClock) -> None:
    hang = Hang(tmp_path, clock, force_restart=True)
    hang.world.bmcs.said["boot_progress"] = ""
    assert [hang.look() for _ in range(2)] == [(1, []), (0, [hang.name])]
    assert hang.sent == ["GracefulRestart"]
    error = hang.world.batch(0).hosts[hang.name].error or ""
    assert "its BMC refused ForceRestart: may be in POST" in error


def test_a_bmc_that_is_away_is_waited_for_as_long_as_for_a_boot(
    tmp_path: Path, clock: VirtualClock
) -> None:
    hang = Hang(tmp_path, clock, force_restart=True)
    hang.world.bmcs.faults[hang.name] = {"unreachable"}
    assert (hang.look(), hang.sent) == ((1, []), [])
    hang.world.bmcs.faults[hang.name] = set()
    assert (hang.look(1), hang.sent) == ((1, []), ["GracefulRestart"])
    hang.world.bmcs.faults[hang.name] = {"unreachable"}
    assert [hang.look(), hang.look()] == [(1, []), (0, [hang.name])]


@pytest.mark.parametrize("device", ["", "iTCO_wdt"])
def test_a_host_without_a_watchdog_is_named_beside_the_plan(tmp_path: Path, device: str) -> None:
    world = KernelWorld(tmp_path)
    world.facts["e003"] = {"watchdog": {"device": device, "armed": False}}
    options = world._planned(tmp_path).options
    notes = plan_and_notes(world.context, "lab1", "kernel_upgrade", options)[1]
    found = [(note.host, note.what, note.refuses) for note in notes if "watchdog" in note.what]
    what = "it has no watchdog: where the new kernel hangs, nothing resets the host"
    assert found == ([] if device else [("e003", what, False)])


@pytest.mark.parametrize(
    ("forced", "bmcs", "advice"),
    [
        (False, True, "give force_restart=true: its BMC then resets it"),
        (True, False, "be ready to reset it: no BMC is known that can force its restart"),
        (True, True, ""),
    ],
)
def test_beside_the_plan_stands_who_ends_a_hang(
    tmp_path: Path, forced: bool, bmcs: bool, advice: str
) -> None:
    world = KernelWorld(tmp_path, bmcs=bmcs)
    world.hosts.told_by_dmi = lambda name: {"uuid": f"uuid-{name}", "serial": ""}
    world.facts["e003"] = {"watchdog": {"device": "", "armed": False}}
    options = world._planned(tmp_path, force_restart=forced).options
    notes = plan_and_notes(world.context, "lab1", "kernel_upgrade", options)[1]
    found = [note.advice for note in notes if "watchdog" in note.what]
    expected = f"load the driver of its watchdog, or {advice}"
    assert found == ([expected] if advice else [])


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
