# SPDX-License-Identifier: Apache-2.0
"""What the host agent takes back by itself: failures, its own death, timers and boots."""

from __future__ import annotations

import json
import marshal
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgetune.hosts.agent import bundle, unattended
from edgetune.hosts.agent.boot_hook import BootHook
from edgetune.hosts.agent.dispatch import answer
from edgetune.hosts.agent.host import Host
from edgetune.hosts.agent.journal import Journals
from edgetune.hosts.agent.kept_copy import PROGRAM, dump
from edgetune.hosts.agent.kinds.sysctl import Sysctl
from edgetune.hosts.agent.protocol import Failed
from edgetune.hosts.agent.unattended import boot, revert
from edgetune.hosts.agent.undo import take_back
from edgetune.vocabulary.places import HOOKS
from tests.support.agent_root import (
    THP,
    AgentRoot,
    FullDisk,
    agent_root,
    channels,
    nginx,
    rps,
    sysctl,
    thp,
    until,
)

pytestmark = pytest.mark.processes

EVERYTHING = [
    channels(2),
    rps("0-3"),
    thp("never"),
    sysctl("4096"),
    nginx("LimitNOFILE", "65536"),
]
UNIT = "etc/systemd/system/edgetune.service"
LINK = "etc/systemd/system/multi-user.target.wants/edgetune.service"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentRoot]:
    with agent_root(tmp_path / "host") as root:
        yield root


@pytest.fixture
def systemd_host(tmp_path: Path) -> Iterator[AgentRoot]:
    with agent_root(tmp_path / "host", init="systemd") as root:
        yield root


def confirm(host: AgentRoot, *settings: dict[str, Any]) -> dict[str, Any]:
    return host.ask("confirm", epoch=1, tuning="t", settings=list(settings))


def killed_in_the_middle(host: AgentRoot, request: dict[str, Any]) -> None:
    """ethtool or systemctl does what it is asked, then the agent that called it is killed."""
    host.write("stub/kill-parent", "")
    document = json.dumps({"protocol": 1, "verb": "apply", **request}).encode()
    process = host.start(document)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == -9 and output == b""


@pytest.mark.parametrize("broken", ["ethtool-fails", "ethtool-lies"])
def test_a_change_that_fails_half_way_is_undone_to_the_byte(host: AgentRoot, broken: str) -> None:
    host.write("sys/class/net/eth0/queues/rx-3/rps_cpus", "c\n")
    before = host.tree()
    request = host.change(*EVERYTHING)
    host.write(f"stub/{broken}", "")
    if broken == "ethtool-fails":
        # It fails while it is undone, too: everything else comes back, and the rest later.
        error = host.fail("apply", **request)
        assert "NOT undone: nic.channels:eth0: ethtool -L" in error["message"]
        assert host.state() == "restoring"
        (host.path / f"stub/{broken}").unlink()
        host.restore()
    else:
        error = host.fail("apply", **request)
        assert error["message"].startswith("nic.channels:eth0: reads {'rx': 4, 'tx': 4} after")
        assert error["message"].endswith("; undone")
    assert error["reason"] == ("failed" if broken == "ethtool-fails" else "undone")
    assert host.tree() == before and host.leftovers() == {"epoch"}


def test_what_does_not_come_back_is_told_and_kept_in_mind(host: AgentRoot) -> None:
    """ethtool says that it set the queues, and does not."""
    before = host.tree()
    host.apply(channels(2), thp("never"))
    host.write("stub/ethtool-lies", "")
    error = host.fail("restore", epoch=1, tuning="t")
    assert "nic.channels:eth0: reads {'rx': 2, 'tx': 2} after" in error["message"]
    assert host.state() == "restoring"
    assert host.tree()[f"{THP}/enabled"] == before[f"{THP}/enabled"], "the others are back"
    (host.path / "stub/ethtool-lies").unlink()
    assert host.restore()["changed"]
    assert host.tree() == before and host.leftovers() == {"epoch"}


