# SPDX-License-Identifier: Apache-2.0
"""The `edgetune` command: exit status, what it prints and where, signals, the lab commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lab
from edgetune.base.errors import RefusedError
from lab import cli
from lab.lab_commands import _FEWEST
from lab.pop.layout import LabError
from tests.support import FIXTURES, ROOT
from tests.support.builders import plan
from tests.support.cases import cases
from tests.support.waiting import wait_for_end, wait_until

CASES = Path(__file__).parent / "cases"
PACK = FIXTURES / "runner_pack"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGETUNE_HOME", str(tmp_path))
    monkeypatch.setenv("EDGETUNE_PACK", str(PACK))
    monkeypatch.delenv("EDGETUNE_CONFIG", raising=False)
    (tmp_path / "edgetune.yaml").write_text("greeting: hi\n")
    return tmp_path


def exit_code(*argv: str) -> int:
    try:
        return cli.main(argv)
    except SystemExit as stop:
        return int(stop.code or 0)


@pytest.mark.processes
@pytest.mark.usefixtures("home")
def test_the_exit_status_says_how_an_action_ended() -> None:
    assert exit_code("run", "echo", "text=x") == 0
    assert exit_code("run", "returns", "what=failure") == 3
    assert exit_code("run", "wait", "seconds=60", "marker=/dev/null/x", "timeout=1") == 3
    assert exit_code("run", "misspelt") == 3


@pytest.mark.parametrize("case", cases(CASES / "wrong_words.yaml"))
@pytest.mark.usefixtures("home")
def test_wrong_input_is_one_line_and_what_to_type(
    case: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = case["words"].split()
    assert exit_code(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"edgetune: {case['line']}")
    assert err.splitlines()[1:] == [f"  next:       {case['next']}"]
    assert exit_code(*words, "--json") == 2
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (err, document["reason"], document["next"]) == ("", "usage", case["next"])
    assert f"{document['error']}\n".startswith(case["line"])


def test_with_its_lab_down_or_without_a_configuration_nothing_runs_and_it_says_what_to_do(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = f"inventory: {home}/lab/inventory.yaml\n"
    (home / "edgetune.yaml").write_text(inventory, encoding="utf-8")
    assert exit_code("run", "echo", "text=x") == 1
    assert "the lab of this configuration is not up" in capsys.readouterr().err
    (home / "edgetune.yaml").unlink()
    assert exit_code("run", "echo") == 2
    assert "edgetune lab up" in capsys.readouterr().err


@pytest.mark.processes
def test_with_its_lab_down_the_records_are_still_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGETUNE_PACK", str(ROOT))
    records = f"{{name}}: sqlite:///{home}/records.sqlite\n"
    lines = [f"inventory: {home}/lab/inventory.yaml\n", f"report_dir: {home}/reports\n"]
    lines += [records.format(name=name) for name in ("records", "coordination")]
    lines += [f"ssh_key_file: {home}/key\n", f"ssh_known_hosts: {home}/known_hosts\n"]
    (home / "edgetune.yaml").write_text("".join(lines), encoding="utf-8")
    assert exit_code("status") == 0
    assert "No rollouts" in capsys.readouterr().out
    assert exit_code("run", "effects") == 0
    assert exit_code("run", "export_metrics") == 2
    assert f"next:       vi {home}/edgetune.yaml" in capsys.readouterr().err
    assert exit_code("run", "show_verdict", "rollout=lab1-20261130T163351-8d7e") == 2
    # The lab is not asked for: the record is.
    assert exit_code("run", "report_rollout", "rollout=lab1-20261130T163351-8d7e") == 2
    assert "8d7e" in capsys.readouterr().err
    assert exit_code("doctor", "lab1") == 1
    assert "the lab of this configuration is not up" in capsys.readouterr().err


@pytest.mark.processes
def test_json_is_one_document_and_parameters_may_come_from_a_file(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("run", "sequence", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["action"], document["status"]) == ({"ref": "probe.sequence"}, "succeeded")
    assert document["result"]["output"]["seen"] == "a"
    assert [child["task"] for child in document["children"]] == ["first", "second"]
    file = home / "parameters.yaml"
    file.write_text("names: [a, b]\ncount: 4\n")
    assert exit_code("run", "echo", "count=5", "--params-file", str(file), "--json") == 0
    parameters = json.loads(capsys.readouterr().out)["parameters"]
    assert (parameters["names"], parameters["count"]) == (["a", "b"], 5)


@pytest.mark.processes
@pytest.mark.usefixtures("home")
def test_a_workflow_shows_its_tasks_and_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("run", "remedy", "--verbose") == 3
    out, err = capsys.readouterr()
    assert out == "error: as expected\ncleaned: true\n"
    lines = [line.split() for line in err.splitlines()]
    assert lines[1][:2] == ["work", "failed"]
    assert lines[1][-2:] == ["as", "expected"]
    assert lines[2][:2] == ["clean", "succeeded"]
    assert err.splitlines()[-3:] == [
        "edgetune: remedy.yaml: work: as expected",
        "edgetune: as expected",
        "  next:       edgetune status",
    ]


class TestSignals:
    def start(self, home: Path, pause: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.cli", "run", "parallel", f"pause={pause}"]
            + [f"marker={home}/branch.", "--json"],
            env={**os.environ, "PYTHONPATH": str(lab.CHECKOUT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        branches = [home / f"branch.{side}" for side in ("left", "right")]
        wait_until(lambda: all(one.exists() for one in branches) or process.poll() is not None)
        return process

    @staticmethod
    def let_go(home: Path) -> None:
        for side in ("left", "right"):
            (home / f"branch.{side}.end").touch()

    @pytest.mark.processes
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_cancels_and_lets_actions_finish(self, home: Path, number: int) -> None:
        process = self.start(home, "50")
        process.send_signal(number)
        wait_for_line(process, "canceling")
        self.let_go(home)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 128 + number
        document = json.loads(out)
        assert document["status"] == "canceled"
        left, right = document["children"]
        assert [(own["task"], own["status"]) for own in (left, right, *right["children"])] == [
            *(("left", "succeeded"), ("right", "canceled"), ("inside", "succeeded"))
        ]
        assert all((home / f"branch.{side}.done").exists() for side in ("left", "right"))

    @pytest.mark.processes
    def test_nohup_keeps_a_closed_terminal_from_canceling(self, home: Path) -> None:
        ignoring = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            process = self.start(home, "50")
        finally:
            signal.signal(signal.SIGHUP, ignoring)
        process.send_signal(signal.SIGHUP)
        self.let_go(home)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert json.loads(out)["status"] == "succeeded"

    @pytest.mark.processes
    def test_a_second_signal_kills(self, home: Path) -> None:
        process = self.start(home, "600")
        process.send_signal(signal.SIGINT)
        # Two at once would be one.
        wait_for_line(process, "canceling")
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 130
        assert json.loads(out)["children"][0]["status"] == "canceled"
        wait_for_end((home / "branch.left").read_text().split())


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("home")
def test_an_interruption_before_anything_runs_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli, "_config", interrupt)
    assert exit_code("run", "echo") == 130


def wait_for_line(process: subprocess.Popen[str], start: str) -> None:
    """Until it says so on its standard error."""
    assert process.stderr is not None
    assert any(line.startswith(start) for line in process.stderr)


class TestLab:
    @pytest.fixture
    def pop(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        """A lab of either kind that only notes what it is asked."""
        pop: Any = ModuleType("lab.pop")
        pop.given, pop.entered, pop.missing, pop.state, pop.kind = {}, 0, [], None, "namespaces"

        def up(home: Path, hosts: int, machines: int = 0, tell: Any = print, **more: Any) -> Any:
            if machines:
                tell("e001: booting for 15 s")
            (home / "lab").mkdir(exist_ok=True)
            (home / "lab" / "state.json").write_text(json.dumps({"kind": pop.kind}))
            pop.given = {**more, "hosts": hosts, "machines": machines}
            pop.state = {"kind": pop.kind, "hosts": [{"name": f"e{n:03}"} for n in range(hosts)]}
            return dict(pop.state)

        def down(home: Path) -> bool:
            was_up, pop.state = pop.state is not None, None
            return was_up

        def enter(home: Path) -> None:
            pop.entered += 1

        pop.up, pop.down, pop.enter_controller = up, down, enter
        pop.status = lambda home: pop.state
        pop.missing_requirements = lambda *asked: pop.missing
        for name in ("lab.pop", "lab.simulated"):
            monkeypatch.setitem(sys.modules, name, pop)
        return pop

    def test_goes_up_and_down(self, pop: Any) -> None:
        codes = [exit_code("lab", word) for word in ("status", "up", "status", "down", "status")]
        assert codes == [1, 0, 0, 0, 1]

    @pytest.mark.parametrize("case", cases(CASES / "lab_up.yaml"))
    def test_its_greeting_is_of_what_it_was_given(
        self, pop: Any, case: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = case["words"].split()
        pop.kind = "simulated" if "--simulated" in words else "namespaces"
        assert exit_code("lab", "up", *words) == 0
        assert case["given"].items() <= pop.given.items()
        out, err = capsys.readouterr()
        lines = out.splitlines()
        assert lines[0] == case["first"]
        assert next(line for line in lines if "rollout_pop" in line).endswith(case["rollout"])
        assert lines[-2:] == case.get("last", lines[-2:])
        assert max(map(len, lines)) <= 80
        assert err == ("lab: e001: booting for 15 s\n" if "--machines" in words else "")

    def test_its_greeting_knows_how_many_hosts_can_be_split(self, tmp_path: Path) -> None:
        with pytest.raises(RefusedError, match=f"take at least {_FEWEST} hosts"):
            plan(tmp_path, hosts=_FEWEST - 1)
        assert plan(tmp_path, hosts=_FEWEST)

    @pytest.mark.parametrize("case", cases(CASES / "lab_refuses.yaml"))
    def test_what_a_lab_cannot_be_is_not_begun(
        self, pop: Any, case: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        pop.missing = case.get("missing", [])
        assert exit_code("lab", "up", *case.get("words", "").split()) == case["code"]
        error = capsys.readouterr().err
        assert [text for text in case["says"] if text not in error] == []
        assert pop.given == {}

    def test_packages_are_asked_for_where_they_are_needed(self, pop: Any) -> None:
        asked: list[tuple[bool, ...]] = []
        pop.missing_requirements = lambda *parts: asked.append(tuple(map(bool, parts))) or []
        for words in ((), ("--prometheus",), ("--machines", "1"), ("--anycast",)):
            assert exit_code("lab", "up", *words) == 0
        no = (False, False, False)
        assert asked == [no, (True, False, False), (False, True, False), (False, False, True)]

    @pytest.mark.parametrize(("reason", "status"), [("refused", 1), ("input", 2), ("failed", 3)])
    def test_what_a_lab_cannot_do_tells_whose_turn_it_is(
        self, pop: Any, reason: str, status: int
    ) -> None:
        def up(home: Path, **given: Any) -> None:
            raise LabError("no way", reason)

        pop.up, pop.LabError = up, LabError
        assert exit_code("lab", "up") == status

    @pytest.mark.processes
    def test_actions_run_inside_of_a_lab_of_namespaces_and_of_no_other(self, pop: Any) -> None:
        assert (exit_code("run", "echo"), pop.entered) == (0, 0)
        assert exit_code("lab", "up") == 0
        assert (exit_code("run", "echo"), pop.entered) == (0, 1)
        pop.kind = "simulated"
        assert exit_code("lab", "up", "--simulated") == 0
        assert (exit_code("run", "echo"), pop.entered) == (0, 1)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("doctor lab1 tuning=accept_queue", ("doctor_pop", ["pop=lab1", "tuning=accept_queue"])),
        ("doctor pop=lab1", ("doctor_pop", ["pop=lab1"])),
        ("inventory diff lab1", ("diff_inventory", ["pop=lab1"])),
        ("inventory diff", ("diff_inventory", [])),
    ],
)
def test_a_command_takes_the_name_of_a_pop(
    monkeypatch: pytest.MonkeyPatch, words: str, asked: tuple[str, list[str]]
) -> None:
    told: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(cli, "_run", lambda given: told.append((given.action, given.words)) or 1)
    assert cli.main(words.split()) == 1
    assert told == [asked]
