# SPDX-License-Identifier: Apache-2.0
"""Every benchmark runs with --quick and writes its figures; how fast anything is, is not tested."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from bench import _bmc_peers, _ssh_peers, agent, apply, bmc, fanout, metrics, sick
from bench._bmc_site import Site, Target
from bench._lab_host import LabHost, lab_host
from bench._table import BenchError, measure, print_table, spread
from lab import pop
from tests.support import ROOT
from tests.support.waiting import wait_until

# What StackStorm adds needs one: tests/bench/test_pace.py.
PROGRAMS = sorted({path.stem for path in (ROOT / "bench").glob("[a-z]*.py")} - {"pace"})
SPREADS = ("hosts_per_s", "ratio", "controller_cpu_ms", "server_cpu_ms")
MISSING = pop.missing_requirements()
NEEDS_LAB = [
    pytest.mark.lab,
    pytest.mark.skipif(bool(MISSING), reason=f"the lab needs {', '.join(MISSING)}"),
]

NO_MACHINES = pop.missing_requirements(machines=True)
NEEDS: dict[str, list[Any]] = {
    "agent": NEEDS_LAB,
    "apply": NEEDS_LAB,
    "boot_hook": [
        pytest.mark.machines,
        pytest.mark.skipif(bool(NO_MACHINES), reason=f"machines need {', '.join(NO_MACHINES)}"),
    ],
}


def needs_lab(test: Any) -> Any:
    for mark in NEEDS_LAB:
        test = mark(test)
    return test


@pytest.fixture
def late_is_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that never comes is not waited for as long as otherwise."""
    monkeypatch.setattr(_bmc_peers, "SHORT_CONVERSATION", 8.0)
    monkeypatch.setattr(_bmc_peers, "SHORT_PATIENCE", 0.5)


def _figures(name: str, folder: Path, *more: str) -> dict[str, Any]:
    target = folder / "figures.json"
    program = importlib.import_module(f"bench.{name}")
    assert program.main(["--quick", "--json", str(target), *more]) == 0
    document: dict[str, Any] = json.loads(target.read_text())
    return document