def test_a_service_that_does_not_come_up_undoes_the_change(host: AgentRoot) -> None:
    before = host.tree()
    request = host.change(*EVERYTHING)
    host.write("stub/restart-fails", "")
    error = host.fail("apply", **request)
    assert error["reason"] == "failed" and "Job for nginx.service failed" in error["message"]
    files = {name for name, was in host.tree().items() if was != before.get(name) and was[1]}
    assert files == {"etc/init.d/S99edgetune"}, "the settings are back at once"
    (host.path / "stub/restart-fails").unlink()
    restored = host.restore()
    assert restored["restarted"] == ["nginx"], "it still ran with what was taken back"
    assert host.tree() == before and host.leftovers() == {"epoch"}


@pytest.mark.parametrize("within", [0, 300])
def test_an_agent_killed_in_the_middle_leaves_what_restore_needs(
    host: AgentRoot, within: float
) -> None:
    before = host.tree()
    killed_in_the_middle(host, host.change(*EVERYTHING, confirm_within=within))
    assert host.tree() != before
    assert host.state() == "applying"
    assert host.restore()["changed"]
    assert host.tree() == before and host.leftovers() == {"epoch"}


def test_a_half_done_change_is_undone_and_then_done_when_it_is_asked_again(
    host: AgentRoot,
) -> None:
    before = host.tree()
    request = host.change(*EVERYTHING)
    killed_in_the_middle(host, request)
    assert host.ask("apply", **request)["changed"]
    assert host.ask("verify", tuning="t", settings=EVERYTHING)["verified"]
    host.restore()
    assert host.tree() == before


def test_an_agent_killed_in_a_restore_is_carried_on_by_the_next(host: AgentRoot) -> None:
    before = host.tree()
    host.apply(*EVERYTHING)
    host.write("stub/kill-parent", "")
    process = host.start(b'{"protocol": 1, "verb": "restore", "epoch": 1, "tuning": "t"}')
    process.communicate(timeout=60)
    assert process.returncode == -9
    assert host.state() == "restoring"
    assert host.restore()["restarted"] == ["nginx"]
    assert host.tree() == before and host.leftovers() == {"epoch"}


def test_a_change_that_is_being_taken_back_is_not_kept(host: AgentRoot) -> None:
    """A restore died before it put anything back: all verifies still, as files keep it."""
    host.apply(sysctl("4096"), confirm_within=300)
    name = "var/lib/edgetune/tunings/t.json"
    host.write(name, json.dumps({**json.loads(host.read(name)), "state": "restoring"}))
    answer = confirm(host, sysctl("4096"))
    assert (answer["verified"], answer["confirmed"], answer["state"]) == (True, False, "restoring")
    host.restore()
    assert host.state() == "none"


def test_an_unconfirmed_change_is_taken_back_by_the_timer(host: AgentRoot) -> None:
    before = host.tree()
    started = time.monotonic()
    result = host.apply(*EVERYTHING, confirm_within=2.5)
    assert result["state"] == "provisional"
    assert until(lambda: host.tree() == before)
    assert time.monotonic() - started > 2.5
    assert until(lambda: not host.processes())
    assert not confirm(host, *EVERYTHING)["confirmed"]
    assert host.leftovers() == {"epoch"}


def test_a_change_killed_in_the_middle_is_taken_back_by_the_timer(host: AgentRoot) -> None:
    before = host.tree()
    killed_in_the_middle(host, host.change(*EVERYTHING, confirm_within=1))
    assert until(lambda: host.tree() == before and not host.processes())


def test_a_confirmed_change_stays_and_its_timer_ends(host: AgentRoot) -> None:
    host.apply(sysctl("4096"), confirm_within=300)
    assert until(host.processes), "the answer does not wait for the timer"
    assert host.exists("etc/init.d/S99edgetune")
    assert confirm(host, sysctl("4096"))["confirmed"]
    assert not host.exists("etc/init.d/S99edgetune"), "nothing needs the boot hook any more"
    assert host.leftovers() == {
        "agent.py",
        "agent.py.source",
        "agent.py.compiled",
        "directories.json",
        "epoch",
        "reserve",
        "tunings/t.json",
    }
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


