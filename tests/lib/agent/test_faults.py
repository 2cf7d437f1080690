# SPDX-License-Identifier: Apache-2.0
"""The host agent killed, cut off, or out of room at every point where that can happen."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent.dispatch import answer as answer_below
from edgetune.agent.host import Host
from tests.support.agent_root import (
    AgentRoot,
    FullDisk,
    agent_root,
    channels,
    nginx,
    request,
    sysctl,
    thp,
    until,
    without_boot_id,
)
from tests.support.dying import killed, steps

pytestmark = pytest.mark.processes

INIT = "systemd"

SETTINGS = [channels(2), thp("never"), sysctl("4096")]


def answer(host: AgentRoot, document: bytes) -> dict[str, Any]:
    return answer_below(str(host.path), document)


def applied(host: AgentRoot, *settings: dict[str, Any]) -> bool:
    verified = host.ask("verify", tuning="t", settings=list(settings))
    return bool(verified["verified"]) and verified["state"] == "confirmed"


def settled(host: AgentRoot) -> dict[str, Any]:
    """All but what the next agent that comes by removes: an idle hook, and empty directories."""
    return {
        name: was
        for name, was in without_boot_id(host.tree()).items()
        if was[1] is not None and "edgetune.service" not in name
    }


def end_after_boot(host: AgentRoot, before: dict[str, Any], *own: dict[str, Any]) -> str:
    """``old`` or ``new``, as the host is after a boot, which it is wholly."""
    assert host.boot().stderr == ""
    if settled(host) == before:
        return "old"
    assert applied(host, *own)
    return "new"


LIVE = {"live": ["sysctl:net.core.somaxconn", "memory.thp:enabled"]}


@pytest.mark.parametrize(
    ("verb", "settings", "live", "boots"),
    [
        ("apply", SETTINGS, {}, False),
        ("apply", SETTINGS, {}, True),
        ("apply", [sysctl("4096")], {}, True),
        ("restore", SETTINGS, {}, True),
        ("restore", [sysctl("4096")], {}, True),
        ("restore", SETTINGS, LIVE, True),
    ],
)
def test_killed_at_any_point_the_next_boot_leaves_all_or_nothing_and_it_can_be_taken_back(
    host: AgentRoot, verb: str, settings: list[dict[str, Any]], live: dict[str, Any], boots: bool
) -> None:
    before, tree = settled(host), without_boot_id(host.tree())
    change = request("apply", **host.change(*settings, confirm_within=0 if boots else 300))
    restore = request("restore", epoch=1, tuning="t")
    ends = set()
    for step in steps():
        if verb == "restore":
            assert answer(host, change)["ok"]
        asked = change if verb == "apply" else request("restore", epoch=1, tuning="t", **live)
        died = killed(host, asked, step)
        if boots:
            ends.add(end_after_boot(host, before, *settings))
        reply = answer(host, restore)
        assert reply["ok"], (step, reply)
        assert without_boot_id(host.tree()) == tree and host.leftovers() <= {"epoch"}, step
        if not died:
            assert ends == ({"old", "new"} if boots else set())
            assert step > 30 or verb == "restore" or settings != SETTINGS
            return


def test_a_disk_that_fills_at_any_point_of_an_apply_leaves_nothing_half(
    host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = host.tree()
    change = request("apply", **host.change(*SETTINGS, confirm_within=300))
    for step in steps():
        with monkeypatch.context() as patch:
            FullDisk(patch, after=step)
            reply = answer(host, change)
        if reply["ok"]:
            assert host.state() == "provisional" and step > 5
            return
        assert "No space left" in reply["error"]["message"], reply
        assert "NOT undone" not in reply["error"]["message"], reply
        assert host.tree() == before and host.leftovers() <= {"epoch"}, step


@pytest.mark.parametrize("within", [0, 300])
def test_a_disk_that_fills_at_any_point_of_a_restore_stops_none(
    host: AgentRoot, monkeypatch: pytest.MonkeyPatch, within: float
) -> None:
    before = host.tree()
    for step in range(12):
        settings = [*SETTINGS, nginx("LimitNOFILE", "65536")]
        host.apply(*settings, confirm_within=within, epoch=step + 1)
        with monkeypatch.context() as patch:
            FullDisk(patch, after=step)
            reply = answer(host, request("restore", epoch=step + 2, tuning="t"))
        assert reply["ok"], (step, reply)
        assert host.tree() == before and host.leftovers() == {"epoch"}, step
        assert host.read("var/lib/edgetune/epoch") == f"{step + 2}\n"


def test_what_fills_the_disk_cannot_take_the_reserve(
    host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not given back to the disk before it is used: a log may grow all the time."""
    host.apply(sysctl("4096"))
    blocks = (host.path / "var/lib/edgetune/reserve").stat().st_ino
    with monkeypatch.context() as patch:
        FullDisk(patch)
        Host(str(host.path)).write("/etc/kept", b"all of it\n", 0o640)
    kept = (host.path / "etc/kept").stat()
    assert (kept.st_ino, kept.st_size, kept.st_mode & 0o777) == (blocks, 10, 0o640)
    assert host.read("etc/kept") == "all of it\n"