@pytest.mark.processes
@pytest.mark.usefixtures("late_is_soon")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=NEEDS.get(name, [])) for name in PROGRAMS],
)
def test_every_program_prints_a_table_and_writes_its_figures(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And compares what is installed, and says what is not."""
    if name in ("fanout", "apply"):  # whose further peers start slowly
        monkeypatch.setattr(fanout, "_further", lambda: {})
        monkeypatch.setattr(apply, "_further", lambda hosts: ({}, {}))
    document = _figures(name, tmp_path, *QUICKER.get(name, ()))
    assert (document["benchmark"], document["quick"]) == (name, True)
    tables = [document[key] for key in ("figures", "plans", "late") if key in document]
    assert all(tables)
    assert capsys.readouterr().out.count("\n| ") == sum(len(rows) + 2 for rows in tables)
    CHECKS.get(name, lambda document: None)(document)


QUICKER = {
    "agent": ("--rounds", "1"),
    "bmc": ("--bmcs", "4"),
    "fanout": ("--hosts", "3"),
    "metrics": ("--hosts", "2,3", "--minutes", "1"),
    "sick": ("--hosts", "40"),
}


def _fanout(document: dict[str, Any]) -> None:
    assert (document["hosts"], document["rounds"], document["server"]) == (3, 1, "canned")
    fleet, *peers = document["figures"]
    assert (fleet["client"], fleet["ratio"]["median"]) == (fanout.FLEET, 1.0)
    assert len(peers) == (5 if _ssh_peers.has_program("ssh") else 3)
    for figure in document["figures"]:
        for key in SPREADS:
            assert 0 <= figure[key]["min"] <= figure[key]["median"] <= figure[key]["max"]
        assert figure["hosts_per_s"]["min"] > 0
    assert [own["client"] for own in document["bounds"]] == [fanout.FLEET, fanout.ALONE]


def _agent(document: dict[str, Any]) -> None:
    assert document["settings"] == {"all": 20, "changed": 5}
    first, *others = document["figures"]
    assert (first["client"], first["ratio"]["median"]) == (agent.FLEET, 1.0)
    further = set(agent._further(None))
    there = {figure["client"] for figure in others} & further
    assert there | set(document["left_out"]) == further
    for figure in document["figures"]:
        assert 0 < figure["ms"]["min"] <= figure["ms"]["median"] <= figure["ms"]["max"]


def _bmc(document: dict[str, Any]) -> None:
    assert (document["bmcs"], document["rounds"]) == (4, {"0.0": 1, "0.05": 1})
    own, *others = (row for row in document["figures"] if not row["answer_seconds"])
    assert (own["client"], own["ratio"]["median"]) == (bmc.BMCS, 1.0)
    assert own["connections"]["median"] >= 3
    assert own["sessions_left"]["median"] == 0
    assert {row["vendor"]: row["at_once"] >= 0.05 for row in document["plans"]} == dict.fromkeys(
        ("dell", "lenovo", "ami"), True
    )
    assert own["requests"]["median"] < 12
    for figure in document["figures"]:
        assert 0 < figure["bmcs_per_s"]["min"] <= figure["bmcs_per_s"]["max"]
    first, *late = document["late"]
    told = {"reset": "unknown", "set": "done"}
    assert first == {"client": "edgetune", "told": told, "resets": 1, "patches": 1}
    sent = {row["client"]: (row["resets"], row["patches"]) for row in late}
    expected = {
        "sushy": {"sushy, server_side_retries=0": (3, 3), "sushy, server_side_retries=1": (1, 1)},
        "redfish": {"redfish, max_retry=0": (1, 1)},
    }
    there = bmc.installed()
    assert sent == {name: count for one in there for name, count in expected[one].items()}
    assert {row["client"].split(",")[0] for row in others} == set(there)
    assert set(bmc.LIBRARIES) & set(document["left_out"]) == set(bmc.LIBRARIES) - set(there)


def _sick(document: dict[str, Any]) -> None:
    assert (document["hosts"], document["sick"]) == (40, 2)
    for row in document["figures"]:
        assert row["sick"]["median"] >= sick.TIMEOUT > 0
    with pytest.raises(BenchError, match="peer: 1 hosts failed, 0 are sick"):
        sick.expect("peer", lambda addresses: {"127.78.0.1"}, ["127.78.0.1"], ["127.77.0.1"])


def _metrics(document: dict[str, Any]) -> None:
    assert (document["rounds"], document["sweeps"]) == (1, 4)
    assert bool(document["left_out"]) != metrics.has_prometheus()
    count = 3 + len(metrics.remembering_sources())
    assert [row["hosts"] for row in document["figures"]] == [2] * count + [3] * count
    all_of_it, sweep, reading, *_, last = document["figures"][:count]
    sources = [row["source"] for row in (all_of_it, sweep, reading)]
    assert sources == [metrics.SSH, metrics.SWEEP, metrics.STORED]
    assert "ClickHouse" in last["source"] and last["server_cpu"]["median"] > 0
    seconds = 4 * sweep["seconds"]["median"] + reading["seconds"]["median"]
    assert all_of_it["seconds"]["median"] == pytest.approx(seconds, rel=0.01)
    for row in document["figures"]:
        assert row["seconds"]["min"] > 0 and row["cpu"]["min"] > 0 and row["megabytes"]["min"] > 0


CHECKS = {"fanout": _fanout, "agent": _agent, "bmc": _bmc, "sick": _sick, "metrics": _metrics}


def test_what_the_cpu_is_enough_for_counts_the_hosts_of_the_same_machine() -> None:
    """Two cores; a host takes 5 ms of the controller's, and 3 of its own."""
    cases = {(fanout.FLEET, 256): (250, 400), (fanout.FLEET, 64): (200, 200)}
    cases[fanout.ALONE, 256] = (200, 200)
    for (client, hosts), expected in cases.items():
        row = {"client": client, "hosts_per_s": {"median": 150.0}}
        row.update(controller_cpu_ms={"median": 5.0}, server_cpu_ms={"median": 3.0})
        told = fanout.bound(row, 2, hosts)
        assert (round(told["here"]), round(told["elsewhere"])) == expected
        assert told["reached"] == pytest.approx(150 / expected[0])


@pytest.mark.processes
def test_fanout_asks_the_real_agent_when_told_to(tmp_path: Path) -> None:
    document = _figures("fanout", tmp_path, "--hosts", "1", "--server", "agent")
    assert document["server"] == "agent"
    assert {name for name in document["left_out"] if name != "OpenSSH"} == set(fanout._further())


@pytest.mark.processes
def test_a_further_client_that_fails_is_left_out_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(site: Any) -> Callable[[Any], None]:
        raise BenchError("too old")

    monkeypatch.setattr(fanout, "_further", lambda: {"a": (True, fail), "b": (False, fail)})
    document = _figures("fanout", tmp_path, "--hosts", "1")
    further = {name: why for name, why in document["left_out"].items() if name != "OpenSSH"}
    assert further == {"a": "too old", "b": "not installed"}
    assert "not compared: a (too old)" in capsys.readouterr().out


@pytest.mark.processes
def test_a_failing_host_fails_the_benchmark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(addresses: Any) -> None:
        raise BenchError(f"{addresses[0]} is gone")

    monkeypatch.setattr(fanout, "_further", lambda: {})
    monkeypatch.setattr(fanout, "own_peers", lambda site: {fanout.FLEET: fail})
    assert fanout.main(["--quick"]) == 1
    assert capsys.readouterr().err == "bench.fanout: 127.78.0.1 is gone\n"


@needs_lab
def test_a_side_that_leaves_a_value_out_fails_the_benchmark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lazy(host: LabHost, edgetune: Any) -> dict[str, Callable[[], None]]:
        return {"lazy": lambda: None}

    monkeypatch.setattr(agent, "own_peers", lazy)
    assert agent.main(["--quick"]) == 1
    text = "bench.agent: lazy: net.core.somaxconn is 8, not 4096\n"
    assert capsys.readouterr().err == text


@needs_lab
def test_a_lab_host_is_set_back_and_nothing_of_it_is_left() -> None:
    where = Path("/proc/self/ns/net").readlink()
    with lab_host() as host:
        folder = host.site.folder
        before = host.values()
        host.shell.run("echo 77 >/proc/sys/net/core/somaxconn")
        assert host.values()["net.core.somaxconn"] == "77"
        host.reset()
        assert host.values() == before
        used = host.site.cpu_seconds()
        host.shell.run("i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done")
        assert host.site.cpu_seconds() > used
        with pytest.raises(BenchError, match="the shell on the lab host has ended"):
            host.shell.run("exit 3")
    assert not folder.exists() and Path("/proc/self/ns/net").readlink() == where


def test_without_a_lab_agent_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise pop.LabError("the lab cannot run here, it needs: root")

    monkeypatch.setattr(pop, "up", fail)
    assert agent.main(["--quick"]) == 1
    assert capsys.readouterr().err == "bench.agent: the lab cannot run here, it needs: root\n"


@pytest.mark.processes
def test_a_client_that_does_not_see_what_is_pending_fails_the_benchmark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Site, "stage", lambda site, target: None)
    monkeypatch.setattr(bmc, "run_late", lambda found, quick: ([], {}))
    assert bmc.main(["--quick", "--bmcs", "1"]) == 1
    assert "bench.bmc: edgetune: e0000: SettingRow(id='bios.snoop_mode'" in capsys.readouterr().err


