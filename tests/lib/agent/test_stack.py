# SPDX-License-Identifier: Apache-2.0
"""Tunings that stand on each other, taken back in any order."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetune.agent import unattended, undo
from edgetune.agent.host import Host
from tests.lib.agent.test_faults import settled as settled_with_ranks
from tests.support.agent_root import (
    AgentRoot,
    FullDisk,
    NearRoot,
    channels,
    file,
    nginx,
    request,
    rps,
    sysctl,
    thp,
    unit,
    without_boot_id,
)
from tests.support.dying import killed, steps
from tests.support.examples import examples

pytestmark = pytest.mark.processes

INIT = "systemd"

SOMAXCONN = "proc/sys/net/core/somaxconn"
LOWER = [sysctl("4096"), channels(2), thp("never"), nginx("LimitNOFILE", "65536")]
UPPER = [sysctl("16"), rps("0-1"), file("/etc/app.conf", "b\n"), nginx("LimitNOFILE", "4096")]


def stands(host: AgentRoot, tuning: str, *own: dict[str, Any]) -> bool:
    verified = host.ask("verify", tuning=tuning, settings=list(own))
    return bool(verified["verified"]) and verified["state"] == "confirmed"


MORE, LESS = nginx("LimitNOFILE", "65536"), nginx("LimitNOFILE", "4096")
OLD, NEW = file("/etc/app.conf", "a\n"), file("/etc/app.conf", "b\n")


@pytest.mark.parametrize(
    ("lower", "upper", "name"),
    [
        (sysctl("4096"), sysctl("16"), SOMAXCONN),
        (sysctl("4096"), sysctl("4096"), SOMAXCONN),
        (OLD, NEW, "etc/app.conf"),
        (OLD, OLD, "etc/app.conf"),
        (thp("never"), thp("always"), "sys/kernel/mm/transparent_hugepage/enabled"),
        (channels(2), rps("0-1"), "sys/class/net/eth0/queues/rx-3/rps_cpus"),
        (rps("0-1"), channels(2), "sys/class/net/eth0/queues/rx-1/rps_cpus"),
        (MORE, LESS, "proc/77/limits"),
        (MORE, MORE, "proc/77/limits"),
        (MORE, nginx("Nice", "-5"), "proc/77/stat"),
    ],
)
def test_what_stands_on_a_tuning_outlives_it(
    host: AgentRoot, lower: dict[str, Any], upper: dict[str, Any], name: str
) -> None:
    """It is then as if the lower one had never been."""
    host.write("sys/class/net/eth0/queues/rx-3/rps_cpus", "4\n")
    host.write("etc/app.conf", "old\n").chmod(0o600)
    before = host.tree()
    host.apply(upper, tuning="b")
    alone = {name: was for name, was in host.tree().items() if "edgetune" not in name}
    host.restore("b")
    host.apply(lower, tuning="a")
    host.apply(upper, tuning="b")
    assert host.restore("a")["changed"]
    assert stands(host, "b", upper)
    tree = {name: was for name, was in host.tree().items() if "edgetune" not in name}
    assert tree == alone and name in tree
    assert host.restore("b")["changed"]
    assert host.tree() == before and host.leftovers() == {"epoch"}


def two_tunings(host: AgentRoot) -> None:
    host.apply(*LOWER, tuning="a")
    host.apply(*UPPER, tuning="b")


def carry_on(host: AgentRoot, how: str) -> None:
    """Finish what was left."""
    if how == "boot":
        assert host.boot().stderr == ""
    elif how == "upper first":
        host.restore("b")
    elif how == "restore":
        host.restore("a")
    elif host.state("a") != "none":
        done = host.run_copy("restore", "a")
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("how", "stride"), [("restore", 7), ("boot", 11), ("console", 13), ("upper first", 13)]
)
@pytest.mark.long
def test_killed_at_any_point_it_is_carried_on(host: AgentRoot, how: str, stride: int) -> None:
    before = without_boot_id(host.tree())
    host.apply(*UPPER, tuning="b")
    alone = settled(host)
    host.restore("b")
    restore = request("restore", epoch=1, tuning="a")
    for step in steps(0, stride):
        two_tunings(host)
        both = settled(host)
        died = killed(host, restore, step)
        carry_on(host, how)
        if how != "upper first":
            assert stands(host, "b", *UPPER), step
            ends = (alone, both) if how == "boot" and step < 20 else (alone,)
            assert settled(host) in ends, step
        for name in ("b", "a") if how == "upper first" else ("a", "b"):
            host.restore(name)
        assert without_boot_id(host.tree()) == before and host.leftovers() <= {"epoch"}, step
        if not died:
            assert step > 40
            return


def test_a_disk_that_fills_at_any_point_can_be_emptied(host: AgentRoot) -> None:
    before = host.tree()
    host.apply(*UPPER, tuning="b")
    alone = settled(host)
    host.restore("b")
    for step in steps(0, 3):
        two_tunings(host)
        with host.patch.context() as patch:
            FullDisk(patch, after=step)
            reply = host.send(request("restore", epoch=1, tuning="a"))
        assert reply["ok"] or "No space left" in reply["error"]["message"], reply
        host.restore("a")
        assert stands(host, "b", *UPPER) and settled(host) == alone, step
        host.restore("b")
        assert host.tree() == before and host.leftovers() == {"epoch"}, step
        if reply["ok"]:
            assert step > 5
            return


KEYS = ("net.core.somaxconn", "vm.swappiness")
CHOICES = [
    *(sysctl(value, key) for key in KEYS for value in ("10", "20")),
    sysctl("15", KEYS[0], only="raise"),
    *(file("/etc/app.conf", text) for text in ("1\n", "2\n")),
    *(nginx("LimitNOFILE", value) for value in ("4096", "8192")),
    channels(2),
    rps("0"),
    rps("0-2"),
    unit("x.timer", active="off", enabled="off"),
]
NAMES = ("a", "b", "c")


@st.composite
def tunings(draw: Any) -> list[dict[str, Any]]:
    chosen = draw(st.lists(st.sampled_from(CHOICES), min_size=1, max_size=3))
    return list({own["id"]: own for own in chosen}.values())


STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.booleans(), tunings()), max_size=8)


@examples(10)
@given(STEPS)
def test_a_host_is_as_if_what_was_taken_back_had_never_been(
    steps: list[tuple[str, bool, list[dict[str, Any]]]],
) -> None:
    """Its model is a fresh host on which only what stands was applied, in that order."""
    with tempfile.TemporaryDirectory() as directory:
        host, standing = host_of(Path(directory) / "host"), {}
        before = host.tree()
        for name, retire, own in steps:
            if retire:
                host.restore(name)
                standing.pop(name, None)
            elif name not in standing:
                host.apply(*own, tuning=name)
                standing[name] = own
        model = host_of(Path(directory) / "model")
        for name, own in standing.items():
            model.apply(*own, tuning=name)
        assert files_of(host) == files_of(model)
        assert host.unit("x.timer") == model.unit("x.timer")
        for name in standing:
            host.restore(name)
        assert host.tree() == before and host.unit("x.timer") == ("active", "enabled")


def host_of(path: Path) -> NearRoot:
    host = NearRoot(path, init="systemd")
    host.write("proc/sys/kernel/random/boot_id", "one\n")
    host.make_unit("x.timer")
    return host


def settled(host: AgentRoot) -> dict[str, Any]:
    """The same, however many tunings were applied before."""
    return without_ranks(settled_with_ranks(host))


def files_of(host: AgentRoot) -> dict[str, Any]:
    # What runs the agent at a boot names no tuning, but the file it is in is made by the time.
    return without_ranks({name: was for name, was in host.tree().items() if was[1] is not None})


def without_ranks(tree: dict[str, Any]) -> dict[str, Any]:
    return {re.sub("90-edgetune-[0-9]{4}-", "", name): was for name, was in tree.items()}


def test_what_runs_by_the_end_of_a_boot_is_proven(host: AgentRoot) -> None:
    host.apply(LESS, tuning="a")
    host.apply(MORE, tuning="b")
    host.note("a", state="restoring")
    with host.patch.context() as patch:
        patch.setattr(undo, "restart", lambda *_: None)
        host.write("proc/77/limits", "Max open files  1024  524288  files\n")
        problems = unattended.late(Host(str(host.path)))
    assert problems == ["a: b: service.property:nginx.LimitNOFILE: differs now"]
    assert unattended.late(Host(str(host.path))) == []
    assert host.state("a") == "none" and stands(host, "b", MORE)
