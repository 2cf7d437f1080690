# SPDX-License-Identifier: Apache-2.0
"""The local runner, on the actions and workflows of fixtures/runner_pack."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lab.runner import Engine, Execution, Listener, MetadataError, Pack
from lab.runner.metadata import load_config
from tests.support import FIXTURES
from tests.support.cases import cases
from tests.support.waiting import wait_for_end, wait_until

pytestmark = pytest.mark.processes

PACK = FIXTURES / "runner_pack"
# Beyond what select() takes, where a process may have so many.
MANY = min(1100, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1)
RUN = """
from pathlib import Path
from lab.runner import Engine, Pack
from tests.support import FIXTURES

engine = Engine(Pack(Path({pack!r})), {{}}, Path({home!r}))
seconds = {{"seconds": 600}} if {action!r} == "wait" else {{}}
engine.run({action!r}, {{"marker": {marker!r}, **seconds}})
"""


@pytest.fixture(scope="module")
def pack() -> Pack:
    return Pack(PACK)


@pytest.fixture
def engine(pack: Pack, tmp_path: Path) -> Engine:
    file = tmp_path / "edgetune.yaml"
    file.write_text("greeting: hi\n")
    return Engine(pack, load_config(pack, file), tmp_path)


def test_of_many_actions_only_the_file_of_one_is_read(tmp_path: Path) -> None:
    actions = tmp_path / "actions"
    actions.mkdir()
    (tmp_path / "pack.yaml").write_text("ref: shop\n")
    (actions / "sell.yaml").write_text("name: sell\nrunner_type: noop\n")
    (actions / "deal.yaml").write_text("name: buy\nrunner_type: noop\n")
    (actions / "buy.yaml").write_text("name: rent\nrunner_type: noop\n")
    (tmp_path / "odd.yaml").write_text("name: ../odd\nrunner_type: noop\n")
    pack = Pack(tmp_path)
    assert pack.action("sell").ref == pack.action("shop.sell").ref == "shop.sell"
    assert "actions" not in vars(pack)
    assert [pack.action(name).name for name in ("buy", "rent")] == ["buy", "rent"]
    for unknown in ("deal", "../odd", "elsewhere.sell"):
        with pytest.raises(MetadataError, match="unknown action"):
            pack.action(unknown)


def test_a_command_imports_no_lab() -> None:
    """Most commands need none, and all of it takes as long to import as all else."""
    code = f"import sys; sys.path[:0] = {sys.path!r}; import lab.cli\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "lab.pop.layout" in done.stdout.split(), done.stderr
    assert not {"lab.bmc", "lab.machines", "lab.pop.control"} & {*done.stdout.split()}


def sequence(execution: Execution) -> list[tuple[str | None, str]]:
    return [(child.task, child.status) for child in execution.children]


def wait_for(file: Path) -> str:
    wait_until(file.exists, str(file))
    return file.read_text()


def begin(engine: Engine, name: str, given: dict[str, Any]) -> tuple[Execution, threading.Thread]:
    execution = engine.request(name, given)
    thread = threading.Thread(target=engine.execute, args=[execution])
    thread.start()
    return execution, thread


def end(*markers: Path) -> None:
    """Let actions that wait come to their end."""
    for marker in markers:
        marker.with_name(f"{marker.name}.end").touch()


@pytest.mark.parametrize("case", cases(Path(__file__).parent / "cases/runs.yaml"))
def test_a_run_ends_as_on_stackstorm(engine: Engine, case: dict[str, Any]) -> None:
    assert {*case} <= {"run", "given", "is", "payload", "says", "tasks"}
    execution = engine.run(case["run"], case.get("given", {}))
    assert execution.status == case.get("is", "succeeded"), execution.result
    assert execution.payload == case.get("payload", execution.payload)
    assert case.get("says", "") in str(execution.result).replace('\\"', '"')
    tasks = [f"{child.task} {child.status}" for child in execution.children]
    assert tasks == case.get("tasks", tasks)


class TestPythonAction:
    def test_gets_parameters_configuration_and_surroundings(
        self, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("EDGETUNE_CONFIG", raising=False)
        execution = engine.run("echo", {"names": ["a"], "token": "tops3cret"})
        assert execution.status == "succeeded"
        # The envelope of StackStorm.
        assert set(execution.result) == {"result", "exit_code", "stdout", "stderr"}
        assert (execution.result["exit_code"], execution.result["stdout"]) == (0, "printed\n")
        assert execution.result["stderr"] == "st2.actions.python.Echo: INFO     shown\n"
        result = execution.payload
        assert result["config"] == {"greeting": "hi", "count": 3, "nested": {"inner": "filled"}}
        assert result["library"] == "runner_pack_lib"
        assert result["environment"]["ST2_ACTION_PACK_NAME"] == "probe"
        assert result["environment"]["ST2_ACTION_EXECUTION_ID"] == execution.id
        assert result["environment"]["EDGETUNE_CONFIG"] == str(tmp_path / "edgetune.yaml")
        # Every declared parameter is given, those without a value as None, and none as an argument.
        given = {"text": "hi", "count": 3, "names": ["a"], "ratio": None, "token": "tops3cret"}
        assert given.items() <= result["parameters"].items()
        assert "timeout" not in result["parameters"]
        assert "tops3cret" not in str(result["arguments"])
        assert "tops3cret" not in str(engine.request("echo", {"token": "tops3cret"}).document())
        assert engine.run("returns", {"what": "large"}).payload == "x" * 300000

    def test_a_timeout_kills_it_and_its_children(self, engine: Engine, tmp_path: Path) -> None:
        marker = tmp_path / "pids"
        for timeout in (2, 10, 40):  # a slow machine has not started its children sooner
            given = {"seconds": 600, "marker": str(marker), "timeout": timeout}
            execution = engine.run("wait", given)
            assert execution.status == "timeout"
            assert execution.result["exit_code"] == -9
            assert execution.result["error"] == f"Action failed to complete in {timeout} seconds"
            if marker.exists():
                break
        wait_for_end(marker.read_text().split())

    @pytest.mark.parametrize(
        ("sent", "action"),
        [(signal.SIGKILL, "wait"), (signal.SIGKILL, "busy"), (signal.SIGTERM, "busy")],
    )
    def test_it_ends_with_its_runner_however_that_ends(
        self, tmp_path: Path, sent: signal.Signals, action: str
    ) -> None:
        marker = tmp_path / "pids"
        code = RUN.format(home=str(tmp_path), pack=str(PACK), action=action, marker=str(marker))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen([sys.executable, "-c", code], env=environment) as runner:
            wait_for(marker)
            runner.send_signal(sent)
        wait_for_end(marker.read_text().split())

    def test_it_ends_when_its_runner_ended_before_it_was_ready(self) -> None:
        """The end comes between the start of the process and its request to the kernel."""
        low, held = os.pipe()
        lost = fcntl.fcntl(low, fcntl.F_DUPFD, MANY)  # as in a runner of many actions
        os.close(low)
        os.close(held)
        code = f"import sys; from lab.runner.wrapper import end_with; end_with({lost})"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            pass_fds=[lost],
            start_new_session=True,
            check=False,
        )
        os.close(lost)
        assert done.returncode == -signal.SIGKILL


class TestDatastore:
    def store(self, engine: Engine, verb: str, **given: Any) -> Any:
        execution = engine.run("store", {"verb": verb, **given})
        assert execution.status == "succeeded", execution.result["stderr"]
        return execution.payload

    def test_values_are_strings_in_a_namespace_of_the_class(self, engine: Engine) -> None:
        assert self.store(engine, "get", name="a") is None
        assert self.store(engine, "set", name="a", value={"b": 1}) is True
        assert self.store(engine, "get", name="a") == "{'b': 1}"
        assert self.store(engine, "get", name="a", local=False) is None
        assert self.store(engine, "list") == [["probe.Store:a", "{'b': 1}"]]
        assert self.store(engine, "list", local=False, name="probe.") == [
            ["probe.Store:a", "{'b': 1}"]
        ]
        assert self.store(engine, "delete", name="a") is True
        assert self.store(engine, "delete", name="a") is False


class TestWorkflow:
    def test_publishes_from_task_to_task_and_knows_its_own_execution(self, engine: Engine) -> None:
        execution = engine.run("sequence", {"start": "z"})
        assert execution.status == "succeeded"
        output = execution.result["output"]
        assert (output["seen"], output["call"]) == ("z", 1)
        assert (output["execution"], output["user"]) == (execution.id, execution.context["user"])
        assert len(output["workflow"]) == len(execution.id)
        assert sequence(execution) == [("first", "succeeded"), ("second", "succeeded")]

    def test_runs_items_with_a_concurrency(self, engine: Engine, tmp_path: Path) -> None:
        running, most = set(), []

        class Watch(Listener):
            def started(self, execution: Execution) -> None:
                running.add(execution.id)
                most.append(len(running) - 1)

            def finished(self, execution: Execution) -> None:
                running.discard(execution.id)

        engine.listener = Watch()
        given = {"names": ["a", "b", "c"], "marker": str(tmp_path / "item.")}
        execution, thread = begin(engine, "many", given)
        first, second, third = (tmp_path / f"item.{name}" for name in "abc")
        wait_for(first)
        wait_for(second)
        time.sleep(0.3)
        assert not third.exists()
        end(first)
        wait_for(third)
        end(second, third)
        thread.join(timeout=60)
        assert execution.status == "succeeded"
        assert execution.payload == {"slept": [50, 50, 50]}
        assert [child.item for child in execution.children] == [0, 1, 2]
        assert max(most) == 2

    def test_branches_run_at_the_same_time_and_join(self, engine: Engine, tmp_path: Path) -> None:
        given = {"pause": 50, "marker": str(tmp_path / "branch.")}
        execution, thread = begin(engine, "parallel", given)
        branches = [tmp_path / f"branch.{side}" for side in ("left", "right")]
        for branch in branches:
            wait_for(branch)
        end(*branches)
        thread.join(timeout=60)
        assert execution.status == "succeeded"
        assert execution.payload == {"left": 1, "right": 50}
        left, right, both = execution.children
        assert (left.task, right.task, both.task) == ("left", "right", "both")
        assert right.started < (left.ended or 0)
        assert both.started >= max(left.ended or 0, right.ended or 0)
        assert sequence(right) == [("inside", "succeeded"), ("after", "succeeded")]
        assert right.payload["parent"] == execution.id
        assert both.result["stdout"] == "joined"
        document = right.document()
        assert document["action"] == {"ref": "probe.sub"}
        assert document["end_timestamp"] >= document["start_timestamp"]
        told = [(each["task"], each["action"]["ref"]) for each in document["children"]]
        assert told == [("inside", "probe.wait"), ("after", "core.noop")]


def test_a_delay_ends_at_once_when_it_is_canceled(engine: Engine) -> None:
    """tests/lab/test_cli.py cancels and kills actions that run."""
    execution, thread = begin(engine, "cycle", {"delay": 60})
    wait_until(lambda: execution.children)
    engine.cancel()
    thread.join(timeout=60)
    assert execution.status == "canceled"
    assert sequence(execution) == [("look", "canceled")]