def stub(host: AgentRoot, name: str, text: str) -> None:
    """Let a program of the host do something before it does its work."""
    program = host.path / "usr/local/sbin" / name
    program.rename(program.with_name(f"{name}-itself"))
    program.write_text(f'#!/bin/sh\n{text}\nexec "{program}-itself" "$@"\n')
    program.chmod(0o755)


@pytest.mark.parametrize("fails", [False, True])
def test_a_connection_that_is_lost_in_the_middle_stops_no_apply(
    host: AgentRoot, fails: bool
) -> None:
    before = host.tree()
    change = request("apply", **host.change(*SETTINGS, confirm_within=300))
    stub(host, "ethtool", '[ "$1" = -L ] && kill -HUP $PPID && echo > "$EDGETUNE_ROOT/stub/cut"')
    stub(host, "systemd-run", "kill -HUP $PPID")
    if fails:
        host.write("stub/ethtool-lies", "")
    process = host.begin(change)
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 0 and errors == b""
    assert host.exists("stub/cut")
    if fails:
        assert without_stubs(host.tree()) == without_stubs(before)
        assert host.leftovers() == {"epoch"}
        return
    assert host.state() == "provisional"
    assert host.ask("confirm", epoch=1, tuning="t", settings=SETTINGS)["confirmed"]


def without_stubs(tree: dict[str, Any]) -> dict[str, Any]:
    return {name: was for name, was in tree.items() if not name.startswith("usr/local/sbin")}


def test_services_do_not_learn_to_ignore_the_hangup(tmp_path: Path) -> None:
    with agent_root(tmp_path / "host", init="systemd") as host:
        stub(host, "systemctl", 'grep SigIgn /proc/self/status > "$EDGETUNE_ROOT/stub/ignored"')
        host.apply(nginx("LimitNOFILE", "65536"))
        ignored = int(host.read("stub/ignored").split()[1], 16)
    assert not ignored & 1 << (signal.SIGHUP - 1)


def test_a_restore_waits_for_a_program_of_a_killed_agent(host: AgentRoot) -> None:
    before = host.tree()
    change = request("apply", **host.change(*SETTINGS))
    stub(
        host,
        "ethtool",
        '[ "$1" = -L ] && [ ! -e "$EDGETUNE_ROOT/stub/killed" ] && '
        'touch "$EDGETUNE_ROOT/stub/killed" && kill -9 $PPID && sleep 1 && '
        'touch "$EDGETUNE_ROOT/stub/ended"',
    )
    process = host.start(change)
    assert process.wait(60) == -signal.SIGKILL
    process.communicate()
    host.restore()
    assert host.exists("stub/ended")
    assert without_stubs(host.tree()) == without_stubs(before)
    assert until(lambda: not host.processes())
    assert without_stubs(host.tree()) == without_stubs(before), "nothing came after it"


def test_of_two_agents_at_once_one_applies_and_the_other_finds_it_done(host: AgentRoot) -> None:
    change = request("apply", **host.change(*SETTINGS))
    processes = [host.begin(change) for _ in range(3)]
    with Host(str(host.path)).lock():
        for process in processes:
            assert process.stdin
            process.stdin.close()
            process.stdin = None
        time.sleep(0.3)
    replies = [process.communicate(timeout=60)[0] for process in processes]
    assert sorted(b'"changed": true' in reply for reply in replies) == [False, False, True]
    assert all(b'"ok": true' in reply for reply in replies)
    assert len([line for line in host.commands if " -L " in line]) == 1
