# SPDX-License-Identifier: Apache-2.0
"""What people start: plans, rollouts, rollbacks, the kill switch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import pop as lab
from tests.st2.stackstorm import (
    HOME,
    REAL,
    SHORT,
    SOON,
    call,
    key,
    needs_stackstorm,
    rule,
    run,
    st2,
    start,
    states,
    status,
    until,
    until_state,
    wait_for,
    words,
)
from tests.support import ROOT
from tests.support.builders import write_yaml

pytestmark = needs_stackstorm

MAY_FOLLOW_AT_ONCE = ("check_drained", "reboot_hosts", "verify_hosts", "undrain_hosts")


@pytest.fixture
def locally(tmp_path: Path) -> Any:
    """Runs an action by the local runner, with StackStorm's Redis: hosts know its epochs."""
    config = yaml.safe_load((HOME / "edgetune.yaml").read_text(encoding="utf-8"))
    config["coordination"] = os.environ.get("ST2_COORDINATION", "redis://127.0.0.1:6379/0")
    path = write_yaml(tmp_path / "edgetune.yaml", config)
    return lambda action, **parameters: run_locally(path, action, **parameters)


def run_locally(config: Path, action: str, **parameters: Any) -> Any:
    command = [sys.executable, "-m", "lab.cli", "run", action, *words(parameters), "--json"]
    environment = {
        **os.environ,
        "EDGETUNE_HOME": str(HOME),
        "EDGETUNE_CONFIG": str(config),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'lib'}",
    }
    done = subprocess.run(command, capture_output=True, env=environment, cwd=ROOT, check=False)
    assert done.stdout, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)


def story(children: list[tuple[str, list[Any]]]) -> list[Any]:
    """Tasks in the order of their start; a task that repeats itself counts once.

    Whether a step is taken within the task before, or in one of its own, is the machine's matter.
    """
    told = [(name, story(below)) for name, below in children if name not in MAY_FOLLOW_AT_ONCE]
    return [pair for pair, _ in groupby(told)]


def story_of_stackstorm(execution: str) -> list[Any]:
    rows = call("GET", f"/executions/{execution}/children?depth=-1")
    below: dict[str, list[Any]] = {}
    for row in sorted(rows, key=lambda row: row["start_timestamp"]):
        below.setdefault(row["parent"], []).append(row)

    def tell(parent: str) -> list[tuple[str, list[Any]]]:
        return [
            (row["context"]["orquesta"]["task_name"], tell(row["id"]))
            for row in below.get(parent, [])
        ]

    return story(tell(execution))


def story_of_runner(document: Any) -> list[Any]:
    def tell(parent: Any) -> list[tuple[str, list[Any]]]:
        return [(child["task"], tell(child)) for child in parent["children"]]

    return story(tell(document))


def test_the_pack_registers_again_without_a_failure() -> None:
    """StackStorm logs and skips what it cannot read, unless it is to fail on it.

    It also switches off what was switched on by hand, which `left_as_found` puts right.
    """
    body = {"types": ["all"], "packs": ["edgetune"], "fail_on_failure": True}
    counts = call("POST", "/packs/register", json=body)
    for folder in ("actions", "rules", "policies", "sensors", "aliases"):
        assert counts[folder] == len(list((ROOT / folder).glob("*.yaml"))), counts


def test_everything_is_registered() -> None:
    for kind, folder in (
        ("actions", "actions"),
        ("rules", "rules"),
        ("policies", "policies"),
        ("sensortypes", "sensors"),
        ("actionalias", "aliases"),
    ):
        rows = call("GET", f"/{kind}?pack=edgetune&limit=100")
        own = [row for row in rows if row.get("pack", row["ref"].split(".")[0]) == "edgetune"]
        assert len(own) == len(list((ROOT / folder).glob("*.yaml"))), kind


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"pop": "nowhere", "tuning": "accept_queue"}, "there is no PoP 'nowhere'; known: lab1"),
        ({"pop": "lab1", "tuning": "faster"}, "there is no tuning 'faster'"),
        (
            {"pop": "lab1", "tuning": "accept_queue", "soak": "15x"},
            'soak: "15x" is no duration; write 90s, 15m, 2h, 1d, or seconds',
        ),
        ({"pop": "lab1", "tuning": "accept_queue", "exclude": ["e999"]}, "has no host 'e999'"),
        (
            {"pop": "lab1", "tuning": "accept_queue", "soak": "1", "warmup": "0s"},
            "soak: 1s is below 3m: it is at least 3 x interval + warmup",
        ),
        (
            {"pop": "lab1", "tuning": "accept_queue", "baseline": "3d"},
            "samples of lab1 are kept for 2d, and the baseline",
        ),
        (
            {"pop": "lab1", "tuning": "kernel_upgrade"},
            "kernel.package: its boot loader is none that is known here",
        ),
    ],
)
def test_wrong_input_is_one_clear_line(parameters: dict[str, Any], says: str) -> None:
    ended = run("plan_rollout", **parameters)
    assert ended["status"] == "failed"
    assert says in ended["result"]["result"]["error"]


def test_a_dry_run_touches_nothing() -> None:
    ended = run("rollout_pop", pop="lab1", tuning="accept_queue", wait=True, **SHORT)
    assert ended["status"] == "succeeded"
    assert ended["result"]["output"]["outcome"] == "planned"
    assert "sysctl:net.core.somaxconn: 8 -> 4096" in ended["result"]["output"]["text"]


