# SPDX-License-Identifier: Apache-2.0
"""The `edgetune` command: exit status, what it prints and where, signals, the lab commands."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lab
from edgetune.errors import RefusedError
from lab import cli
from lab.lab_commands import _FEWEST
from lab.pop.layout import LabError
from lab.runner.display import TaskList, message_of, text_of
from lab.runner.execution import Execution
from lab.runner.metadata import Action, Pack
from lab.runner.runs import ended_runs
from lab.runner.screen import Screen
from tests.support import FIXTURES
from tests.support.builders import plan

PACK = FIXTURES / "runner_pack"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGETUNE_HOME", str(tmp_path))
    monkeypatch.setenv("EDGETUNE_PACK", str(PACK))
    monkeypatch.delenv("EDGETUNE_CONFIG", raising=False)
    (tmp_path / "edgetune.yaml").write_text("greeting: hi\n")
    return tmp_path


STATUS = """
name: rollout_status
description: Says that the first run that has ended left a rollout, once it is told to.
runner_type: python-script
entry_point: rollout_status.py
parameters:
  ended:
    type: array
"""
STATUS_ENTRY_POINT = """
import os
import time
from pathlib import Path

from st2common.runners.base_action import Action


class RolloutStatus(Action):
    def run(self, ended):
        home = Path(os.environ["EDGETUNE_HOME"])
        (home / "telling").touch()
        end = time.monotonic() + 100
        while time.monotonic() < end and not (home / "tell").exists():
            time.sleep(0.02)
        return {"rollouts": [{"owner": ended[0], "orphan_notice": "WITHOUT AN OWNER: r"}]}
"""


@pytest.fixture
def pack_with_status(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pack of the tests, and `rollout_status`."""
    shutil.copytree(PACK, home / "pack")
    (home / "pack/actions/rollout_status.yaml").write_text(STATUS)
    (home / "pack/actions/rollout_status.py").write_text(STATUS_ENTRY_POINT)
    monkeypatch.setenv("EDGETUNE_PACK", str(home / "pack"))


def exit_code(*argv: str) -> int:
    try:
        return cli.main(argv)
    except SystemExit as stop:
        return int(stop.code or 0)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["run", "echo", "text=x"], 0),
        (["run", "probe.echo"], 0),
        (["run", "echo", "--json", "text=x"], 0),
        (["run", "returns", "what=failure"], 3),
        (["run", "wait", "seconds=60", "marker=/dev/null/x", "timeout=1"], 3),
        (["run", "misspelt"], 3),
        (["run", "step", "name=a", "name=b"], 2),
        (["run", "absent"], 2),
        (["run", "echo", "bogus=1"], 2),
        (["run", "echo", "--json", "bogus"], 2),
        (["run", "echo", "count=x"], 2),
        (["run", "echo", "--params-file", "/nonexistent"], 2),
        (["dance"], 2),
        ([], 2),
    ],
)
@pytest.mark.usefixtures("home")
def test_exit_status(argv: list[str], code: int) -> None:
    assert exit_code(*argv) == code


@pytest.mark.parametrize(
    ("argv", "line", "next"),
    [
        (["run", "ecko"], 'unknown action "ecko", did you mean "echo"?', "edgetune run"),
        (["run", "nosuch"], 'unknown action "nosuch"', "edgetune run"),
        (
            ["run", "echo", "mode=other"],
            "parameter \"mode\" of probe.echo: 'other' is",
            "edgetune run echo --help",
        ),
        (
            ["run", "step"],
            'probe.step requires the parameter "name"',
            "edgetune run step --help",
        ),
        (
            ["run", "step", "name=a", "name=b"],
            'parameter "name" is given twice',
            "edgetune run step --help",
        ),
        (["run", "echo", "--loud"], "unrecognized arguments: --loud", "edgetune --help"),
        (["dance"], "argument COMMAND: invalid choice: 'dance'", "edgetune --help"),
    ],
)
@pytest.mark.usefixtures("home")
def test_wrong_input_is_one_line_and_what_to_type(
    argv: list[str], line: str, next: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"edgetune: {line}")
    assert err.splitlines()[1:] == [f"  next:       {next}"]
    assert exit_code(*argv, "--json") == 2
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (err, document["reason"], document["next"]) == ("", "usage", next)
    assert document["error"].startswith(line)


def test_without_a_configuration_it_says_what_to_do(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "edgetune.yaml").unlink()
    assert exit_code("run", "echo") == 2
    assert "edgetune lab up" in capsys.readouterr().err


