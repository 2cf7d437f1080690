# SPDX-License-Identifier: Apache-2.0
"""A running lab PoP and the `edgetune` command on it, looked at from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import pop as lab
from tests.support import ROOT
from tests.support.lab_losses import by_cause

SHORT = ("baseline=8", "soak=16", "interval=4", "warmup=1")
REAL = ("pop=lab1", "dry_run=false", "wait=true", *SHORT)
# Two hosts against two can be drawn in six ways only.
FOUR = (*REAL, "alpha_benefit=0.2", "alpha_harm=0.2")

# For what the few bursts and samples of a slow machine did not prove.
LONGER = ("baseline=20", "soak=48")


def longer(words: Sequence[str]) -> list[str]:
    """The same rollout, watched for longer; nobody may give a parameter twice."""
    names = tuple(word.partition("=")[0] + "=" for word in LONGER)
    return [*(word for word in words if not word.startswith(names)), *LONGER]


def needing(**more: bool) -> list[pytest.MarkDecorator]:
    """The marks of tests that need the namespaced lab, with more than its hosts."""
    missing = lab.missing_requirements(**more)
    reason = f"the namespaced lab needs {', '.join(missing)}"
    return [pytest.mark.lab, pytest.mark.skipif(bool(missing), reason=reason)]


needs_lab = needing()
needs_machines = [pytest.mark.machines, needing(machines=True)[1]]


class Practice:
    """A running lab and the `edgetune` command on it."""

    def __init__(self, home: Path, patience: float = 400.0) -> None:
        self.home, self.patience = home, patience
        self.config = yaml.safe_load((home / "edgetune.yaml").read_text(encoding="utf-8"))
        self.inventory = yaml.safe_load((home / "lab/inventory.yaml").read_text(encoding="utf-8"))
        pops = self.inventory["pops"].values()
        self.hosts = {name: host for pop in pops for name, host in pop["hosts"].items()}
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *words: str, config: Path | None = None) -> subprocess.Popen[str]:
        environment = {**os.environ, "EDGETUNE_HOME": str(self.home)}
        environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'lib'}"
        if config:
            environment["EDGETUNE_CONFIG"] = str(config)
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.cli", *words],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def stop(self) -> None:
        """End what a test has left running."""
        for process in self._started:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=120)

    def edgetune(self, *words: str, config: Path | None = None) -> tuple[int, str, str]:
        process = self.start(*words, config=config)
        out, err = process.communicate(timeout=self.patience)
        return process.returncode, out, err

    def run(self, action: str, *words: str, config: Path | None = None) -> dict[str, Any]:
        code, out, err = self.edgetune("run", action, *words, "--json", config=config)
        assert out, err
        result = json.loads(out)["result"]
        found: dict[str, Any] = result.get("output") or result["result"]
        return {**found, "exit": code}

    def roll_out(self, *words: str) -> dict[str, Any]:
        """Run rollout_pop; where a slow machine showed too little for a verdict, take it back and
        look for longer."""
        done = self.run("rollout_pop", *words)
        if done["outcome"] == "held":
            back = self.run("roll_back_pop", f"rollout={done['rollout']}")
            assert (back["outcome"], back["quarantined"]) == ("rolled_back", {}), back
            done = self.run("rollout_pop", *longer(words))
        return done

    def wait_until_all_serve(self) -> None:
        deadline = time.monotonic() + max(60.0, self.patience / 10)
        while self.serving() != set(self.hosts):
            assert time.monotonic() < deadline, self.serving()
            time.sleep(0.2)

    def on(self, host: str, command: str, stdin: bytes = b"") -> str:
        """Run a command at a host's console, without edgetune."""
        seconds = max(60.0, self.patience / 10)
        return lab.console(self.home, host, ["sh", "-c", command], stdin, timeout=seconds)

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

    @contextmanager
    def losing_nothing(self) -> Iterator[None]:
        """All hosts serve in the end, and each request is answered; prints how many in which time.

        Requests that are under way at the end are waited for. Those do not count that failed on a
        host that nothing happened to: its machine stood still.
        """
        log, began = self.home / "lab/console/haproxy.log", time.monotonic()
        seen, before = len(log.read_bytes()), lab.client_counts(self.home)
        yield
        self.wait_until_all_serve()
        minutes = (time.monotonic() - began) / 60
        lab.set_load(self.home, False)
        try:
            after = self._counts_when_idle()
        finally:
            lab.set_load(self.home, True)
        asked, lost = (int(after[key]) - int(before[key]) for key in ("requests", "lost"))
        answered_for, still = by_cause(log.read_bytes()[seen:].decode())
        print(f"{minutes:.1f} minutes, {asked} requests, {lost} lost")
        print(f"on hosts that nothing happened to: {len(still)}")
        assert not answered_for and lost <= len(still), "\n".join([*answered_for, *still])

    def _counts_when_idle(self) -> dict[str, Any]:
        """The client gives each request up in time."""
        while (counts := lab.client_counts(self.home))["load"] or counts["in_flight"]:
            time.sleep(0.2)
        return counts

    def serving(self) -> set[str]:
        servers = lab.balancer_state(self.home)
        return {name for name, row in servers.items() if row["admin"] == "ready" and row["up"]}


@contextmanager
def practising(
    home: Path, machines: int = 0, drops: bool = False, **more: Any
) -> Iterator[Practice]:
    """A lab of its own, for as long as it is needed; with ``drops`` those of the snoop mode."""
    lab.up(home, machines=machines, drops=drops, **more)
    practice = Practice(home, patience=3600.0 if machines else 400.0)
    try:
        yield practice
    finally:
        practice.stop()
        lab.down(home)
