# SPDX-License-Identifier: Apache-2.0
"""Whole rollouts by the local runner on a lab PoP of real hosts, looked at from outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import pop as lab
from tests.builders import ROOT, write_yaml

SHORT = ("baseline=5", "soak=8", "interval=2", "warmup=1")
REAL = ("pop=lab1", "dry_run=false", "wait=true", *SHORT)

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(
        bool(lab.missing_requirements()),
        reason=f"the namespaced lab needs {', '.join(lab.missing_requirements())}",
    ),
]


class Practice:
    """A running lab and the `edgetune` command on it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.config = yaml.safe_load((home / "edgetune.yaml").read_text(encoding="utf-8"))
        self.inventory = yaml.safe_load((home / "lab/inventory.yaml").read_text(encoding="utf-8"))
        self.hosts = self.inventory["pops"]["lab1"]["hosts"]

    def start(self, *words: str, config: Path | None = None) -> subprocess.Popen[str]:
        environment = {**os.environ, "EDGETUNE_HOME": str(self.home)}
        environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'lib'}"
        if config:
            environment["EDGETUNE_CONFIG"] = str(config)
        return subprocess.Popen(
            [sys.executable, "-m", "lab.cli", *words],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def edgetune(self, *words: str, config: Path | None = None) -> tuple[int, str, str]:
        process = self.start(*words, config=config)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def run(self, action: str, *words: str) -> dict[str, Any]:
        code, out, err = self.edgetune("run", action, *words, "--json")
        assert out, err
        result = json.loads(out)["result"]
        found: dict[str, Any] = result.get("output") or result["result"]
        return {**found, "exit": code}

    def on(self, host: str, command: str, stdin: bytes = b"") -> str:
        """Run a command on a host by OpenSSH, not by edgetune."""
        key, known = self.home / "lab/id_ed25519", self.home / "lab/known_hosts"
        options = ["-i", str(key), "-o", f"UserKnownHostsFile={known}", "-o", "BatchMode=yes"]
        ssh = ["ssh", *options, f"root@{self.hosts[host]['address']}", command]
        process = subprocess.run(
            [sys.executable, "-m", "lab.cli", "lab", "exec", *ssh],
            cwd=ROOT,
            env={**os.environ, "EDGETUNE_HOME": str(self.home), "PYTHONPATH": str(ROOT)},
            input=stdin,
            capture_output=True,
            check=True,
        )
        return process.stdout.decode()

    def fingerprints(self) -> dict[str, Any]:
        source = (ROOT / "lab/fingerprint.py").read_bytes()
        return {h: json.loads(t) for h, t in self.on_all("python3 -I -S - /", source).items()}

    def on_all(self, command: str, stdin: bytes = b"") -> dict[str, str]:
        with ThreadPoolExecutor(4) as pool:
            texts = pool.map(lambda host: self.on(host, command, stdin), self.hosts)
            return dict(zip(self.hosts, texts))

    def somaxconn(self) -> set[str]:
        return {text.strip() for text in self.on_all("cat /proc/sys/net/core/somaxconn").values()}

    def lost(self) -> int:
        return int(lab.client_counts(self.home)["lost"])

    def serving(self) -> set[str]:
        code = "import sys; sys.path.insert(0, 'lib')\n"
        code += "from edgetune.traffic.haproxy import Haproxy\n"
        code += "from edgetune.inventory import LoadBalancer\n"
        code += "b = LoadBalancer('haproxy', 'tcp://10.77.0.3:9999', 'edges')\n"
        code += "print(*(n for n, s in Haproxy(b).servers().items() if s.in_service))"
        words = ("lab", "exec", sys.executable, "-c", code)
        return set(self.edgetune(*words)[1].split())


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Practice]:
    home = tmp_path_factory.mktemp("practice")
    lab.up(home)
    try:
        yield Practice(home)
    finally:
        lab.down(home)


def test_a_tuning_that_helps_is_promoted_and_can_be_taken_back_by_hand(practice: Practice) -> None:
    before, lost = practice.fingerprints(), practice.lost()
    done = practice.run("rollout_pop", "tuning=accept_queue", *REAL, "by=ana")
    assert (done["exit"], done["outcome"], done["verdict"]) == (0, "promoted", "improved")
    assert practice.somaxconn() == {"4096"}
    assert practice.serving() == set(practice.hosts)
    status = practice.edgetune("status", f"rollout={done['rollout']}")[1]
    assert f"{done['rollout']}  accept_queue on lab1: complete" in status
    assert "by ana" in status
    again = practice.edgetune("run", "rollout_pop", "tuning=accept_queue", *REAL)
    assert again[0] == 1
    assert "nothing to do: every host of lab1 is as accept_queue wants it" in again[2]
    back = practice.run("roll_back_pop", f"rollout={done['rollout']}")
    assert (back["exit"], back["outcome"], back["quarantined"]) == (0, "rolled_back", {})
    assert practice.fingerprints() == before
    assert practice.serving() == set(practice.hosts)
    assert practice.lost() == lost


