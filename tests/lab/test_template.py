# SPDX-License-Identifier: Apache-2.0
"""Actions that are forked from one process are as those that start a Python of their own."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import pytest

from lab.runner import Pack, action_process
from lab.runner.action_process import ActionProcesses
from lab.runner.execution import Execution
from tests.support import ROOT
from tests.support.waiting import is_running, wait_for_end, wait_until

pytestmark = pytest.mark.processes

ACTION = """
import os, signal, sys, threading, time
from pathlib import Path
from st2common.runners.base_action import Action

class Do(Action):
    def run(self, code):
        told = {}
        exec(code, globals(), told)
        return told.get("value")
"""
RUNNER = {"log_level": "DEBUG", "timeout": 60, "env": {}}
Do = Callable[..., tuple[str, Any]]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """The module that is imported ahead, in a pack whose one action does as it is told."""
    module = tmp_path / "actions/lib/edgetune/report/action.py"
    module.parent.mkdir(parents=True)
    for folder in (module.parent, module.parent.parent):
        (folder / "__init__.py").touch()
    module.write_text("VERSION = 1\n")
    (tmp_path / "pack.yaml").write_text("ref: own\n")
    (tmp_path / "actions/do.py").write_text(ACTION)
    (tmp_path / "actions/do.yaml").write_text(
        "{name: do, runner_type: python-script, entry_point: do.py, parameters: {code: {}}}"
    )
    return module


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[ActionProcesses]:
    made = ActionProcesses(tmp_path / "datastore.sqlite")
    with made:
        yield made


@pytest.fixture
def do(library: Path, processes: ActionProcesses, tmp_path: Path) -> Do:
    """Runs code as an action: its status, and the value or the envelope."""
    action = Pack(tmp_path).action("do")

    def run(code: str, **runner: Any) -> tuple[str, Any]:
        execution = Execution(action, {}, {"pack": "own"})
        status, result = processes.run(execution, {**RUNNER, **runner}, {"code": code}, {})
        return status, result["result"] if status == "succeeded" else result

    return run


def test_each_is_a_process_of_its_own_and_only_the_first_imports_for_itself(do: Do) -> None:
    ahead = "'edgetune.report.action' in sys.modules"
    own = f"value = [{ahead}, os.getppid(), os.getpid(), os.getsid(0), os.getpgrp()]"
    told = [do(own)[1] for _ in range(3)]
    assert [one[0] for one in told] == [False, True, True]
    assert len({template for _, template, *_ in told}) == 1
    assert len({pid for _, _, pid, *_ in told}) == 3
    assert all(pid == session == group for *_, pid, session, group in told)


def test_it_has_its_own_folder_streams_and_variables_and_nothing_of_a_neighbour(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do("sys.modules['left'] = sys; os.chdir('/')", env={"EDGETUNE_LEFT": "x"})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGETUNE_HOME", "here")
    code = (
        "value = [os.getcwd(), sys.argv[1:], os.environ['EDGETUNE_HOME'], sys.stdin.read(),"
        "'left' in sys.modules, 'EDGETUNE_LEFT' in os.environ, 'wrapper' in sys.modules,"
        "signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, signal.set_wakeup_fd(-1),"
        "sorted(map(int, os.listdir('/proc/self/fd')))[:3], len(os.listdir('/proc/self/fd'))]"
    )
    there = [str(tmp_path), ["own.do"], "here", "", False, False, False, True, -1, [0, 1, 2], 6]
    assert do(code) == ("succeeded", there)
    assert do("print('out'); print('error', file=sys.stderr); sys.exit(7)")[1] == {
        **{"exit_code": 7, "stdout": "out\n", "stderr": "error\n", "result": "None"}
    }


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("1 / 0", 1), ("sys.exit()", 0), ("os._exit(9)", 9), ("os.kill(os.getpid(), 15)", -15)],
)
def test_it_ends_as_a_python_does(do: Do, code: str, exit_code: int) -> None:
    do("")
    before = "import atexit; atexit.register(print, 'end'); print('begin'); "
    status, result = do(before + code)
    envelope = result if status == "failed" else {"exit_code": 0, "stderr": ""}
    assert envelope["exit_code"] == exit_code
    assert ("ZeroDivisionError" in envelope["stderr"]) == (code == "1 / 0")
    if code == "1 / 0":
        assert envelope["stdout"] == "begin\nend\n"


def test_a_file_that_was_changed_is_imported_anew(do: Do, library: Path) -> None:
    for _ in range(2):
        do("")
    version = "import edgetune.report.action as own; value = [own.VERSION, sys.argv[1:]]"
    assert do(version)[1] == [1, ["own.do"]]
    library.write_text("VERSION = 22\n")
    assert do(version)[1] == [22, ["own.do"]]
    library.unlink()
    status, result = do(version)
    assert status == "failed"
    assert "No module named 'edgetune.report.action'" in result["stderr"]


def test_what_steps_of_edgetune_import_is_there_and_starts_no_thread(
    do: Do, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread would be missing in each fork, with all that it holds."""
    shutil.rmtree(library.parents[2])
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "lib"))
    do("")
    code = "value = [[*sys.modules], len(os.listdir(f'/proc/{os.getppid()}/task'))]"
    modules, threads = do(code)[1]
    assert {"edgetune.rollout.steps.drain_hosts", "paramiko"} <= {*modules}
    assert threads == 1


