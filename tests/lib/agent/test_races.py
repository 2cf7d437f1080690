# SPDX-License-Identifier: Apache-2.0
"""Confirming a change against what takes it back, and whoever else comes at the same instant."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent.host import Host
from tests.support.agent_root import (
    AgentRoot,
    agent_root,
    release,
    request,
    sysctl,
    until,
    without_boot_id,
)

pytestmark = pytest.mark.processes

SETTINGS = [sysctl("4096")]
SOMAXCONN = "proc/sys/net/core/somaxconn"
CONFIRM = request("confirm", epoch=1, tuning="t", digest="sha256:1", settings=SETTINGS)
MOST_ROUNDS = 30


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with agent_root(tmp_path / "host") as root:
        yield root


@pytest.fixture
def hooked(tmp_path: Path) -> Iterator[AgentRoot]:
    """Its timers are stubs, so that nothing but the boot hook takes anything back."""
    with agent_root(tmp_path / "host", init="systemd") as root:
        yield root


def confirmed(confirmer: subprocess.Popen[bytes]) -> bool:
    output, errors = confirmer.communicate(timeout=60)
    assert errors == b""
    return bool(json.loads(output)["result"]["confirmed"])


def deadline(host: AgentRoot) -> float:
    """Now, where the machine stood still for so long that the timer has been there already."""
    try:
        return host.deadline()
    except FileNotFoundError:
        return time.monotonic()


def pause(number: int) -> float:
    """How long the lock is held in a round: longer each time, as a slow machine needs, and let go
    anywhere in the 50 ms between two looks at it."""
    return 0.1 + number // 3 * 0.1 + number * 17 % 50 / 1000


def sleep_until(instant: float) -> None:
    time.sleep(max(instant - time.monotonic(), 0))


def assert_wholly_new(host: AgentRoot) -> None:
    """And no timer is left that could still take it back."""
    assert host.state() == "confirmed" and host.read(SOMAXCONN) == "4096\n"
    assert not host.processes()
    assert host.run_copy("revert", "t").returncode == 0
    assert host.state() == "confirmed" and host.read(SOMAXCONN) == "4096\n"


def assert_wholly_old(host: AgentRoot, before: dict[str, Any]) -> None:
    assert host.tree() == before and host.leftovers() == {"epoch"}


def race_with_timer(host: AgentRoot, hold: float) -> bool:
    """Confirm at the deadline, and for ``hold`` s after it both are held at the lock.

    Whether the confirmation won; the host is old again afterwards.
    """
    before = host.tree()
    confirmer = host.begin(CONFIRM)
    host.apply(*SETTINGS, confirm_within=0.5)
    end = deadline(host)
    with Host(str(host.path)).lock():
        sleep_until(end)
        release(confirmer)
        sleep_until(end + hold)
    won = confirmed(confirmer)
    assert until(lambda: not host.processes())
    if won:
        assert_wholly_new(host)
        host.restore()
    assert_wholly_old(host, before)
    return won


def test_timer_and_confirmation_go_at_once_and_either_can_be_first(host: AgentRoot) -> None:
    winners = set()
    for number in range(MOST_ROUNDS):
        winners.add(race_with_timer(host, pause(number)))
        if len(winners) == 2:
            return
    raise AssertionError(f"in {MOST_ROUNDS} rounds only one of them was ever first: {winners}")


def test_of_many_confirmations_all_get_the_same_answer(host: AgentRoot) -> None:
    before = host.tree()
    confirmers = [host.begin(CONFIRM) for _ in range(3)]
    host.apply(*SETTINGS, confirm_within=0.5)
    with Host(str(host.path)).lock():
        sleep_until(deadline(host))
        for confirmer in confirmers:
            release(confirmer)
        time.sleep(0.15)
    answers = [confirmed(confirmer) for confirmer in confirmers]
    assert until(lambda: not host.processes())
    if any(answers):
        assert_wholly_new(host)
    else:
        assert_wholly_old(host, before)
    assert len(set(answers)) == 1


def race_with_hook(host: AgentRoot, number: int) -> tuple[bool, int]:
    """Confirm while the boot hook runs, held at the lock both, then let go together.

    Whether it was confirmed, and the hook's exit status.
    """
    confirmer = host.begin(CONFIRM)
    with Host(str(host.path)).lock():
        copy = str(host.path / "var/lib/edgetune/agent.py")
        command = [host.python, "-I", "-S", copy, "boot"]
        hook = subprocess.Popen(command, env=host.environment)
        time.sleep(0.2 + pause(number))
        release(confirmer)
        time.sleep(pause(number))
    return confirmed(confirmer), hook.wait(60)


def test_the_boot_that_belongs_to_a_tuning_and_its_confirmation_go_well_in_both_orders(
    hooked: AgentRoot,
) -> None:
    before = hooked.tree()
    timers_armed = set()
    for number in range(MOST_ROUNDS):
        hooked.apply(*SETTINGS, confirm_within=300, grace_boots=1)
        hooked.new_boot_id()
        timers = len(hooked.commands)
        assert race_with_hook(hooked, number) == (True, 0)
        timers_armed.add(any("systemd-run" in line for line in hooked.commands[timers:]))
        assert_wholly_new(hooked)
        assert not hooked.exists("etc/systemd/system/edgetune.service")
        hooked.restore()
        assert without_boot_id(hooked.tree()) == without_boot_id(before)
        if len(timers_armed) == 2:
            return
    raise AssertionError(f"only one order in {MOST_ROUNDS} rounds: {timers_armed}")


def test_after_the_grace_boot_hook_and_confirmation_exclude_each_other(
    hooked: AgentRoot,
) -> None:
    before = hooked.tree()
    winners = set()
    for number in range(MOST_ROUNDS):
        hooked.apply(*SETTINGS, confirm_within=300, grace_boots=1)
        for boot in ("granted", "one too many"):
            assert hooked.state() == "provisional"
            hooked.new_boot_id()
            if boot == "granted":
                assert hooked.run_hook().returncode == 0
        won, status = race_with_hook(hooked, number)
        assert status == 0
        winners.add(won)
        if won:
            assert_wholly_new(hooked)
            hooked.restore()
        assert without_boot_id(hooked.tree()) == without_boot_id(before)
        assert hooked.leftovers() == {"epoch"}
        if len(winners) == 2:
            return
    raise AssertionError(f"in {MOST_ROUNDS} rounds only one of them was ever first: {winners}")


def test_two_never_change_a_host_at_once_over_the_end_of_the_lock(tmp_path: Path) -> None:
    """One waits for the lock while that file is removed, and a third one comes in between."""
    (tmp_path / "run").mkdir()
    root, inside, most = Host(str(tmp_path)), list[int](), list[int]()

    def change() -> None:
        with Host(str(tmp_path)).lock():
            inside.append(1)
            most.append(len(inside))
            never.wait(0.2)
            inside.pop()

    never = threading.Event()
    threads = [threading.Thread(target=change) for _ in range(3)]
    with root.lock():
        threads[0].start()
        never.wait(0.2)
        root.remove("/run/edgetune.lock")
        threads[1].start()
        never.wait(0.2)
    threads[2].start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1]