def test_a_boot_sets_again_what_nothing_else_keeps(host: AgentRoot) -> None:
    settings = [channels(2), rps("0-3"), thp("never")]
    host.apply(*settings)
    hook = host.boot()
    assert (hook.returncode, hook.stderr) == (0, "")
    assert host.read(f"{THP}/enabled") == "never\n"
    verified = host.ask("verify", tuning="t", settings=settings)
    assert verified["verified"] and verified["boot_id"] == host.boot_id


def test_a_boot_takes_an_unconfirmed_change_back(host: AgentRoot) -> None:
    before = host.tree()
    host.apply(*EVERYTHING, confirm_within=300)
    restarts = len([line for line in host.commands if "restart" in line])
    assert host.boot().returncode == 0
    assert len([line for line in host.commands if "restart" in line]) == restarts
    after = host.tree()
    boot_id = "proc/sys/kernel/random/boot_id"
    assert {**after, boot_id: None} == {**before, boot_id: None}
    assert host.leftovers() == {"epoch"}


def test_a_change_survives_its_one_grace_boot_only(host: AgentRoot) -> None:
    settings = [thp("never"), sysctl("4096")]
    host.apply(*settings, confirm_within=300, grace_boots=1)
    host.boot()
    host.run_hook()
    assert host.state() == "provisional", "the same boot is not counted twice"
    assert host.read(f"{THP}/enabled") == "never\n"
    assert host.exists("etc/sysctl.d/90-edgetune-0001-t.conf")
    host.boot()
    assert host.state() == "none"
    assert host.read(f"{THP}/enabled") == "always [madvise] never\n"
    assert not host.exists("etc/sysctl.d")


def test_after_a_grace_boot_the_timer_starts_anew(host: AgentRoot) -> None:
    host.apply(thp("never"), confirm_within=300, grace_boots=1)
    host.stop()
    before = host.deadline()
    host.boot()
    assert host.read(f"{THP}/enabled") == "never\n"
    assert host.deadline() > before and until(host.processes)
    host.let_deadline_pass()
    assert until(lambda: host.read(f"{THP}/enabled") == "always [madvise] never\n")
    assert until(lambda: not host.processes())
    assert host.state() == "none"


def test_after_a_grace_boot_a_change_can_be_confirmed(host: AgentRoot) -> None:
    host.apply(thp("never"), confirm_within=300, grace_boots=1)
    host.stop()
    host.boot()
    assert confirm(host, thp("never"))["confirmed"]
    host.boot()
    assert host.read(f"{THP}/enabled") == "never\n"


def test_a_boot_takes_back_what_died_half_way(host: AgentRoot) -> None:
    before = host.tree()
    killed_in_the_middle(host, host.change(*EVERYTHING))
    host.boot()
    boot_id = "proc/sys/kernel/random/boot_id"
    assert {**host.tree(), boot_id: None} == {**before, boot_id: None}


def test_a_boot_takes_back_what_died_half_way_without_anything_for_the_hook(
    host: AgentRoot,
) -> None:
    before = host.tree()
    settings = [sysctl("4096"), nginx("LimitNOFILE", "65536")]
    killed_in_the_middle(host, host.change(*settings))
    assert host.boot().stderr == ""
    boot_id = "proc/sys/kernel/random/boot_id"
    assert {**host.tree(), boot_id: None} == {**before, boot_id: None}
    assert host.leftovers() == {"epoch"}


def test_what_files_keep_needs_no_hook_once_it_is_done(host: AgentRoot) -> None:
    host.apply(sysctl("4096"))
    assert host.leftovers() == {
        "agent.py",
        "agent.py.source",
        "agent.py.compiled",
        "directories.json",
        "epoch",
        "reserve",
        "tunings/t.json",
    }
    assert not host.exists("etc/init.d/S99edgetune")