def test_a_library_must_have_read_all_three() -> None:
    early, home = {"SnoopMode": "EarlySnoop"}, {"SnoopMode": "HomeSnoop"}
    whole, none = {"SnoopMode"}, set[str]()
    for read in ((home, home, whole), (early, {}, whole), (early, home, none), ({}, home, whole)):
        with pytest.raises(BenchError, match="peer: e0: SnoopMode was not read as pending"):
            _bmc_peers.expect_pending("peer", Target("e0", "dell", ""), *read)


@pytest.mark.parametrize(
    ("program", "options"),
    [
        (program, [option, count])
        for program, option in ((fanout, "--hosts"), (bmc, "--bmcs"))
        for count in ("0", "4001", "many")
    ]
    + [(metrics, ["--hosts", "0"]), (metrics, ["--hosts", "8,many"]), (metrics, ["--rounds", "0"])]
    + [(metrics, ["--minutes", "0.5"])],
)
def test_a_number_that_makes_no_sense_is_refused(
    program: Any, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program.main(options)
    assert options[0] in capsys.readouterr().err


@pytest.mark.processes
def test_a_source_that_tells_something_else_than_hosts_counted_fails_the_benchmark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics, "remembering_sources", lambda: ["clickhouse"])
    monkeypatch.setattr(metrics, "FIELDS", {"clickhouse": {"table": "edge.others"}})
    assert metrics.main(["--quick", "--hosts", "1"]) == 1
    assert "there is no edge.others" in capsys.readouterr().err