def test_a_tuning_that_hurts_is_taken_back_to_the_byte(practice: Practice) -> None:
    before, lost = practice.fingerprints(), practice.lost()
    done = practice.run("rollout_pop", "tuning=tiny_accept_queue", *REAL)
    assert (done["exit"], done["outcome"], done["verdict"]) == (1, "rolled_back", "degraded")
    assert practice.fingerprints() == before
    assert practice.serving() == set(practice.hosts)
    assert practice.lost() == lost


def test_a_network_card_is_changed_provisionally_and_confirmed(practice: Practice) -> None:
    done = practice.run("rollout_pop", "tuning=rps_spread", *REAL)
    assert (done["exit"], done["outcome"]) == (0, "promoted"), done
    host = next(iter(practice.hosts))
    journal = json.loads(practice.on(host, "cat /var/lib/edgetune/tunings/rps_spread.json"))
    assert journal["state"] == "confirmed"
    assert practice.on(host, "ls -d /sys/class/net/eth0/queues/rx-*").split() == [
        "/sys/class/net/eth0/queues/rx-0",
        "/sys/class/net/eth0/queues/rx-1",
    ]
    back = practice.run("roll_back_pop", f"rollout={done['rollout']}")
    assert back["outcome"] == "rolled_back"
    assert len(practice.on(host, "ls -d /sys/class/net/eth0/queues/rx-*").split()) == 4


def test_an_interrupted_rollout_is_taken_back(practice: Practice) -> None:
    before, lost = practice.fingerprints(), practice.lost()
    process = practice.start("run", "rollout_pop", "tuning=accept_queue", *REAL, "--json")
    assert process.stderr is not None
    for line in process.stderr:
        if "apply_tuning" in line:
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert json.loads(out)["status"] == "canceled"
    (left,) = practice.run("rollout_status", "state=changing")["ids"]
    back = practice.run("roll_back_pop", f"rollout={left}")
    assert (back["outcome"], back["quarantined"]) == ("rolled_back", {})
    assert practice.fingerprints() == before
    assert practice.serving() == set(practice.hosts)
    assert practice.lost() == lost


def _inventory(practice: Practice, tmp_path: Path, change: Any) -> Path:
    document = json.loads(json.dumps(practice.inventory))
    change(document["pops"]["lab1"])
    path = write_yaml(tmp_path / "inventory.yaml", document)
    return write_yaml(tmp_path / "edgetune.yaml", {**practice.config, "inventory": str(path)})


def _keep(count: int) -> Any:
    def change(pop: dict[str, Any]) -> None:
        pop["hosts"] = dict(list(pop["hosts"].items())[:count])

    return change


def _refused(practice: Practice, says: str, *words: str, config: Path | None = None) -> None:
    """One clear line, exit status not 0, and no host or server touched."""
    serving, lost = practice.serving(), practice.lost()
    code, _, err = practice.edgetune("run", "rollout_pop", *words, config=config)
    assert code not in (0, 130)
    assert says in " ".join(err.split()), err
    assert "Traceback" not in err
    assert practice.serving() == serving
    assert practice.lost() == lost


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("pop=ams1", "tuning=accept_queue"), "pop: there is no PoP 'ams1'; known: lab1"),
        (("pop=lab1", "tuning=faster"), "there is no tuning 'faster'; known:"),
        (("pop=lab1", "tuning=accept_queue", 'exclude=["e9"]'), "has no host 'e9'"),
        (("pop=lab1", "tuning=accept_queue", "speed=9"), "speed"),
        (("pop=lab1", "tuning=accept_queue", "soak=long"), "soak"),
        (("pop=lab1", "plan=sha256:00", "dry_run=false"), "there is no plan sha256:00"),
        (("tuning=accept_queue",), "pop"),
    ],
)
def test_a_wrong_parameter_is_named(practice: Practice, words: Any, says: str) -> None:
    before = practice.fingerprints()
    _refused(practice, says, *words)
    assert practice.fingerprints() == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_keep(4), "too small to split: lab: 2 against 2"),
        (lambda pop: pop.update(floor=1), "too small to keep its floor: 8 of its 8 hosts"),
        (
            lambda pop: pop["hosts"]["e001"].update(address=pop["hosts"]["e000"]["address"]),
            "e001.address: 10.77.1.1 is also the address of lab1/e000",
        ),
        (
            lambda pop: pop["hosts"]["e001"].update(server="e999"),
            "e001.server: the load balancer has no server 'e999'",
        ),
        (
            lambda pop: pop["load_balancer"].update(backend="none"),
            "there is no backend 'none'",
        ),
        (
            lambda pop: pop["load_balancer"].update(address="tcp://10.77.0.3:9"),
            "HAProxy does not answer",
        ),
        (lambda pop: pop["hosts"]["e001"].update(address="10.77.9.9"), "e001: 10.77.9.9: "),
    ],
)
def test_a_wrong_inventory_is_named(
    practice: Practice, tmp_path: Path, change: Any, says: str
) -> None:
    config = _inventory(practice, tmp_path, change)
    shorter = yaml.safe_load(config.read_text(encoding="utf-8"))
    write_yaml(config, {**shorter, "ssh_timeout": 1})
    _refused(practice, says, "tuning=accept_queue", *REAL, config=config)