def test_with_its_lab_down_nothing_runs_on_the_machine_s_own_network(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = f"inventory: {home}/lab/inventory.yaml\n"
    (home / "edgetune.yaml").write_text(inventory, encoding="utf-8")
    assert exit_code("run", "echo", "text=x") == 1
    assert "the lab of this configuration is not up" in capsys.readouterr().err


@pytest.mark.processes
@pytest.mark.usefixtures("home")
def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("run", "sequence", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["action"] == {"ref": "probe.sequence"}
    assert document["status"] == "succeeded"
    assert document["result"]["output"]["seen"] == "a"
    assert [child["task"] for child in document["children"]] == ["first", "second"]


@pytest.mark.processes
def test_parameters_from_a_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home / "parameters.yaml"
    file.write_text("names: [a, b]\ncount: 4\n")
    assert exit_code("run", "echo", "count=5", "--params-file", str(file), "--json") == 0
    parameters = json.loads(capsys.readouterr().out)["parameters"]
    assert (parameters["names"], parameters["count"]) == (["a", "b"], 5)


@pytest.mark.processes
@pytest.mark.usefixtures("home")
def test_text_of_a_result_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("run", "returns", "what=text") == 0
    assert capsys.readouterr().out == "first line\n  second line\n"


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


@pytest.mark.usefixtures("home")
def test_without_an_action_those_of_people_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("run", "--all") == 0
    everything = capsys.readouterr().out.splitlines()
    assert exit_code("run") == 0
    *listed, more = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in everything} == {
        each.name for each in Pack(PACK).actions.values()
    }
    assert more.split()[0] == "--all"
    assert set(listed) < set(everything)
    assert not [line for line in listed if line.startswith("step ")]


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
        deadline = time.monotonic() + 60
        while not all((home / f"branch.{side}").exists() for side in ("left", "right")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return process

    @pytest.mark.processes
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_cancels_and_lets_actions_finish(self, home: Path, number: int) -> None:
        process = self.start(home, "50")
        process.send_signal(number)
        wait_for_line(process, "canceling")
        for side in ("left", "right"):
            (home / f"branch.{side}.end").touch()
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 128 + number
        document = json.loads(out)
        assert document["status"] == "canceled"
        assert [child["task"] for child in document["children"]] == ["left", "right"]
        assert document["children"][0]["status"] == "succeeded"
        assert (home / "branch.left.done").exists()

    @pytest.mark.processes
    def test_nohup_keeps_a_closed_terminal_from_canceling(self, home: Path) -> None:
        ignoring = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            process = self.start(home, "50")
        finally:
            signal.signal(signal.SIGHUP, ignoring)
        process.send_signal(signal.SIGHUP)
        for side in ("left", "right"):
            (home / f"branch.{side}.end").touch()
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

    def telling(self, home: Path) -> subprocess.Popen[str]:
        """A canceled run that is about to say what it leaves."""
        process = self.start(home, "50")
        process.send_signal(signal.SIGINT)
        wait_for_line(process, "canceling")
        for side in ("left", "right"):
            (home / f"branch.{side}.end").touch()
        wait_for_file(home / "telling")
        return process

    @pytest.mark.processes
    @pytest.mark.usefixtures("pack_with_status")
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_that_comes_after_the_end_stops_no_last_line(
        self, home: Path, number: int
    ) -> None:
        process = self.telling(home)
        process.send_signal(number)
        time.sleep(0.3)
        (home / "tell").touch()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert err.splitlines()[-1] == "WITHOUT AN OWNER: r"
        assert "Traceback" not in err
        (log,) = ended_runs(home)
        assert log.read_text().endswith("WITHOUT AN OWNER: r\n")

    @pytest.mark.processes
    @pytest.mark.usefixtures("pack_with_status")
    def test_a_third_signal_gives_the_question_up_but_not_the_record(self, home: Path) -> None:
        process = self.telling(home)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)  # two at once would be one
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert err.splitlines()[-1] == "`edgetune status` asks again."
        assert "Traceback" not in err
        assert len(ended_runs(home)) == 1


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("home")
def test_an_interruption_before_anything_runs_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli, "_config", interrupt)
    assert exit_code("run", "echo") == 130


@pytest.mark.processes
@pytest.mark.parametrize(("action", "kept"), [("sequence", 1), ("echo", 0)])
def test_a_run_that_could_not_say_what_it_leaves_is_known_to_have_ended(
    home: Path, monkeypatch: pytest.MonkeyPatch, action: str, kept: int
) -> None:
    monkeypatch.setattr(cli, "_print", interrupt)
    assert exit_code("run", action) == 130
    assert len(ended_runs(home)) == kept
    assert len(list((home / "runs").iterdir())) == kept