def test_a_full_disk_stops_no_restore(host: AgentRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    before = host.tree()
    host.apply(*EVERYTHING)
    assert (host.path / "var/lib/edgetune/reserve").stat().st_size > 256 * 1024
    FullDisk(monkeypatch)
    request = b'{"protocol": 1, "verb": "restore", "epoch": 2, "tuning": "t"}'
    assert answer(str(host.path), request)["ok"]
    assert host.tree() == before and host.leftovers() == {"epoch"}
    assert host.read("var/lib/edgetune/epoch") == "2\n"


def test_a_disk_without_any_room_stops_no_revert_of_what_is_not_confirmed(
    systemd_host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = systemd_host
    before = host.tree()
    host.apply(*EVERYTHING, confirm_within=300)
    (host.path / "var/lib/edgetune/reserve").unlink()
    FullDisk(monkeypatch)
    own = Host(str(host.path))
    journal = Journals(own).load("t")
    assert journal and journal.state == "provisional"
    take_back(own, journal)
    assert host.tree() == before and host.leftovers() == {"epoch"}


def test_a_hook_that_is_there_already_needs_no_room(
    host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.apply(thp("never"))
    FullDisk(monkeypatch)
    BootHook(Host(str(host.path))).sync()


def test_a_boot_that_cannot_set_the_timer_takes_the_change_back(systemd_host: AgentRoot) -> None:
    host = systemd_host
    host.apply(thp("never"), confirm_within=300, grace_boots=1)
    (host.path / "usr/local/sbin/systemd-run").unlink()
    hook = host.boot()
    assert hook.returncode == 1
    assert hook.stderr == (
        "edgetune: t: taken back, as its timer cannot be set: there is no program systemd-run\n"
    )
    assert host.state() == "none"
    assert host.read(f"{THP}/enabled") == "always [madvise] never\n"


def test_a_journal_of_a_newer_agent_blocks_no_other(host: AgentRoot) -> None:
    host.apply(thp("never"), tuning="good")
    host.apply(sysctl("4096"), tuning="newer")
    journal = host.read("var/lib/edgetune/tunings/newer.json")
    host.write(
        "var/lib/edgetune/tunings/newer.json",
        journal.replace('"kind": "sysctl"', '"kind": "disk.queue"'),
    )
    with (host.path / "var/lib/edgetune/agent.py").open("a") as file:
        file.write("# newer\n")
    hook = host.boot()
    assert hook.returncode == 1
    assert hook.stderr.startswith(
        "edgetune: the journal /var/lib/edgetune/tunings/newer.json is of"
    )
    assert host.read(f"{THP}/enabled") == "never\n"
    error = host.fail("restore", epoch=1, tuning="newer")
    assert "another version of edgetune, which knows the kind 'disk.queue'" in error["message"]
    assert error["message"].endswith("python3 /var/lib/edgetune/agent.py restore newer")
    assert (
        host.fail("apply", **host.change(sysctl("1"), tuning="new"))["message"] == error["message"]
    )
    assert host.restore("good")["changed"]
    assert host.read("var/lib/edgetune/agent.py").endswith("# newer\n")


def test_a_boot_goes_on_after_what_nobody_foresaw(
    host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.apply(thp("never"), tuning="first")
    host.apply(sysctl("4096"), tuning="second")
    host.write(f"{THP}/enabled", "always [madvise] never\n")
    name = "var/lib/edgetune/tunings/second.json"
    host.write(name, host.read(name).replace('"confirmed"', '"provisional"'))
    monkeypatch.setattr(Sysctl, "restore", lambda *given: {}["nosuch"])
    problems = boot(Host(str(host.path)))
    assert len(problems) == 1 and "KeyError: 'nosuch'" in problems[0]
    assert host.read(f"{THP}/enabled") == "never\n"


@pytest.mark.parametrize("snapshot", [None, "128", ["128"]])
def test_a_snapshot_that_is_none_of_its_kind_is_named(host: AgentRoot, snapshot: object) -> None:
    host.apply(sysctl("4096"))
    journal = json.loads(host.read("var/lib/edgetune/tunings/t.json"))
    journal["entries"][0]["snapshot"] = snapshot
    host.write("var/lib/edgetune/tunings/t.json", json.dumps(journal))
    error = host.fail("restore", epoch=1, tuning="t")
    assert "TypeError: the journal holds no mapping" in error["message"]
    assert host.state("t") == "restoring"


def test_a_damaged_journal_is_named_and_blocks_no_other(host: AgentRoot) -> None:
    host.apply(thp("never"), tuning="good")
    host.write("var/lib/edgetune/tunings/bad.json", '{"journal": 1}')
    known = host.ask("facts")["agent_state"]["tunings"]
    assert known["bad"]["state"] == "damaged"
    error = host.fail("restore", epoch=1, tuning="bad")
    assert error["reason"] == "failed" and "bad.json is damaged" in error["message"]
    error = host.fail("apply", **host.change(sysctl("1"), tuning="new"))
    assert error["reason"] == "refused" and "bad.json is damaged" in error["message"]
    hook = host.boot()
    assert hook.returncode == 1 and "bad.json is damaged" in hook.stderr
    assert host.read(f"{THP}/enabled") == "never\n"
    assert host.restore("good")["changed"]


def test_systemd_gets_a_unit_and_a_timer(systemd_host: AgentRoot) -> None:
    host = systemd_host
    before = host.tree()
    host.apply(thp("never"), confirm_within=300, grace_boots=1)
    # Else it would be after sysinit.target, which waits for what waits for network-pre.target.
    assert "DefaultDependencies=no" in host.read(UNIT)
    assert "ExecStart=" in host.read(UNIT)
    assert (host.path / LINK).resolve() == host.path / UNIT
    timer = next(line for line in host.commands if line.startswith("systemd-run"))
    assert "--no-block --unit=edgetune-revert-t --on-active=300s" in timer
    assert timer.endswith("/var/lib/edgetune/agent.py revert t")
    assert not host.processes(), "the timer is systemd's"
    host.boot()
    assert len([line for line in host.commands if line.startswith("systemd-run")]) == 2
    assert confirm(host, thp("never"))["confirmed"]
    assert host.commands[-1] == "systemctl --no-block stop edgetune-revert-t.timer"
    # What systemd does not know is not named again: it would complain of that in its journal.
    done = len(host.commands)
    host.restore()
    asked = [line for line in host.commands[done:] if "edgetune-revert" in line]
    assert asked and all(line.startswith("systemctl show -p LoadState ") for line in asked)
    host.write("proc/sys/kernel/random/boot_id", "")
    boot_id = "proc/sys/kernel/random/boot_id"
    assert {**host.tree(), boot_id: None} == {**before, boot_id: None}
    assert host.leftovers() == {"epoch"}


def test_the_boot_unit_is_one_that_systemd_takes(systemd_host: AgentRoot, tmp_path: Path) -> None:
    systemd_host.apply(thp("never"))
    unit = tmp_path / "edgetune.service"
    unit.write_text(systemd_host.read(UNIT))
    program = shutil.which("systemd-analyze") or pytest.skip("there is no systemd-analyze here")
    done = subprocess.run(
        [program, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
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
    assert until(lambda: '"restoring"' in host.read("var/lib/edgetune/tunings/t.json"))
    time.sleep(0.3)
    (host.path / "stub/ethtool-fails").unlink()
    timer.join(60)
    assert not timer.is_alive()
    assert host.tree() == before and host.leftovers() == {"epoch"}


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


def test_what_the_timer_of_systemd_runs(systemd_host: AgentRoot) -> None:
    host = systemd_host
    before = host.tree()
    host.apply(thp("never"), confirm_within=0.2)
    timer = next(line for line in host.commands if line.startswith("systemd-run"))
    command = timer.split(" -- ")[1].split()
    subprocess.run(command, env=host.environment, check=True, timeout=60)
    assert host.tree() == before and host.leftovers() == {"epoch"}


def test_a_timer_of_another_boot_takes_nothing_back(systemd_host: AgentRoot) -> None:
    """The clock of its deadline began anew: only the hook of this boot knows what is due."""
    host = systemd_host
    host.apply(thp("never"), confirm_within=300, grace_boots=1)
    host.let_deadline_pass()
    host.new_boot_id()
    assert host.run_copy("revert", "t").returncode == 0
    assert host.read(f"{THP}/enabled") == "never\n" and host.state() == "provisional"


def test_a_service_that_is_still_starting_after_a_boot_is_waited_for(host: AgentRoot) -> None:
    settings = [nginx("LimitNOFILE", "65536")]
    host.apply(*settings)
    host.write("stub/nginx/state", "inactive\n")
    starter = threading.Timer(0.5, host.write, ("stub/nginx/state", "active\n"))
    starter.start()
    assert host.ask("verify", tuning="t", settings=settings)["verified"]
    starter.join()


@pytest.mark.parametrize(
    "arguments", [["apply"], ["restore"], ["boot", "now"], ["revert", "a", "b"]]
)
def test_the_copy_on_disk_says_what_it_can_do(host: AgentRoot, arguments: list[str]) -> None:
    host.apply(thp("never"))
    done = host.run_copy(*arguments)
    assert done.returncode == 1 and "usage: agent.py boot | agent.py revert TUNING" in done.stderr


@pytest.mark.parametrize("settings", [EVERYTHING, [sysctl("4096")]])
def test_a_person_at_the_console_takes_a_tuning_back(
    host: AgentRoot, settings: list[dict[str, Any]]
) -> None:
    before = host.tree()
    host.apply(*settings, epoch=7)
    unknown = host.run_copy("restore", "../t")
    assert (unknown.returncode, unknown.stderr) == (
        1,
        "edgetune: ../t: there is no such tuning on this host; there are: t\n",
    )
    done = host.run_copy("restore", "t")
    assert (done.returncode, done.stderr) == (0, "")
    first, last = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert "4096" in done.stdout and first.startswith(settings[0]["id"])
    assert last.startswith("t is taken back; restarted: ")
    assert host.tree() == before and host.leftovers() == {"epoch"}


def test_the_console_takes_back_what_another_tuning_stands_on(host: AgentRoot) -> None:
    before = host.tree()
    host.apply(sysctl("4096"), tuning="a")
    host.apply(sysctl("16"), tuning="b")
    assert host.run_copy("restore", "a").returncode == 0
    assert host.read("proc/sys/net/core/somaxconn") == "16\n"
    assert host.run_copy("restore", "b").returncode == 0
    assert host.tree() == before


def test_a_journal_of_another_format_is_left_to_its_own_agent(host: AgentRoot) -> None:
    host.apply(sysctl("4096"))
    before = host.tree()
    name = "var/lib/edgetune/tunings/t.json"
    host.write(name, host.read(name).replace('"journal": 1', '"journal": 2'))
    requests: list[tuple[str, dict[str, Any]]] = [
        ("restore", {}),
        ("restore", {"live": []}),
        ("confirm", {"settings": [sysctl("4096")]}),
    ]
    for verb, fields in requests:
        error = host.fail(verb, epoch=1, tuning="t", **fields)
        assert error["reason"] == "failed"
        assert (
            "is of another version of edgetune, which writes journals 2, not 1" in error["message"]
        )
        assert error["message"].endswith(
            "on the host: python3 /var/lib/edgetune/agent.py restore t"
        )
    assert host.ask("facts")["agent_state"]["tunings"]["t"]["state"] == "damaged"
    assert host.tree() == before


def test_another_rollout_takes_nothing_back(host: AgentRoot) -> None:
    host.apply(*EVERYTHING)
    applied = host.tree()
    answer = host.ask("restore", epoch=1, tuning="t", rollout="somebody-else")
    assert (answer["changed"], answer["nothing_to_restore"]) == (False, True)
    assert host.tree() == applied


SOURCE = "var/lib/edgetune/agent.py.source"
COMPILED = "var/lib/edgetune/agent.py.compiled"


def test_a_boot_finds_the_agent_compiled(host: AgentRoot) -> None:
    host.apply(thp("never"))
    kept = (host.path / COMPILED).read_bytes()
    assert len(kept) > 100_000 and not (host.path / COMPILED).stat().st_mode & 0o077
    assert host.boot().stderr == "" and host.read(f"{THP}/enabled") == "never\n"
    assert (host.path / COMPILED).read_bytes() == kept
    host.restore()
    assert host.leftovers() == {"epoch"}


def test_the_compiled_agent_is_what_a_boot_runs(host: AgentRoot) -> None:
    host.apply(thp("never"))
    source = host.read(SOURCE)
    code = {"edgetune.hosts.agent.__main__": compile("1 / 0", "none of ours", "exec")}
    _keep(host, code, source)
    assert "none of ours" in host.run_hook().stderr


def test_the_compiled_agent_is_what_a_request_runs(host: AgentRoot) -> None:
    host.ask("sample")
    assert not (host.path / COMPILED).exists(), "a request that changes nothing leaves nothing"
    host.apply(thp("never"))
    code = {"edgetune.hosts.agent.verbs.sample": compile("1 / 0", "none of ours", "exec")}
    _keep(host, code, host.read(SOURCE))
    assert host.fail("sample")["message"] == "ZeroDivisionError: division by zero"
    assert host.ask("facts"), "what lies there is a part, and the rest is compiled"


def test_the_compiled_agent_stays_with_the_text_where_no_hook_is_needed(host: AgentRoot) -> None:
    host.apply(sysctl("4096"))
    assert not any((host.path / name[1:]).exists() for name in HOOKS)
    assert (host.path / COMPILED).exists()
    host.restore()
    assert host.leftovers() == {"epoch"}


def test_a_boot_compiles_no_text_that_lies_compiled(host: AgentRoot) -> None:
    host.apply(thp("never"))
    _keep(host, {PROGRAM: compile("raise SystemExit(3)", "of ours", "exec")}, host.read(SOURCE))
    assert host.run_hook().returncode == 3


@pytest.mark.parametrize(
    "what", ["none", "short", "empty", "another Python", "another text", "bits"]
)
def test_a_compiled_agent_that_is_not_whole_is_compiled_anew(host: AgentRoot, what: str) -> None:
    host.apply(thp("never"))
    path = host.path / COMPILED
    kept = path.read_bytes()
    if what == "none":
        path.unlink()
    elif what == "another text":
        with (host.path / SOURCE).open("a") as file:
            file.write("\n")
    else:
        damaged = {
            "short": kept[:-1],
            "empty": b"",
            "another Python": b"\0" + kept[1:],
            "bits": kept[:5000] + bytes([kept[5000] ^ 1]) + kept[5001:],
        }
        path.write_bytes(damaged[what])
    assert host.ask("sample")
    hook = host.boot()
    assert hook.stderr == "" and host.read(f"{THP}/enabled") == "never\n"
    host.restore()
    assert host.leftovers() == {"epoch"}


def test_without_room_for_the_compiled_agent_there_is_none(
    host: AgentRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, code = b"source", {"a": compile("1", "a", "exec")}
    monkeypatch.setattr(bundle, "received", source)
    monkeypatch.setattr(bundle, "compiled", code)
    near = Host(str(host.path))
    host.apply(thp("never"))
    before = (host.path / COMPILED).read_bytes()
    FullDisk(monkeypatch)
    BootHook(near)._keep_compiled()
    assert (host.path / COMPILED).read_bytes() == before


def _keep(host: AgentRoot, code: dict[str, Any], source: str) -> None:
    modules = {name: marshal.dumps(own) for name, own in code.items()}
    (host.path / COMPILED).write_bytes(dump(source.encode(), modules))