def test_malformed_yaml_names_the_line(practice: Practice, tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text("pops:\n  lab1: [\n", encoding="utf-8")
    wrong = {**practice.config, "inventory": str(tmp_path / "inventory.yaml")}
    config = write_yaml(tmp_path / "edgetune.yaml", wrong)
    _refused(practice, "inventory.yaml: line 3", "tuning=accept_queue", *REAL, config=config)


def test_an_unknown_kind_names_file_and_field(practice: Practice, tmp_path: Path) -> None:
    text = (ROOT / "tunings/accept_queue.yaml").read_text(encoding="utf-8")
    broken = tmp_path / "broken.yaml"
    broken.write_text(
        text.replace("name: accept_queue", "name: broken").replace("sysctl", "sysctrl"),
        encoding="utf-8",
    )
    config = write_yaml(tmp_path / "edgetune.yaml", {**practice.config, "tunings": [str(tmp_path)]})
    says = "broken.yaml: settings[0].kind: 'sysctrl' is none of"
    shutil.move(tmp_path / "edgetune.yaml", tmp_path.parent / f"{tmp_path.name}.yaml")
    config = tmp_path.parent / f"{tmp_path.name}.yaml"
    _refused(practice, says, "tuning=broken", *REAL, config=config)


def test_a_changed_host_key_is_refused(practice: Practice, tmp_path: Path) -> None:
    lines = (practice.home / "lab/known_hosts").read_text(encoding="utf-8").splitlines()
    swapped = [lines[0].split()[0] + " " + " ".join(lines[1].split()[1:]), *lines[1:]]
    (tmp_path / "known_hosts").write_text("\n".join(swapped) + "\n", encoding="utf-8")
    wrong = {**practice.config, "ssh_known_hosts": str(tmp_path / "known_hosts")}
    config = write_yaml(tmp_path / "edgetune.yaml", wrong)
    says = "its SSH host key is not the one in known_hosts"
    _refused(practice, says, "tuning=accept_queue", *REAL, config=config)


def test_a_host_that_answers_garbage_is_named(practice: Practice) -> None:
    practice.on("e003", "printf '#!/bin/sh\\necho hello\\n' > /usr/local/sbin/python3")
    practice.on("e003", "chmod +x /usr/local/sbin/python3")
    try:
        says = "e003: the answer is not the agent's: b'hello"
        _refused(practice, says, "tuning=accept_queue", *REAL)
    finally:
        practice.on("e003", "rm /usr/local/sbin/python3")


def test_a_plan_that_no_longer_fits_is_refused(practice: Practice) -> None:
    planned = practice.run("plan_rollout", "pop=lab1", "tuning=accept_queue", *SHORT)
    plan = f"plan={planned['plan']}"
    practice.on("e002", "sysctl -q -w net.core.somaxconn=11")
    try:
        _refused(practice, f"plan {planned['plan']} no longer fits: profiles", *REAL, plan)
    finally:
        practice.on("e002", "sysctl -q -w net.core.somaxconn=8")
    assert practice.run("plan_rollout", "pop=lab1", plan)["plan"] == planned["plan"]


def test_a_host_that_is_not_as_planned_any_more_is_not_changed(practice: Practice) -> None:
    """The plan fits, and then somebody changes a host before its batch comes."""
    slowly = ("tuning=accept_queue", *REAL, "baseline=15")
    process = practice.start("run", "rollout_pop", *slowly, "--json")
    assert process.stderr is not None
    for line in process.stderr:
        if "claim_pop" in line:
            break
    practice.on_all("sysctl -q -w net.core.somaxconn=9")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert json.loads(out)["result"]["output"]["outcome"] == "rolled_back"
    assert practice.somaxconn() == {"9"}
    text = practice.edgetune("status")[1]
    assert "sysctl:net.core.somaxconn" in text.rpartition("rolling_back")[2]
    practice.on_all("sysctl -q -w net.core.somaxconn=8")
    deadline = time.monotonic() + 10
    while practice.serving() != set(practice.hosts) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert practice.serving() == set(practice.hosts)