def test_a_person_sees_a_text_once() -> None:
    seen = st2("run", "edgetune.plan_rollout", "pop=lab1", "tuning=accept_queue")
    assert seen.stdout.count("Plan sha256:") == 1, seen.stdout


def test_a_word_without_the_name_of_its_parameter_is_refused() -> None:
    """As it was taken for when commands were written so; `docs/test_commands.py` has them all."""
    seen = st2("run", "edgetune.doctor_pop", "lab1")
    assert seen.returncode and "cmd" in seen.stdout + seen.stderr
    assert "lab1: " in st2("run", "edgetune.doctor_pop", "pop=lab1").stdout


def test_the_same_story_and_verdict_as_the_local_runner(locally: Any) -> None:
    """Promoted on StackStorm, taken back there, and promoted by the local runner."""
    there = run("rollout_pop", tuning="accept_queue", **REAL)
    output = there["result"]["output"]
    assert (there["status"], output["outcome"]) == ("succeeded", "promoted")
    back = run("roll_back_pop", rollout=output["rollout"])
    assert back["result"]["output"]["outcome"] == "rolled_back"
    here = locally("rollout_pop", tuning="accept_queue", **REAL)
    local = here["result"]["output"]
    # StackStorm knows nothing of it, so nobody else takes it back.
    locally("roll_back_pop", rollout=local["rollout"])
    assert (local["outcome"], local["verdict"]) == (output["outcome"], output["verdict"])
    assert story_of_runner(here) == story_of_stackstorm(there["id"])


def test_a_canceled_rollout_is_taken_back_by_the_rule() -> None:
    execution = start("rollout_pop", **SOON)
    until_state("changing", execution)
    call("DELETE", f"/executions/{execution}")
    assert wait_for(execution)["status"] == "canceled"
    until(lambda: not {"changing", "rolling_back"} & set(states()), 400)
    (latest,) = run("rollout_status", pop="lab1")["result"]["result"]["rollouts"][-1:]
    assert (latest["state"], latest["quarantined"]) == ("rolled_back", {})


def test_stop_all_by_hand_stops_a_rollout_and_the_sweep_carries_it_on() -> None:
    """The key is set as `st2 key set` sets it, without any workflow."""
    execution = start("rollout_pop", **SOON)
    until_state("changing", execution)
    stop = {"name": "edgetune.stop_all", "value": "true", "scope": "st2kv.system"}
    try:
        call("PUT", "/keys/edgetune.stop_all", json=stop)
        assert wait_for(execution)["status"] == "failed"
        text = run("rollout_status")["result"]["result"]["text"]
        assert "EVERYTHING IS STOPPED: true" in text
    finally:
        run("resume_all")
    until(lambda: not {"changing", "rolling_back"} & set(states()), 400)
    (latest,) = run("rollout_status", pop="lab1")["result"]["result"]["rollouts"][-1:]
    assert latest["quarantined"] == {}
    if latest["state"] != "rolled_back":
        back = run("roll_back_pop", rollout=latest["rollout"])
        assert back["result"]["output"]["outcome"] == "rolled_back"


def test_a_held_rollout_is_carried_on_by_its_id() -> None:
    # Often enough for so short a soak: a plan of it is refused otherwise.
    with rule("sample_running", unit="seconds", delta=5):
        execution = start("rollout_pop", tuning="accept_queue", **{**REAL, "wait": False})
        first = wait_for(execution)["result"]["output"]
    assert first["outcome"] == "soaking"
    again = run("rollout_pop", rollout=first["rollout"], dry_run=False, wait=True)
    assert again["result"]["output"]["outcome"] in ("promoted", "held")
    back = run("roll_back_pop", rollout=first["rollout"])
    assert back["result"]["output"]["outcome"] == "rolled_back"
    over = run("rollout_pop", rollout=first["rollout"], dry_run=False)
    assert over["status"] == "failed"
    assert "is rolled_back already" in over["result"]["output"]["message"]


def test_a_bios_setting_is_rolled_out_and_retired() -> None:
    """Logged in with what the encrypted datastore holds, which shows nowhere."""
    text = (HOME / "lab/bmc-credentials.yaml").read_text(encoding="utf-8")
    login = yaml.safe_load(text)["lab"]
    with key("edgetune.bmc.lab", json.dumps(login), secret=True):
        ended = run("rollout_pop", tuning="home_snoop", **REAL)
        output = ended["result"]["output"]
        found = (ended["status"], output["outcome"], output["verdict"])
        assert found == ("succeeded", "promoted", "improved"), output["text"]
        assert _snoop_modes() == {"home"}
        back = run("retire_tuning", pop="lab1", tuning="home_snoop", reason="it was a test")
        assert back["status"] == "succeeded", back["result"]
        assert back["result"]["output"]["rollouts"] == [output["rollout"]]
        assert status(output["rollout"])["state"] == "rolled_back"
        assert _snoop_modes() == {"early"}
    for execution in (ended["id"], back["id"]):
        told = json.dumps(call("GET", f"/executions/{execution}/children?depth=-1"))
        assert login["password"] not in told


def _snoop_modes() -> set[str]:
    state = lab.status(HOME)
    assert state is not None
    return {host["bmc"]["snoop_mode"] for host in state["hosts"]}