@pytest.mark.parametrize(("name", "is_anew"), [("PYTHONHASHSEED", True), ("EDGETUNE_OWN", False)])
def test_a_variable_that_python_reads_starts_one(do: Do, name: str, is_anew: bool) -> None:
    for _ in range(2):
        do("")
    code = f"value = [os.environ['{name}'], 'edgetune.report.action' in sys.modules]"
    assert do(code, env={name: "7"}) == ("succeeded", ["7", not is_anew])


def test_many_at_once_are_not_taken_for_each_other(do: Do) -> None:
    with ThreadPoolExecutor(8) as pool:
        told = pool.map(lambda number: do(f"print({number}); sys.exit({number})"), range(1, 17))
    assert [(one["exit_code"], one["stdout"]) for _, one in told] == [
        (number, f"{number}\n") for number in range(1, 17)
    ]


def test_the_end_of_the_template_fails_its_action_and_no_later_one(do: Do, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"Path('{pid}').write_text(str(os.getpid())); os.kill(os.getppid(), 9); time.sleep(60)"
    with pytest.raises(RuntimeError, match="the process that starts actions has ended"):
        do(code)
    wait_for_end([pid.read_text()])
    assert do("value = 1") == ("succeeded", 1)


def test_one_that_takes_too_long_is_dead_when_that_is_told(do: Do) -> None:
    for timeout in (2, 10, 40):  # a slow machine has not started it sooner
        status, result = do("print(os.getpid()); time.sleep(600)", timeout=timeout)
        assert (status, result["exit_code"]) == ("timeout", -9)
        if result["stdout"]:
            break
    assert not is_running(result["stdout"].strip())


def test_a_long_request_comes_whole(do: Do) -> None:
    assert do(f"value = len('{'x' * 1_000_000}')") == ("succeeded", 1_000_000)


@pytest.mark.parametrize("leaves", [True, False])
def test_what_holds_the_output_is_killed_in_time_unless_it_left_the_group(
    do: Do, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(action_process, "_DRAIN_SECONDS", 0.2)
    started = f"subprocess.Popen(['sleep', '60'], start_new_session={leaves})"
    for timeout in (2, 10, 40):  # a slow machine has not started it sooner
        status, result = do(f"import subprocess; print({started}.pid)", timeout=timeout)
        assert (status, result["exit_code"]) == ("timeout", -9)
        if result["stdout"]:
            break
    if leaves:
        os.kill(int(result["stdout"]), signal.SIGKILL)
    wait_for_end(result["stdout"].split())


def test_one_that_is_killed_before_it_began_never_runs(
    do: Do, processes: ActionProcesses, tmp_path: Path
) -> None:
    processes.kill_all()
    began = tmp_path / "began"
    status, result = do(f"time.sleep(60); Path('{began}').touch()")
    assert (status, result["exit_code"], began.exists()) == ("canceled", -9, False)


def test_it_ends_with_the_last_that_belongs_together(tmp_path: Path, do: Do) -> None:
    own = ActionProcesses(tmp_path / "datastore.sqlite")
    execution = Execution(Pack(tmp_path).action("do"), {}, {"pack": "own"})
    with own:
        with own:
            code = {"code": "value = os.getppid()"}
            _, first = own.run(execution, RUNNER, code, {})
        _, second = own.run(execution, RUNNER, code, {})
        assert first["result"] == second["result"]
    wait_until(lambda: not Path(f"/proc/{first['result']}").exists())


def test_a_short_one_is_not_waited_for_as_long_as_one_that_began_after_it(
    do: Do, tmp_path: Path
) -> None:
    def until(name: str, then: str) -> str:
        """Code that begins, and goes on once there is a file."""
        began, file = tmp_path / f"{name}.began", tmp_path / name
        return (
            f"Path('{began}').touch()\nwhile not Path('{file}').exists(): time.sleep(0.02)\n{then}"
        )

    with ThreadPoolExecutor(2) as pool:
        short = pool.submit(do, until("short", "value = os.environ['ST2_ACTION_EXECUTION_ID']"))
        wait_until((tmp_path / "short.began").exists)
        long = pool.submit(do, until("long", "value = len(os.listdir('/proc/self/fd'))"))
        wait_until((tmp_path / "long.began").exists)
        (tmp_path / "short").touch()
        try:
            assert short.result(60)[0] == "succeeded"
        finally:
            (tmp_path / "long").touch()
        assert long.result(60) == ("succeeded", 6)
