# SPDX-License-Identifier: Apache-2.0
"""What the host agent takes back by itself: failures, its own death, timers and boots."""

from __future__ import annotations

import marshal
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.agent import bundle, unattended
from edgetune.agent.boot_hook import BootHook
from edgetune.agent.host import Host
from edgetune.agent.journal import Journals
from edgetune.agent.kept_copy import PROGRAM, dump
from edgetune.agent.kinds.sysctl import Sysctl
from edgetune.agent.protocol import Failed
from edgetune.agent.unattended import boot, revert
from edgetune.agent.undo import take_back
from tests.support.agent_root import (
    THP,
    AgentRoot,
    FullDisk,
    agent_root,
    channels,
    near_root,
    nginx,
    request,
    rps,
    sysctl,
    thp,
    until,
    without_boot_id,
)

pytestmark = pytest.mark.processes

EVERYTHING = [
    *(channels(2), rps("0-3"), thp("never"), sysctl("4096")),
    nginx("LimitNOFILE", "65536"),
]
UNIT = "etc/systemd/system/edgetune.service"
HOOK = "etc/init.d/S99edgetune"
ENABLED = f"{THP}/enabled"
OLD_THP = "always [madvise] never\n"
KEPT = {
    *("agent.py", "agent.py.source", "agent.py.compiled", "directories.json"),
    *("epoch", "reserve", "tunings/t.json"),
}
"""What is left of the agent beside a tuning that no hook keeps."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with agent_root(tmp_path / "host") as root:
        yield root


@pytest.fixture
def near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentRoot]:
    """One that is asked in this process."""
    with near_root(tmp_path / "host", patch=monkeypatch) as root:
        yield root


@pytest.fixture
def systemd_host(tmp_path: Path) -> Iterator[AgentRoot]:
    with agent_root(tmp_path / "host", init="systemd") as root:
        yield root


def killed_in_the_middle(host: AgentRoot, **fields: Any) -> None:
    """ethtool or systemctl does what it is asked, then the agent that called it is killed."""
    host.write("stub/kill-parent", "")
    process = host.start(request("apply", **fields))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == -9 and output == b""


def is_as(host: AgentRoot, before: dict[str, Any]) -> bool:
    """Whether a host is as before, and nothing but the fence tells of us."""
    same = without_boot_id(host.tree()) == without_boot_id(before)
    return same and host.leftovers() == {"epoch"}


@pytest.mark.parametrize("then", ["apply", "timer"])
def test_what_an_agent_killed_in_the_middle_left_is_carried_on(host: AgentRoot, then: str) -> None:
    """By a restore or a boot after every step: `test_faults.py`."""
    before = host.tree()
    change = host.change(*EVERYTHING, confirm_within=1 if then == "timer" else 0)
    killed_in_the_middle(host, **change)
    if then == "apply":
        assert host.state() == "applying"
        assert host.ask("apply", **change)["changed"] and host.verifies(*EVERYTHING)
        host.restore()
    assert until(lambda: is_as(host, before) and not host.processes())


def test_an_unconfirmed_change_is_taken_back_by_the_timer(host: AgentRoot) -> None:
    before = host.tree()
    started = time.monotonic()
    result = host.apply(*EVERYTHING, confirm_within=2.5)
    assert result["state"] == "provisional"
    assert until(lambda: host.tree() == before)
    assert time.monotonic() - started > 2.5
    assert until(lambda: not host.processes())
    assert not host.confirm(*EVERYTHING)["confirmed"]
    assert host.leftovers() == {"epoch"}


def test_a_confirmed_change_stays_and_its_timer_ends(host: AgentRoot) -> None:
    host.apply(sysctl("4096"), confirm_within=300)
    assert until(host.processes), "the answer does not wait for the timer"
    assert host.exists(HOOK)
    assert host.confirm(sysctl("4096"))["confirmed"]
    assert not host.exists(HOOK), "nothing needs the boot hook any more"
    assert host.leftovers() == KEPT
    assert until(lambda: not host.processes())
    assert host.read("proc/sys/net/core/somaxconn") == "4096\n"
    assert host.state() == "confirmed"


def test_the_timer_of_an_earlier_change_leaves_the_next_one_alone(host: AgentRoot) -> None:
    host.apply(sysctl("4096"), confirm_within=1)
    host.restore()
    host.apply(sysctl("8192"), confirm_within=300)
    time.sleep(1.5)
    assert host.state() == "provisional"
    assert host.read("proc/sys/net/core/somaxconn") == "8192\n"


@pytest.mark.parametrize("confirmed", [True, False])
def test_after_a_grace_boot_the_timer_starts_anew(host: AgentRoot, confirmed: bool) -> None:
    host.apply(thp("never"), confirm_within=300, grace_boots=1)
    host.stop()
    before = host.deadline()
    host.boot()
    assert host.read(ENABLED) == "never\n"
    assert host.deadline() > before and until(host.processes)
    if confirmed:
        assert host.confirm(thp("never"))["confirmed"]
        host.boot()
    else:
        host.let_deadline_pass()
    wanted = ("never\n", "confirmed") if confirmed else (OLD_THP, "none")
    assert until(lambda: host.read(ENABLED) == wanted[0] and not host.processes())
    assert host.state() == wanted[1]


def test_a_disk_without_any_room_stops_no_revert_of_what_is_not_confirmed(
    systemd_host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = systemd_host.tree()
    systemd_host.apply(*EVERYTHING, confirm_within=300)
    (systemd_host.path / "var/lib/edgetune/reserve").unlink()
    FullDisk(monkeypatch)
    own = Host(str(systemd_host.path))
    journal = Journals(own).load("t")
    assert journal and journal.state == "provisional"
    take_back(own, journal)
    assert is_as(systemd_host, before)


def test_what_a_hook_needs_is_there_already_where_there_is_no_room(near: AgentRoot) -> None:
    near.apply(thp("never"))
    before = (near.path / COMPILED).read_bytes()
    FullDisk(near.patch)
    BootHook(Host(str(near.path))).sync()
    near.patch.setattr(bundle, "received", b"source")
    near.patch.setattr(bundle, "compiled", {"a": compile("1", "a", "exec")})
    BootHook(Host(str(near.path)))._keep_compiled()
    assert (near.path / COMPILED).read_bytes() == before


def test_a_boot_goes_on_after_what_nobody_foresaw(near: AgentRoot) -> None:
    near.apply(thp("never"), tuning="first")
    near.apply(sysctl("4096"), tuning="second")
    near.write(ENABLED, OLD_THP)
    near.note("second", state="provisional")
    near.patch.setattr(Sysctl, "restore", lambda *given: {}["nosuch"])
    (problem,) = boot(Host(str(near.path)))
    assert "KeyError: 'nosuch'" in problem and near.read(ENABLED) == "never\n"


def test_the_boot_unit_is_one_that_systemd_takes(systemd_host: AgentRoot, tmp_path: Path) -> None:
    systemd_host.apply(thp("never"))
    unit = tmp_path / "edgetune.service"
    unit.write_text(systemd_host.read(UNIT))
    program = shutil.which("systemd-analyze") or pytest.skip("there is no systemd-analyze here")
    command = [program, "verify", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "edgetune" not in done.stdout + done.stderr


def test_the_timer_tries_until_all_is_back(
    systemd_host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = systemd_host
    before = host.tree()
    host.apply(*EVERYTHING, confirm_within=0.1)
    host.write("stub/ethtool-fails", "")
    monkeypatch.setattr(unattended, "REVERT_AGAIN", 0.05)
    timer = threading.Thread(target=revert, args=(Host(str(host.path)), "t"))
    timer.start()
    assert until(lambda: host.journal()["state"] == "restoring")
    time.sleep(0.3)
    (host.path / "stub/ethtool-fails").unlink()
    timer.join(60)
    assert not timer.is_alive()
    assert is_as(host, before)


def test_the_timer_tries_ever_less_often(
    systemd_host: AgentRoot, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each try restarts the services again, which serve in between."""
    pauses: list[float] = []
    fails = iter([True] * 8 + [False])

    def revert_if_due(host: Host, tuning: str) -> bool:
        if next(fails):
            raise Failed("it fails")
        return False

    monkeypatch.setattr(unattended, "_revert_if_due", revert_if_due)
    monkeypatch.setattr(time, "sleep", pauses.append)
    revert(Host(str(systemd_host.path)), "t")
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300]
    assert "edgetune: t: it fails" in capsys.readouterr().err


