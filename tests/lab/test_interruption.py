# SPDX-License-Identifier: Apache-2.0
"""A person who interrupts a rollout, however, learns what is out of service, and how to get out."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from edgetune.base.documents.head import Head
from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import all_heads
from edgetune.rollout.record.rollout import out_of_service, read_rollout
from lab import simulated
from lab.runner.execution import Listener
from lab.runner.runs import Run, ended_runs
from tests.support import ROOT
from tests.support.terminal import PATIENCE, Terminal, environment
from tests.support.waiting import wait_until

pytestmark = pytest.mark.processes

ROLLOUT = ["pop=lab1", "tuning=accept_queue", "dry_run=false", "wait=true"]
SHORT = ["soak=600", "interval=2", "warmup=1", "alpha_benefit=0.2", "alpha_harm=0.2"]


def edgetune(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lab.cli", *words]
    given = {"env": environment(home), "cwd": ROOT, "timeout": PATIENCE}
    return subprocess.run(command, capture_output=True, text=True, check=False, **given)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("interrupted")
    simulated.up(home, hosts=4)
    # Long, so that no rollout is an orphan by its age alone.
    file = home / "edgetune.yaml"
    file.write_text(file.read_text().replace("owner_timeout: 20", "owner_timeout: 9000"))
    file.write_text(file.read_text().replace("claim_ttl: 120", "claim_ttl: 9999"))
    yield home
    simulated.down(home)


def unfinished(home: Path) -> Head | None:
    """The rollout that wants a workflow."""
    context = Context(yaml.safe_load((home / "edgetune.yaml").read_text()))
    (head,) = [head for head in all_heads(context) if head.wants_a_workflow] or [None]
    return head


def hosts_out(home: Path) -> list[str]:
    head = unfinished(home)
    context = Context(yaml.safe_load((home / "edgetune.yaml").read_text()))
    return out_of_service(read_rollout(context, head.id).batches()) if head else []


def begun(home: Path, *words: str) -> Terminal:
    """A run that has a rollout in its hands, with hosts out of service."""
    before = unfinished(home)
    terminal = Terminal(home, ["run", "rollout_pop", *words])

    def has_hosts_out() -> bool:
        head = unfinished(home)
        owned = head is not None and (before is None or head.owner != before.owner)
        return owned and bool(hosts_out(home))

    wait_until(lambda: has_hosts_out() or terminal.process.poll() is not None, seconds=PATIENCE)
    return terminal


def assert_named(home: Path, lines: list[str]) -> str:
    """The lines say what is out and both commands, whole; the id of the rollout comes back."""
    text = "\n".join(lines)
    (rollout,) = re.findall(r"WITHOUT AN OWNER: (\S+)$", text, re.MULTILINE)
    (out,) = re.findall(r"out of service by its record: (.+)$", text, re.MULTILINE)
    assert out.split(", ") == hosts_out(home)
    assert f"  carry on:   edgetune run rollout_pop rollout={rollout}" in lines
    assert f"  roll back:  edgetune run roll_back_pop rollout={rollout}" in lines
    return rollout


def assert_status_names_it_first(home: Path) -> str:
    shown = edgetune(home, "status")
    assert shown.returncode == 0, shown.stderr
    first, *ways_out = shown.stdout.splitlines()[:3]
    assert re.match(r"lab1  accept_queue  NO OWNER; ", first)
    back, _, rollout = ways_out[-1].partition("=")
    assert back == "  roll back:  edgetune run roll_back_pop rollout"
    return rollout


def interrupted(home: Path, terminal: Terminal, sent: list[signal.Signals], code: int) -> str:
    """End a run by signals, or by closing its terminal; the rollout that it leaves comes back."""
    before = set(ended_runs(home))
    for number in sent:
        terminal.process.send_signal(number)
        time.sleep(0.3)  # two at once would be one
    if not sent:
        terminal.close()
    status, lines = terminal.wait()
    assert status == code, lines
    if code == 130:
        assert_named(home, lines)
        assert lines[-1].startswith("  roll back:")
    if code == 129:
        (log,) = set(ended_runs(home)) - before
        assert "\x1b" not in log.read_text()
        assert_named(home, log.read_text().splitlines())
    return assert_status_names_it_first(home)


@pytest.mark.long
def test_a_rollout_that_is_interrupted_again_and_again_says_each_time_what_it_leaves(
    home: Path,
) -> None:
    """One rollout, carried on after each: by Ctrl-C, two of them, `kill -9`, a closed terminal."""
    for seconds in (4, 40):  # a busy machine may take too few samples in the shorter time
        terminal = begun(home, *ROLLOUT, *SHORT, f"baseline={seconds}")
        if terminal.process.poll() is None:
            break
        _, lines = terminal.wait()
    else:
        raise AssertionError(lines)
    shown = edgetune(home, "status")
    assert "changing" in shown.stdout
    assert "NO OWNER" not in shown.stdout
    assert not ended_runs(home)
    rollout = interrupted(home, terminal, [signal.SIGINT], 130)
    assert assert_named(home, edgetune(home, "status", "lab1").stdout.splitlines()) == rollout
    ways = [([signal.SIGINT, signal.SIGINT], 130), ([signal.SIGKILL], -9), ([], 129)]
    for sent, code in ways:
        terminal = begun(home, f"rollout={rollout}")
        assert interrupted(home, terminal, sent, code) == rollout
    back = edgetune(home, "run", "roll_back_pop", f"rollout={rollout}", "--json")
    assert back.returncode == 0, back.stderr
    assert json.loads(back.stdout)["result"]["output"]["quarantined"] == {}
    assert "NO OWNER" not in edgetune(home, "status").stdout
    assert not list((home / "runs").iterdir())


def test_a_run_is_known_to_have_ended_when_its_process_has(tmp_path: Path) -> None:
    run = Run(tmp_path, Listener())
    run.write(f"{'a' * 24} edgetune.rollout_pop\n")
    assert ended_runs(tmp_path) == {}
    run.close(keep=True)
    assert list(ended_runs(tmp_path).values()) == [["a" * 24]]
    Run(tmp_path, Listener()).close(keep=False)
    assert len(list((tmp_path / "runs").iterdir())) == 1
