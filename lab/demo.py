# SPDX-License-Identifier: Apache-2.0
"""`make demo`: three tunings rolled over a lab PoP under load: one that helps, one that hurts, and
one whose hosts fall ill while it soaks, which a sensor and a rule take back.

Leaves the pages of the three rollouts in HOME/reports, and HOME/demo.json, in which every value is
measured. Exit status 0 only if the first tuning was promoted, the other two rolled back, every host
restored, and no request lost.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import paramiko
import yaml

from lab import CHECKOUT
from lab.fingerprint import fingerprint

HELPS, HURTS, HARMLESS = "accept_queue", "tiny_accept_queue", "steady_window"
TIMES = ("baseline=10s", "soak=24s", "interval=2s", "warmup=3s")
LONG = ("baseline=10s", "soak=10m", "interval=2s", "warmup=3s")
SETTLE_SECONDS = 6.0
_MOST_REBOOTS = 3  # one may meet a moment without a request
EDGETUNE = ".venv/bin/edgetune"  # no path of a newcomer has it
PATIENCE = 120.0  # seconds until a chain of sensor, rule and rollback counts as broken
TOLD = re.compile(r" (trigger|rule|execution) .*(health_degraded|roll_back_pop)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; returns its exit status."""
    parser = argparse.ArgumentParser(prog="demo", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--keep", action="store_true", help="leave the lab up, to go on in it")
    keep = parser.parse_args(arguments).keep
    began = time.monotonic()
    home = Path(os.environ.get("EDGETUNE_HOME") or CHECKOUT / ".edgetune").resolve()
    lab, kind = _choose()
    what = "simulated hosts" if kind == "simulated" else "Linux hosts in namespaces, under load"
    _say(f"Bringing up a PoP of {what}")
    try:
        lab.up(home, stays=keep)
    except lab.LabError as error:
        print(f"demo: {error} ({EDGETUNE} lab down takes it away)", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted before the lab was up", file=sys.stderr)
        return 130
    try:
        lab.enter_controller(home)
        result = Demo(home, lab, kind).run()
    except KeyboardInterrupt:
        what = f"stays up until: {EDGETUNE} lab down" if keep else "is taken down"
        print(f"\ndemo: interrupted; the lab {what}", file=sys.stderr)
        return 130
    finally:
        if not keep:
            lab.down(home)
    result["seconds"] = round(time.monotonic() - began)
    return _report(home, result, keep)


def _choose() -> tuple[Any, str]:
    lab = import_module("lab.pop")
    missing = lab.missing_requirements()
    if not missing:
        return lab, "namespaces"
    print(f"The lab of real Linux hosts cannot run here (missing: {', '.join(missing)}).")
    print("Hosts are SIMULATED: the same agent over SSH on private directories, no real traffic.")
    return import_module("lab.simulated"), "simulated"


class Demo:
    """The steps of the demonstration on a lab that is up."""

    def __init__(self, home: Path, lab: Any, kind: str) -> None:
        self.home, self.lab, self.kind = home, lab, kind
        inventory = yaml.safe_load((home / "lab/inventory.yaml").read_text(encoding="utf-8"))
        self.hosts: dict[str, dict[str, Any]] = inventory["pops"]["lab1"]["hosts"]

    def run(self) -> dict[str, Any]:
        """Both rollouts and the negative control; returns what was measured."""
        before = self._counts()
        _say(f"A tuning that should help: {HELPS}")
        helped = self._roll_out(HELPS)
        _say("What every host looks like now, before the next one")
        pictures = self._fingerprints()
        print(f"{sum(map(len, pictures.values()))} files and settings on {len(pictures)} hosts")
        _say(f"A tuning that hurts, on purpose: {HURTS}")
        hurt = self._roll_out(HURTS)
        restored = self._compare(pictures, self._fingerprints())
        by_itself = self._roll_back_by_itself(pictures)
        after = self._counts()
        rollouts = [helped["rollout"], hurt["rollout"], by_itself.pop("rollout")]
        return {
            "promoted": helped["outcome"] == "promoted",
            "rolled_back": hurt["outcome"] == "rolled_back" and hurt["verdict"] == "degraded",
            "hosts_restored": restored,
            **by_itself,
            "requests": after["requests"] - before["requests"],
            "requests_lost": after["lost"] - before["lost"],
            "requests_lost_without_drain": self._lost_without_drain(),
            "drop_ratio": _ratio(helped["rollout"], self.home),
            "lab": self.kind,
            "pages": [page for rollout in rollouts for page in _page(rollout, self.home)],
        }

    def _roll_back_by_itself(self, before: dict[str, dict[str, str]]) -> dict[str, Any]:
        """Make changed hosts ill while they soak, and wait for what a sensor and a rule do."""
        _say(f"A rollout nobody watches: {HARMLESS}, on hosts that fall ill while it soaks")
        rollout = self._roll_out(HARMLESS, "wait=false", *LONG)
        now = self._fingerprints()
        changed = [host for host in now if now[host] != before[host]]
        ill = changed[:-1]
        with Served(self.home, "roll_back_degraded", "sample_running") as served:
            print(f"{len(changed)} hosts are changed; the web servers of {', '.join(ill)} get busy")
            began = time.monotonic()
            for host in ill:
                self.lab.inject(self.home, "busy", host)
            found = served.wait_for("trigger   edgetune.health_degraded", rollout["rollout"])
            ended = found and served.wait_for("execution edgetune.roll_back_pop", "succeeded")
        self.lab.heal(self.home)
        restored = self._compare(before, self._fingerprints())
        return {
            "rollout": rollout["rollout"],
            "rolled_back_by_rule": bool(changed and ended and restored),
            "seconds_to_detect": round(found - began, 1) if found else None,
            "seconds_to_roll_back": round(ended - began, 1) if ended else None,
        }

    def _roll_out(self, tuning: str, *more: str) -> dict[str, Any]:
        words = ["run", "rollout_pop", "pop=lab1", f"tuning={tuning}", "dry_run=false"]
        command = _edgetune(*words, *(more or ("wait=true", *TIMES)), "--json")
        environment = _environment(self.home)
        done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False)
        result = json.loads(done.stdout)["result"] if done.stdout else {}
        output: dict[str, Any] = result.get("output") or {}
        print(output.get("text", ""))
        return {"outcome": "", "verdict": "", "rollout": "", **output}

    def _counts(self) -> dict[str, int]:
        if self.kind == "simulated":
            return {"requests": 0, "lost": 0}
        counts: dict[str, int] = self.lab.client_counts(self.home)
        return counts

    def _fingerprints(self) -> dict[str, dict[str, str]]:
        if self.kind == "simulated":
            roots = self.home / "lab/hosts"
            return {host: fingerprint(roots / host / "root") for host in self.hosts}
        source = (CHECKOUT / "lab/fingerprint.py").read_bytes()
        return {h: json.loads(self._ssh(h, "python3 -I -S - /", source)) for h in self.hosts}

    def _compare(self, before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> bool:
        changed = [
            f"{host}:{path}"
            for host in before
            for path in {**before[host], **after[host]}
            if before[host].get(path) != after[host].get(path)
        ]
        print(f"Not as before: {', '.join(changed)}" if changed else "Every host is as before")
        return not changed

    def _lost_without_drain(self) -> int | None:
        """What the same reboot costs when nobody drains the host: the test of the test."""
        if self.kind == "simulated":
            print("Simulated hosts carry no requests, so there is no negative control.")
            return None
        _say("For comparison: one host rebooted without draining it")
        for host in list(self.hosts)[:_MOST_REBOOTS]:
            before = self._counts()
            self._ssh(host, "reboot", b"")
            time.sleep(SETTLE_SECONDS)
            lost = self._counts()["lost"] - before["lost"]
            print(f"{lost} requests lost by {host}")
            if lost:
                return lost
        return 0

    def _ssh(self, host: str, command: str, stdin: bytes) -> bytes:
        with paramiko.SSHClient() as client:
            client.load_host_keys(str(self.home / "lab/known_hosts"))
            key = str(self.home / "lab/id_ed25519")
            address = self.hosts[host]["address"]
            client.connect(address, username="root", key_filename=key, allow_agent=False)
            channel = client.exec_command(command)
            channel[0].channel.sendall(stdin)
            channel[0].channel.shutdown_write()
            return bytes(channel[1].read())


class Served:
    """`edgetune serve` beside the demonstration; each line it prints is kept with its time."""

    def __init__(self, home: Path, *rules: str) -> None:
        command = _edgetune("serve", "--verbose", "--every", "2", "--enable", ",".join(rules))
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=_environment(home)
        )
        self._lines: list[tuple[float, str]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *raised: object) -> None:
        # The first one lets running actions end. After Ctrl-C it is the second one, and kills them.
        self._process.terminate()
        self._process.wait()
        self._reader.join()

    def wait_for(self, *words: str) -> float | None:
        """Print the lines that are not of timers until one holds all the words; when it came, or
        None if it does not come in PATIENCE seconds."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._process.poll() is None:
            while self._lines:
                moment, line = self._lines.pop(0)
                if TOLD.search(line):
                    print(line, flush=True)
                if all(word in line for word in words):
                    return moment
            time.sleep(0.1)
        return None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append((time.monotonic(), line.rstrip()))


def _edgetune(*words: str) -> list[str]:
    return [sys.executable, "-m", "lab.cli", *words]


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "EDGETUNE_HOME": str(home)}


def _read(home: Path, action: str, rollout: str) -> dict[str, Any]:
    """The result of an action that reads the records of a rollout; empty where it failed."""
    done = subprocess.run(
        _edgetune("run", action, f"rollout={rollout}", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment(home),
        check=False,
    )
    found: dict[str, Any] = (
        json.loads(done.stdout)["result"]["result"] if not done.returncode else {}
    )
    return found


def _ratio(rollout: str, home: Path) -> float | None:
    """Drops of the test group against the control group, after against before."""
    rollouts = _read(home, "rollout_status", rollout).get("rollouts")
    ratio = rollouts[0]["ratio"] if rollouts else None
    return round(ratio, 4) if ratio is not None else None


def _page(rollout: str, home: Path) -> list[str]:
    """The path of its page, where it has one."""
    path = _read(home, "report_rollout", rollout).get("path")
    return [path] if path else []


def _say(text: str) -> None:
    print(f"\n== {text}", flush=True)


def _report(home: Path, result: dict[str, Any], keep: bool) -> int:
    """Write what was measured, and show it; the exit status comes back."""
    path = home / "demo.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    wanted = ("promoted", "rolled_back", "hosts_restored", "rolled_back_by_rule")
    failed = [name for name in wanted if not result[name]]
    if result["requests_lost"]:
        failed.append("requests_lost")
    if result["requests_lost_without_drain"] == 0:
        failed.append("requests_lost_without_drain")
    _say(f"{result['seconds'] // 60} minutes, all measured: {path}")
    print("\n".join(_summary(result)))
    pages = [Path(page) for page in result["pages"]]
    for page in [pages[0].with_name("index.html"), *pages] if pages else ():
        print(f"  {page}")
    print(f"  next:  {EDGETUNE} status --all, and docs/tutorial.md does the same by hand")
    print(f"  the lab stays up until:  {EDGETUNE} lab down" if keep else "  the lab is down")
    if failed:
        print(f"demo: not as it should be: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _summary(result: dict[str, Any]) -> list[str]:
    """What was seen, a line for each rollout and one for requests."""
    ratio, lost = result["drop_ratio"], result["requests_lost_without_drain"]
    by_rule = "NOT rolled back by the rule"
    if result["rolled_back_by_rule"]:
        seconds = result["seconds_to_roll_back"]
        by_rule = f"rolled back by a rule, {seconds:.0f} s after hosts fell ill"
    ends = {
        HELPS: ("promoted" if result["promoted"] else "NOT promoted")
        + ("" if ratio is None else f": {1 - ratio:.1%} fewer drops"),
        HURTS: f"{'rolled' if result['rolled_back'] else 'NOT rolled'} back by its verdict",
        HARMLESS: by_rule,
    }
    lines = [f"  {tuning:18} {end}" for tuning, end in ends.items()]
    if result["lab"] == "simulated":
        return [*lines, "  Simulated hosts carry no requests: none could be lost."]
    undrained = "" if lost is None else f"; {lost} by one reboot without a drain"
    return [
        *lines,
        f"  {result['requests_lost']} of {result['requests']:,} requests lost{undrained}",
    ]


if __name__ == "__main__":
    sys.exit(main())