@pytest.mark.processes
@pytest.mark.parametrize("what", ["prometheus", "clickhouse"])
def test_a_site_ends_with_the_benchmark_even_while_it_begins(what: str, tmp_path: Path) -> None:
    if what not in metrics.remembering_sources():
        pytest.skip("Prometheus is not installed")
    command = [sys.executable, "-m", "bench._metric_sites", what, "500", "10", "1800000000.0"]
    environment = dict(os.environ, TMPDIR=str(tmp_path), PYTHONPATH=f"{ROOT}:{ROOT / 'lib'}")
    done = subprocess.run(
        command, cwd=ROOT, env=environment, input="", capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.processes
@pytest.mark.parametrize(("sent", "statuses"), [(signal.SIGINT, {130, -2}), (signal.SIGKILL, {-9})])
def test_nothing_is_left_after_an_interruption(
    sent: signal.Signals, statuses: set[int], tmp_path: Path
) -> None:
    """``python -m`` ends by SIGINT itself where that came within ``exec`` of a text, although what
    it raised was caught; a shell tells that as 130, too."""
    environment = dict(os.environ, TMPDIR=str(tmp_path), PYTHONPATH=f"{ROOT}:{ROOT / 'lib'}")
    command = [sys.executable, "-m", "bench.fanout", "--hosts", "300"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as process:
        wait_until(lambda: any(tmp_path.glob("*/known_hosts")) or process.poll() is not None)
        os.killpg(process.pid, sent)
        assert process.wait(60) in statuses
    # The hosts' own process removes the folder as the last thing it does.
    wait_until(lambda: not list(tmp_path.iterdir()))


def test_every_peer_is_measured_once_a_round() -> None:
    calls: list[str] = []
    used = iter(range(100))
    peers = {name: lambda name=name: calls.append(name) for name in "abc"}
    samples = measure(peers, 4, lambda: next(used))
    assert [sorted(calls[start : start + 3]) for start in (0, 3, 6, 9)] == [["a", "b", "c"]] * 4
    assert {len(own) for own in samples.values()} == {4}
    assert {sample.other_cpu for own in samples.values() for sample in own} == {1}


def test_a_table_is_aligned_and_a_spread_is_the_median_and_both_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(["client", "x"], [["a", "1"], ["b", "1000"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "| client | x    |",
        "| ------ | ---- |",
        "| a      | 1    |",
        "| b      | 1000 |",
    ]
    assert spread([3.0, 100.0, 1.23456]) == {"median": 3.0, "min": 1.235, "max": 100.0}
