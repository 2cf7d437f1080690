# SPDX-License-Identifier: Apache-2.0
"""The chaos harness: seeds decide everything, the auditor can fail, and some seeds are run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import chaos
from bench._mutation import Edit
from bench.chaos import auditor, breakage, sabotage
from bench.chaos.auditor import Broken, End, Faults, Stop, Window
from bench.chaos.rounds import QUICK
from bench.chaos.run import why_not_counted
from bench.chaos.schedule import KINDS, SCENARIOS, Fault, Moment, make_schedule
from bench.chaos.sight import HostState, Sight, Watch, lines_of, look_at_all
from bench.chaos.stage import Note, Report
from lab import pop as lab
from tests.lab.test_pop import haproxy
from tests.support import ROOT
from tests.support.cases import cases
from tests.support.waiting import about, wait_until

# Six kinds of faults, early enough to come to pass. `bench.chaos --seeds 1-60` holds every kind.
SEEDS = (121875, 5331)
needs_lab = pytest.mark.skipif(
    bool(chaos.missing_requirements()),
    reason=f"the harness needs {', '.join(chaos.missing_requirements())}",
)

CONF = "etc/sysctl.d/90-edgetune-accept_queue.conf"
JOURNAL = "var/lib/edgetune/tunings/accept_queue.json"
RUNTIME = "proc/sys/net/core/somaxconn"
OLD = HostState({"etc/hosts": "1", RUNTIME: "8"}, "8", "", {}, False)
NEW = HostState(
    {"etc/hosts": "1", RUNTIME: "4096", CONF: "2", JOURNAL: "3"},
    *("4096", "4096", {"accept_queue": "confirmed"}, False),
)
HALF = HostState({"etc/hosts": "1", RUNTIME: "4096"}, "4096", "", {}, False)


def _seen(time: float, boots: int = 1, tuned: Iterable[str] = (), **admin: str) -> Sight:
    """Four servers; "down" is ready, but its check does not pass."""
    states = {f"e00{n}": admin.get(f"e00{n}", "ready") for n in range(4)}
    servers = {
        name: ("ready" if state == "down" else state, state != "down")
        for name, state in states.items()
    }
    return Sight(time, servers, {"e000": boots}, frozenset(tuned))


def _end(outcome: str = "rolled_back", **more: Any) -> End:
    return End(outcome, "accept_queue", "4096", **more)


def _of(found: Iterator[Broken]) -> list[str]:
    return [broken.what for broken in found]


def test_a_seed_decides_everything_and_sixty_hold_every_scenario_and_every_fault() -> None:
    schedules = [make_schedule(seed) for seed in range(1, 61)]
    assert [make_schedule(seed) for seed in range(1, 61)] == schedules
    assert schedules[6] != schedules[7]
    assert {each.scenario for each in schedules} == set(SCENARIOS)
    assert {fault.kind for each in schedules for fault in each.faults} == set(KINDS)
    moments = {fault.moment.event for each in schedules for fault in each.faults}
    assert moments == {"start", "drain", "maint", "boot", "ready"}
    assert set(KINDS) <= set(breakage.KINDS)


def test_a_seed_meets_hosts_of_the_rollout_and_breaks_nothing_more_while_all_is_stopped() -> None:
    for seed in range(300):
        faults = make_schedule(seed).faults
        later = any(fault.moment.event != "start" for fault in faults)
        assert later or faults[0].before_the_plan
        kinds = {fault.kind for fault in faults}
        assert "stop" not in kinds or kinds <= {"stop", "action", "runner", "agent", "sshd"}


def test_a_request_is_excused_only_by_a_fault_in_its_time() -> None:
    lost = [{"time": 20.0, "after": 5.0, "path": "/short", "host": None, "reason": "no answer"}]
    unready = [{"time": 20.0, "path": "/short", "host": "e001"}]
    assert _of(auditor.requests(lost, unready, Faults())) == [
        "/short lost after 5.0 s at None: no answer",
        "/short answered by e001, which was not ready",
    ]
    early, during, late = Window(10.0, 14.9), Window(14.0, 15.1), Window(20.1)
    assert len(_of(auditor.requests(lost, [], Faults(lost=[early, late])))) == 1
    assert not _of(auditor.requests(lost, [], Faults(lost=[during])))
    assert len(_of(auditor.requests([], unready, Faults(unready=[during])))) == 1
    assert not _of(auditor.requests([], unready, Faults(unready=[Window(19.0)])))


@pytest.mark.parametrize("case", cases(Path(__file__).parent / "cases/auditor.yaml"))
def test_the_auditor_finds_what_breaks_a_promise_and_nothing_else(case: dict[str, Any]) -> None:
    sights = [_seen(sight[0], **(sight[1] if len(sight) > 1 else {})) for sight in case["sights"]]
    rebooted = [(host, Window(*times)) for host, *times in case.get("rebooted", [])]
    faults = Faults(forgot=case.get("forgot", []), boots=rebooted)
    promise = getattr(auditor, case["promise"])
    assert _of(promise(sights, *case["given"], faults)) == case["found"]


def test_a_change_while_nothing_may_be_touched_is_reported() -> None:
    """While all was stopped, where addresses were exchanged, and by asking again."""
    stop, changed = Stop(10, 20, {"e000": OLD}, {"e000": OLD}), {"e000": HALF}
    soon = [_seen(9), _seen(11.5, e000="drain")]
    assert not _of(auditor.stopped(soon, [stop]))
    later = [*soon, _seen(15, e000="maint"), _seen(16, boots=2, e000="maint"), _seen(21)]
    assert _of(auditor.stopped(later, [stop])) == [
        "e000 became maint while all was stopped",
        "e000 booted while all was stopped",
    ]
    (what,) = _of(auditor.stopped(soon, [replace(stop, after=changed)]))
    assert what.startswith("e000 changed while all was stopped: runs 4096")

    assert _of(auditor.untouched([_seen(0), _seen(10, e001="down")])) == []
    sights = [_seen(0), _seen(10, e001="drain"), _seen(20, boots=2, tuned=["e002"], e001="drain")]
    assert _of(auditor.untouched(sights)) == [
        "e001 became drain although addresses were exchanged",
        "e000 booted although addresses were exchanged",
        "e002 was changed although addresses were exchanged",
    ]

    sights = [_seen(0), _seen(10, e000="drain"), _seen(20)]
    assert not _of(auditor.repeated({"e000": OLD}, {"e000": OLD}, sights, 25))
    assert _of(auditor.repeated({"e000": OLD}, changed, sights, 15)) == [
        "e000 changed by asking again: runs 4096, stored nothing, no journal; "
        "different: proc/sys/net/core/somaxconn",
        "e000 became ready by asking again",
    ]
    # Nor is a host quarantined that no fault met.
    end, unmet = _end(quarantined=["e000", "e001"]), "e001 is quarantined, and no fault met it"
    assert _of(auditor.quarantines(end, Faults(quarantined={"e000"}))) == [unmet]
    assert not _of(auditor.quarantines(end, Faults(quarantined={"e000", "e001", "e002"})))


POWER = Fault("power", "e000", Moment("drain", 1, 1.0), 2.0)
MET = (POWER, 11, 13, "")
IN_HANDS = "the rollout had in its hands"
KILL = Fault("action", "once", Moment("boot", 1, 1.0), 0.0)
EXCHANGE = Fault("exchange", "e000+e001", Moment("start", 1, 0.0), 0.0)
CHANGED = [_seen(0), _seen(10, e000="drain"), _seen(12, tuned=["e000"], e000="maint"), _seen(20)]


@pytest.mark.parametrize(
    ("drawn", "noted", "sights", "why"),
    [
        ([POWER], [MET], CHANGED, ""),
        ([POWER], [(POWER, 1, 13, "")], CHANGED, ""),
        ([POWER, KILL], [MET, (KILL, 2, 2, "")], CHANGED, ""),
        ([POWER], [], CHANGED, "0 of 1 faults met the rollout"),
        ([POWER, KILL], [MET], CHANGED, "1 of 2 faults met the rollout"),
        ([POWER], [(POWER, 11, 13, "found nothing")], CHANGED, "0 of 1 faults met the rollout"),
        ([POWER], [(POWER, 31, 33, "")], CHANGED, "0 of 1 faults met the rollout"),
        ([KILL], [(KILL, 2, 3, "")], CHANGED, f"no fault met a host that {IN_HANDS}"),
        ([POWER], [MET], [CHANGED[0]], "no host was changed"),
        ([POWER], [MET], [*CHANGED[:2], _seen(20)], "no host was changed"),
        ([EXCHANGE], [(EXCHANGE, 0.5, 0.5, "")], [CHANGED[0]], ""),
        ([], [], CHANGED, "0 of 0 faults met the rollout"),
    ],
)
def test_a_seed_counts_only_if_faults_met_a_rollout_that_changed_hosts(
    drawn: list[Fault], noted: list[tuple[Fault, float, float, str]], sights: list[Sight], why: str
) -> None:
    notes = [Note(fault, "", Window(start, end), said) for fault, start, end, said in noted]
    assert why_not_counted(drawn, notes, Window(0, 30), sights) == why


@pytest.mark.processes
def test_seeds_are_resumed_and_a_broken_promise_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run: list[int] = []

    def pretend(schedule: Any, keep: bool, stop: Any) -> Report:
        run.append(schedule.seed)
        half = {"promise": "whole", "what": "e001 is half", "when": 2.5}
        broken = [half] if schedule.seed == 4 else []
        because = "no host was changed" if schedule.seed == 3 else ""
        about = (schedule.seed, "harmful", "sqlite, person", ["power e001 3.0..5.1 s"], [])
        return Report(*about, "rolled_back", 21.0, broken, because=because)

    monkeypatch.setattr(chaos, "run_seed", pretend)
    monkeypatch.setattr(chaos, "missing_requirements", list)
    log, figures = tmp_path / "log.jsonl", tmp_path / "figures.json"
    # Of a harness that did not say which seeds count, and of one that was killed as it wrote.
    log.write_text('{"seed": 2, "broken": []}\n{"seed": 3, "brok')
    assert chaos.main(["--seeds", "2-3", "--resume", str(log)]) == 0
    assert chaos.main(["--seeds", "1-4", "--resume", str(log), "--json", str(figures)]) == 1
    assert sorted(run) == [1, 2, 3, 4]
    document = json.loads(figures.read_text())
    assert (document["benchmark"], document["quick"]) == ("chaos", False)
    assert [figure["seed"] for figure in document["figures"]] == [1, 2, 3, 4]
    out = capsys.readouterr().out
    assert "  BROKEN seed 4, whole: e001 is half, at 2.5 s" in out
    assert "  does not count: no host was changed" in out
    assert "4 seeds: 2 count and kept every promise, 1 do not count, 1 broke a promise" in out


def edited(copy: Path, edits: Sequence[Edit]) -> Path:
    """What ``copy_checkout`` makes, of the files that are edited alone."""
    for file in {edit.file for edit in edits}:
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, copy / file)
    for edit in edits:
        edit.apply(copy)
    return copy


def test_each_sabotage_is_of_the_code_that_there_is(tmp_path: Path) -> None:
    for name, each in sabotage.SABOTAGES.items():
        copy = edited(tmp_path / name, [*QUICK, *each.edits] if each.rounds else each.edits)
        assert all(edit.new in (copy / edit.file).read_text() for edit in each.edits)
        assert 1 <= len(each.seeds) <= 3
        for file in {edit.file for edit in each.edits}:
            compile((copy / file).read_text(), file, "exec")
            assert (copy / file).read_text() != (ROOT / file).read_text()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("audited")
    lab.up(home, hosts=2)
    try:
        yield home
    finally:
        lab.down(home)


@pytest.mark.lab
@needs_lab
def test_the_auditor_sees_real_hosts(home: Path) -> None:
    """A half changed host, one left in maint, one that says not ready, an extra reboot and its
    lost requests; and nothing once all is as before."""
    watch = Watch(home)

    def sees(**states: str) -> bool:
        """Whether the servers are so, and all others in service."""
        watch.poll(time.time())
        servers = watch.sights[-1].servers if watch.sights else {}
        others = {name for name in servers if name not in states}
        return (
            bool(servers)
            and others <= watch.sights[-1].ready()
            and all(servers[name][0] == state for name, state in states.items())
        )

    def promises_broken() -> list[str]:
        watch.poll(time.time())
        return _of(auditor.hosts(before, look_at_all(home), _end(), watch.sights[-1]))

    wait_until(sees)
    before = look_at_all(home)
    assert not promises_broken()
    lab.console(home, "e000", ["sysctl", "-q", "-w", "net.core.somaxconn=4096"])
    (half,) = promises_broken()
    assert half.startswith("e000 is neither old nor new: runs 4096, stored nothing, no journal")
    lab.console(home, "e000", ["sysctl", "-q", "-w", "net.core.somaxconn=8"])
    lab.console(home, "e001", ["touch", "/var/lib/edgetune-not-ready"])
    haproxy(home, "set server edges/e001 state maint")
    wait_until(lambda: sees(e001="maint"))
    (out,) = promises_broken()
    assert out.startswith("e001 is maint, ") and out.endswith("says not ready and not quarantined")
    lab.console(home, "e001", ["rm", "/var/lib/edgetune-not-ready"])
    haproxy(home, "set server edges/e001 state ready")
    wait_until(sees)
    wait_until(lambda: lab.balancer_state(home)["e000"]["sessions"])
    with suppress(lab.LabError):  # the reboot may end the console first
        lab.console(home, "e000", ["reboot"])
    wait_until(lambda: watch.poll(time.time()) and watch.sights[-1].boots["e000"] == 2)
    assert _of(auditor.boots(watch.sights, 0, 0, Faults()))[0].startswith("e000 was rebooted")
    lost = home / "lab/client-lost.jsonl"
    wait_until(lost.exists)
    assert _of(auditor.requests(lines_of(lost), [], Faults()))
    wait_until(lambda: not promises_broken())


@pytest.mark.lab
@needs_lab
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_harness_that_is_stopped(sent: signal.Signals, tmp_path: Path) -> None:
    seed = next(n for n in range(99) if make_schedule(n).coordination == "redis")
    command = [sys.executable, "-m", "bench.chaos", "--seed", str(seed)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=environment) as harness:
        wait_until(lambda: list(tmp_path.glob("chaos-*/edgetune.log")))
        # One of its faults is a restart of it.
        wait_until(lambda: [one for one in about(tmp_path) if "redis-server" in one])
        time.sleep(1)
        harness.send_signal(sent)
        harness.wait(120)
    wait_until(lambda: not list(tmp_path.iterdir()) and not about(tmp_path))


@pytest.mark.lab
@pytest.mark.long
@needs_lab
def test_two_seeds_keep_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    figures = chaos.run_all(SEEDS, jobs=2)
    lines = [line for figure in figures for line in chaos.broken_lines(figure)]
    assert not lines, capsys.readouterr().out
