# SPDX-License-Identifier: Apache-2.0
"""A lab ends with the process that started it, however that ends, unless it was told to stay."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import lifeline, pop, simulated
from lab.pop.layout import Layout
from tests.support import ROOT
from tests.support.practice import needs_lab
from tests.support.waiting import about, wait_until

pytestmark = pytest.mark.processes

PATIENCE = 120.0
# Beyond what select() takes, where a process may have so many.
MANY = min(1100, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1)
KINDS = [pytest.param("pop", marks=needs_lab), "simulated"]

START = """
import importlib, pathlib, sys, time
module, home = sys.argv[1:]
importlib.import_module(f"lab.{module}").up(pathlib.Path(home), hosts=2)
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    for module in (pop, simulated):
        module.down(tmp_path / "home")


def test_a_process_of_many_files_sees_the_end_of_its_starter(tmp_path: Path) -> None:
    reader = lifeline.hold(tmp_path)
    high = fcntl.fcntl(reader, fcntl.F_DUPFD, MANY)
    assert not lifeline.is_cut(high)
    lifeline.let_go(tmp_path)
    assert lifeline.is_cut(high)
    os.close(high)
    os.close(reader)


@pytest.mark.parametrize("module", KINDS)
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_lab_ends_with_its_starter(home: Path, module: str, sent: signal.Signals) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    command = [sys.executable, "-c", START, module, str(home)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as starter:
        assert starter.stdout is not None and starter.stdout.readline() == b"up\n"
        assert about(home)
        starter.send_signal(sent)
    wait_until(lambda: not about(home), seconds=PATIENCE)
    layout = Layout(home)
    assert not [path for path in (layout.state, *layout.secrets) if path.exists()]
    assert Path("/proc/self/mountinfo").read_text() == mounts
    # A process that is ending shows no environment any more while it still holds its lock.
    wait_until(lambda: {"pop": pop, "simulated": simulated}[module].down(home) is False)


@pytest.mark.parametrize("module", KINDS)
def test_a_lab_of_the_command_line_stays(home: Path, module: str) -> None:
    words = ["lab", "up", "--hosts", "1", *(["--simulated"] if module == "simulated" else [])]
    environment = {**os.environ, "EDGETUNE_HOME": str(home)}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *sys.path])
    command = [sys.executable, "-m", "lab.cli", *words]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    time.sleep(1)  # longer than a simulated lab takes to see that its starter is gone
    lab: Any = {"pop": pop, "simulated": simulated}[module]
    assert lab.status(home) is not None
    assert lab.down(home) is True