def wait_for_file(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_line(process: subprocess.Popen[str], start: str) -> None:
    """Until it says so on its standard error."""
    assert process.stderr is not None
    assert any(line.startswith(start) for line in process.stderr)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def looks(stream: io.StringIO, messages: list[str]) -> str:
    """What a task list prints for a task that repeats itself."""
    tasks = TaskList(Screen(stream))
    action = Action("probe.look", "python-script", "", {}, Path(), "look.py")
    parent = Execution(Action("probe.w", "orquesta", "", {}, Path(), "w.yaml"), {}, {})
    for message in messages:
        look = Execution(action, {}, {}, parent=parent, task="look")
        tasks.started(look)
        look.finish("succeeded", {"result": {"message": message}})
        tasks.finished(look)
    return stream.getvalue()


def test_a_repeated_task_is_one_line_on_a_terminal() -> None:
    printed = looks(Terminal(), ["1 of 3", "2 of 3", "3 of 3"])
    assert printed.count("\n") == 3
    assert printed.count("\x1b[A") == 2


def test_a_repeated_task_prints_changes_elsewhere() -> None:
    printed = looks(io.StringIO(), ["1 of 3", "1 of 3", "3 of 3", "3 of 3"])
    assert [line.split("  ")[-1] for line in printed.splitlines()] == ["1 of 3", "3 of 3"]
    assert "\x1b" not in printed


def test_messages_cannot_move_the_cursor() -> None:
    action = Action("probe.look", "python-script", "", {}, Path(), "look.py")
    execution = Execution(action, {}, {})
    execution.finish("succeeded", {"result": {"message": "a\x1b[2Jb\nc"}})
    assert message_of(execution) == "a [2Jb c"
    assert text_of(execution).startswith("message: ")


class TestLab:
    @pytest.fixture
    def pop(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        """A `lab.pop` that only notes what it is asked."""
        pop: Any = ModuleType("lab.pop")
        pop.calls, pop.missing, pop.state, pop.packaged = [], [], None, True

        def up(
            home: Path,
            hosts: int = 8,
            load: bool = True,
            post_seconds: float = 0.0,
            pops: int = 1,
            stays: bool = False,
            prometheus: bool = False,
            machines: int = 0,
            anycast: bool = False,
            freebsd: int = 0,
            releases: Sequence[str] = (),
            balancers: int = 1,
            tell: Callable[[str], None] = print,
        ) -> dict[str, Any]:
            if machines:
                tell("e001: booting for 15 s")
            (home / "lab").mkdir(exist_ok=True)
            (home / "lab" / "state.json").write_text(json.dumps({"kind": pop.kind}))
            pop.calls.append(("up", hosts, pops, load, post_seconds, stays))
            pop.scraped, pop.machines, pop.anycast = prometheus, machines, anycast
            pop.balancers, pop.releases = balancers, list(releases)
            pop.state = {"kind": pop.kind, "hosts": [{"name": f"e{n:03}"} for n in range(hosts)]}
            return dict(pop.state)

        def down(home: Path) -> bool:
            was_up, pop.state = pop.state is not None, None
            return was_up

        pop.kind = "namespaces"
        pop.up, pop.down = up, down
        pop.status = lambda home: pop.state
        pop.missing_requirements = lambda prometheus, machines, anycast: (
            pop.missing
            + ["prometheus"] * (prometheus and not pop.packaged)
            + ["qemu-utils"] * (machines and not pop.packaged)
            + ["bird2"] * (anycast and not pop.packaged)
        )
        pop.enter_controller = lambda home: pop.calls.append(("enter",))
        monkeypatch.setitem(sys.modules, "lab.pop", pop)
        return pop

    def test_goes_up_and_down(self, pop: Any, capsys: pytest.CaptureFixture[str]) -> None:
        assert exit_code("lab", "status") == 1
        words = ("--hosts", "4", "--pops", "2", "--no-load", "--post-seconds", "9")
        assert exit_code("lab", "up", *words) == 0
        assert pop.calls == [("up", 4, 2, False, 9.0, True)]
        lines = capsys.readouterr().out.splitlines()[-5:]
        assert lines[0] == "lab1 and lab2 are up: 4 Linux hosts, e000 to e003, with no load"
        assert max(map(len, lines)) <= 80
        assert exit_code("lab", "status") == 0
        assert exit_code("lab", "down") == 0
        assert exit_code("lab", "status") == 1

    @pytest.mark.parametrize(
        ("hosts", "pops", "first", "dry_run"),
        [
            (1, 1, "lab1 is up: 1 Linux host, e000, ", "# needs 6 hosts a PoP"),
            (5, 1, "lab1 is up: 5 Linux hosts, e000 to e004, ", "# needs 6 hosts a PoP"),
            (6, 1, "lab1 is up: 6 Linux hosts, e000 to e005, ", "# a dry run"),
            (
                10,
                2,
                "lab1 and lab2 are up: 10 Linux hosts, e000 to e009, ",
                "# needs 6 hosts a PoP",
            ),
            (999, 9, "lab1 to lab9 are up: 999 Linux hosts, e000 to e998, ", "# a dry run"),
        ],
    )
    def test_its_greeting_fits_few_hosts_and_80_columns(
        self,
        pop: Any,
        hosts: int,
        pops: int,
        first: str,
        dry_run: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        words = ("--hosts", str(hosts), "--pops", str(pops), "--no-load", "--prometheus")
        assert exit_code("lab", "up", *words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == f"{first}with no load, and Prometheus"
        assert [line for line in lines if "rollout_pop" in line][0].endswith(f"   {dry_run}")
        assert max(map(len, lines)) <= 80

    def test_its_greeting_knows_how_many_hosts_can_be_split(self, tmp_path: Path) -> None:
        with pytest.raises(RefusedError, match=f"take at least {_FEWEST} hosts"):
            plan(tmp_path, hosts=_FEWEST - 1)
        assert plan(tmp_path, hosts=_FEWEST)

    def test_says_what_is_missing(self, pop: Any, capsys: pytest.CaptureFixture[str]) -> None:
        pop.missing = ["root", "haproxy"]
        assert exit_code("lab", "up") == 1
        error = capsys.readouterr().err
        assert "root, haproxy" in error
        assert "--simulated" in error
        assert pop.calls == []

    def test_prometheus_comes_with_a_word_to_ask_it(
        self, pop: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert exit_code("lab", "up", "--prometheus") == 0
        assert pop.scraped
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].endswith("e000 to e007, under load, and Prometheus")
        query = "edgetune lab exec promtool query instant http://127.0.0.1:9090 up"
        assert lines[-2:] == [f"  {query}", "  edgetune status"]
        assert max(map(len, lines)) <= 80

    def test_prometheus_needs_its_packages(
        self, pop: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pop.packaged = False
        assert exit_code("lab", "up", "--prometheus") == 1
        assert "a lab of namespaces needs prometheus;" in capsys.readouterr().err
        assert exit_code("lab", "up") == 0 and not pop.scraped

    def test_simulated_hosts_have_no_prometheus(
        self, pop: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert exit_code("lab", "up", "--simulated", "--prometheus") == 2
        assert capsys.readouterr().err.splitlines() == [
            "edgetune: simulated hosts have no kernel to export, Linux hosts have",
            "  next:       edgetune lab up --prometheus",
        ]
        assert pop.calls == []

    def test_two_load_balancers_are_there_where_that_is_asked_for(self, pop: Any) -> None:
        assert exit_code("lab", "up") == 0 and pop.balancers == 1
        assert exit_code("lab", "up", "--balancers", "2") == 0 and pop.balancers == 2
        assert exit_code("lab", "up", "--simulated", "--balancers", "2") == 2

    def test_hosts_announce_an_address_where_that_is_asked_for(
        self, pop: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert exit_code("lab", "up") == 0 and not pop.anycast
        assert exit_code("lab", "up", "--anycast") == 0 and pop.anycast
        pop.packaged = False
        assert exit_code("lab", "up", "--anycast") == 1
        assert "a lab of namespaces needs bird2;" in capsys.readouterr().err
        assert exit_code("lab", "up", "--simulated", "--anycast") == 2
        assert capsys.readouterr().err.splitlines() == [
            "edgetune: simulated hosts announce nothing, Linux hosts do",
            "  next:       edgetune lab up --anycast",
        ]

    @pytest.mark.parametrize(
        ("words", "which", "plan"),
        [
            (["--freebsd", "8"], "8 with FreeBSD, under load", "tuning=oca_network    # a dry run"),
            (["--freebsd", "2"], "2 with FreeBSD, under load", "tuning=oca_network only=freebsd"),
            ([], "e007, under load", "tuning=accept_queue   # a dry run"),
            (
                ["--freebsd", "8", "--release", "13"],
                "8 with FreeBSD, under load",
                "tuning=tiny_socket_queue  # a dry run",
            ),
            (
                ["--freebsd", "6", "--release", "13,14"],
                "6 with FreeBSD, under load",
                "tuning=oca_network only=freebsd14",
            ),
        ],
    )
    def test_simulated_hosts_may_have_freebsd(
        self,
        pop: Any,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        words: list[str],
        which: str,
        plan: str,
    ) -> None:
        pop.kind = "simulated"
        monkeypatch.setitem(sys.modules, "lab.simulated", pop)
        assert exit_code("lab", "up", "--simulated", *words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].endswith(which) and lines[3].endswith(plan)
        assert max(map(len, lines)) <= 80
        assert pop.releases == (words[3].split(",") if len(words) > 2 else [])

    def test_a_release_is_one_of_freebsd(
        self, pop: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert exit_code("lab", "up", "--simulated", "--release", "13") == 2
        assert capsys.readouterr().err.splitlines() == [
            "edgetune: a release is that of hosts with FreeBSD",
            "  next:       edgetune lab up --simulated --freebsd 8 --release 13,14",
        ]

    def test_hosts_with_freebsd_are_simulated(
        self, pop: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert exit_code("lab", "up", "--freebsd", "8") == 2
        assert capsys.readouterr().err.splitlines() == [
            "edgetune: Linux hosts have no FreeBSD, simulated hosts can",
            "  next:       edgetune lab up --simulated --freebsd 8",
        ]
        assert pop.calls == []

    def test_machines_tell_what_their_boot_waits_for(
        self, pop: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert exit_code("lab", "up", "--hosts", "4", "--machines", "2") == 0
        assert pop.machines == 2
        out, err = capsys.readouterr()
        assert out.splitlines()[0] == (
            "lab1 is up: 4 Linux hosts, e000 to e003, 2 virtual, under load"
        )
        assert err == "lab: e001: booting for 15 s\n"

    def test_machines_need_their_packages_and_real_hosts_beside_them(
        self, pop: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pop.packaged = False
        assert exit_code("lab", "up", "--machines", "1") == 1
        assert "a lab of namespaces needs qemu-utils;" in capsys.readouterr().err
        assert exit_code("lab", "up", "--simulated", "--machines", "1") == 2
        assert pop.calls == []

    @pytest.mark.parametrize(("reason", "status"), [("refused", 1), ("input", 2), ("failed", 3)])
    def test_what_a_lab_cannot_do_tells_whose_turn_it_is(
        self, pop: Any, reason: str, status: int
    ) -> None:
        def up(home: Path, **given: Any) -> None:
            raise LabError("no way", reason)

        pop.up, pop.LabError = up, LabError
        assert exit_code("lab", "up") == status

    @pytest.mark.processes
    def test_actions_run_inside_of_a_lab_of_namespaces(self, pop: Any) -> None:
        assert exit_code("run", "echo") == 0
        assert pop.calls == []
        pop.up(Path(os.environ["EDGETUNE_HOME"]))
        assert exit_code("run", "echo") == 0
        assert pop.calls[-1] == ("enter",)

    @pytest.mark.processes
    def test_a_simulated_lab_is_not_entered(
        self, pop: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pop.kind = "simulated"
        monkeypatch.setitem(sys.modules, "lab.simulated", pop)
        assert exit_code("lab", "up", "--simulated") == 0
        assert exit_code("run", "echo") == 0
        assert ("enter",) not in pop.calls

    @pytest.mark.usefixtures("pop")
    def test_exec_needs_a_lab(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert exit_code("lab", "exec", "true") == 1
        assert "edgetune lab up" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["lab1", "pop=lab1"])
def test_doctor_takes_the_name_of_a_pop(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    asked: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(cli, "_run", lambda given: asked.append((given.action, given.words)) or 1)
    assert cli.main(["doctor", word, "tuning=accept_queue"]) == 1
    assert asked == [("doctor_pop", ["pop=lab1", "tuning=accept_queue"])]


@pytest.mark.parametrize(("words", "given"), [(["lab1"], ["pop=lab1"]), ([], [])])
def test_the_inventory_of_one_pop_or_all_is_compared(
    monkeypatch: pytest.MonkeyPatch, words: list[str], given: list[str]
) -> None:
    asked: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(cli, "_run", lambda given: asked.append((given.action, given.words)) or 1)
    assert cli.main(["inventory", "diff", *words]) == 1
    assert asked == [("diff_inventory", given)]