def test_a_service_that_is_still_starting_after_a_boot_is_waited_for(near: AgentRoot) -> None:
    near.apply(EVERYTHING[-1])
    near.write("stub/nginx/state", "inactive\n")
    starter = threading.Timer(0.5, near.write, ("stub/nginx/state", "active\n"))
    starter.start()
    assert near.verifies(EVERYTHING[-1])
    starter.join()


LIVE = {"epoch": 1, "tuning": "t", "live": ["sysctl:net.core.somaxconn"]}


def restarts(host: AgentRoot) -> int:
    return len([line for line in host.commands if "restart" in line])


@pytest.mark.parametrize("confirmed", [True, False])
def test_the_timer_finishes_what_is_half_way_back_and_provisional_alone(
    host: AgentRoot, confirmed: bool
) -> None:
    before = host.tree()
    host.apply(*EVERYTHING, confirm_within=300)
    if confirmed:
        assert host.confirm(*EVERYTHING)["confirmed"]
    assert host.ask("restore", **LIVE)["changed"]
    between, restarted = host.tree(), restarts(host)
    assert between != before
    if not confirmed:
        host.let_deadline_pass()
    wanted = between if confirmed else before
    assert until(lambda: host.tree() == wanted and not host.processes())
    assert host.state() == ("restoring" if confirmed else "none")
    assert not confirmed or restarts(host) == restarted


