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
from typing import Any

import pytest

from bench import _bmc_peers, _ssh_hosts, access_log, apply, fanout, metrics
from edgetune.agent.log_format import FORMATS
from edgetune.net.hosts.answers import read_answer
from tests.support import ROOT
from tests.support.cases import rows
from tests.support.practice import needs_lab, needs_machines
from tests.support.waiting import wait_until

CASES = Path(__file__).with_name("cases") / "bench.yaml"

# What StackStorm adds needs one: tests/bench/test_pace.py.
PROGRAMS = sorted({path.stem for path in (ROOT / "bench").glob("[a-z]*.py")} - {"pace"})
NEEDS = {"apply": needs_lab, "boot_hook": needs_machines}


QUICKER = {
    "apply": ("--hosts", "1"),
    "bmc": ("--bmcs", "4"),
    "fanout": ("--hosts", "3"),
    "metrics": ("--hosts", "2,3", "--minutes", "1"),
    "sick": ("--hosts", "40"),
}
RUNS = [
    *(
        pytest.param(own, QUICKER.get(own, ()), marks=NEEDS.get(own, []), id=own)
        for own in PROGRAMS
    ),
    pytest.param("fanout", ("--hosts", "3", "--server", "access"), id="access"),
]


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
@pytest.mark.parametrize(("name", "words"), RUNS)
@pytest.mark.long
def test_every_program_prints_a_table_and_writes_its_figures(
    name: str,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And compares what is installed, and says what is not."""
    for program in (fanout, apply):  # whose further peers start slowly
        monkeypatch.setattr(program, "_further", lambda *given: {})
    document = _figures(name, tmp_path, *words)
    assert (document["benchmark"], document["quick"]) == (name, True)
    told = (document.get(key) for key in ("figures", "plans", "late", "sweeps"))
    tables = [rows for rows in told if isinstance(rows, list)]
    assert tables and all(tables)
    assert capsys.readouterr().out.count("\n| ") == sum(len(rows) + 2 for rows in tables)
    for row in document.get("late", [])[:1]:
        assert (row["client"], row["resets"], row["patches"]) == ("edgetune", 1, 1)


def test_there_is_a_line_of_each_format_of_an_access_log() -> None:
    assert access_log.LINES.keys() == FORMATS.keys()


def test_canned_hosts_answer_as_agents_do() -> None:
    for verb, answer in _ssh_hosts.REPLIES.items():
        assert not read_answer("e00000", verb, {}, answer).error


@pytest.mark.parametrize(
    ("program", "words"),
    rows(CASES, "wrong_words_are_refused_by_name"),
)
def test_wrong_words_are_refused_by_name(
    program: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module(f"bench.{program}").main(words.split())
    assert words.split()[0] in capsys.readouterr().err


@pytest.mark.processes
def test_a_failing_host_fails_the_benchmark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(addresses: Any) -> dict[str, str]:
        return {addresses[0]: "is gone"}

    monkeypatch.setattr(fanout, "_further", lambda *given: {})
    monkeypatch.setattr(fanout, "own_peers", lambda site: {"Fleet": ("", lambda: fail)})
    assert fanout.main(["--quick"]) == 1
    assert capsys.readouterr().err == "bench.fanout: Fleet: 127.78.0.1: is gone\n"


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