def test_the_copy_on_disk_says_what_it_can_do(host: AgentRoot) -> None:
    host.apply(thp("never"))
    for arguments in (["apply"], ["restore"], ["boot", "now"], ["revert", "a", "b"]):
        done = host.run_copy(*arguments)
        assert done.returncode == 1, arguments
        assert "usage: agent.py boot | agent.py revert TUNING" in done.stderr, arguments


SOURCE = "var/lib/edgetune/agent.py.source"
COMPILED = "var/lib/edgetune/agent.py.compiled"


def keep_compiled(host: AgentRoot, module: str, text: str, name: str) -> None:
    modules = {module: marshal.dumps(compile(text, name, "exec"))}
    (host.path / COMPILED).write_bytes(dump((host.path / SOURCE).read_bytes(), modules))


def test_the_compiled_agent_is_what_a_boot_and_a_request_run(host: AgentRoot) -> None:
    host.ask("sample")
    assert not (host.path / COMPILED).exists(), "a request that changes nothing leaves nothing"
    host.apply(thp("never"))
    keep_compiled(host, "edgetune.agent.__main__", "1 / 0", "none of ours")
    assert "none of ours" in host.run_hook().stderr
    keep_compiled(host, "edgetune.agent.verbs.sample", "1 / 0", "none of ours")
    assert host.fail("sample")["message"] == "ZeroDivisionError: division by zero"
    assert host.ask("facts"), "what lies there is a part, and the rest is compiled"
    keep_compiled(host, PROGRAM, "raise SystemExit(3)", "of ours")
    assert host.run_hook().returncode == 3, "no text is compiled that lies compiled"


@pytest.mark.parametrize(
    "what", ["none", "short", "empty", "another Python", "another text", "bits"]
)
def test_a_compiled_agent_that_is_not_whole_is_compiled_anew(host: AgentRoot, what: str) -> None:
    host.apply(thp("never"))
    path = host.path / COMPILED
    kept = path.read_bytes()
    damaged = {
        "short": kept[:-1],
        "empty": b"",
        "another Python": b"\0" + kept[1:],
        "bits": kept[:5000] + bytes([kept[5000] ^ 1]) + kept[5001:],
    }
    if what == "none":
        path.unlink()
    elif what == "another text":
        host.write(SOURCE, host.read(SOURCE) + "\n")
    else:
        path.write_bytes(damaged[what])
    assert host.ask("sample")
    assert host.boot().stderr == "" and host.read(ENABLED) == "never\n"
    host.restore()
    assert host.leftovers() == {"epoch"}
