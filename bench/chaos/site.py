# SPDX-License-Identifier: Apache-2.0
"""The lab of one run, and the `edgetune` command and the store on it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from lab import CHECKOUT
from lab import pop as lab

REDIS_PORT = 6379
REDIS_SECONDS = 60.0
REAP_SECONDS = 60.0
# Short, so that what waits for somebody who is dead does not wait long.
CONFIGURATION = {
    "ssh_timeout": 3,
    "claim_ttl": 60,
    "claim_grace": 0,
    "owner_timeout": 2.5,
    "drain_deadline": 40,
    "reboot_deadline": 15,
    "health_deadline": 10,
}


class Site:
    """A lab in `home`, which is empty before; `log` gets what `edgetune` prints.

    `checkout` is the pack that is run on it.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.checkout = CHECKOUT
        self.log = home / "edgetune.log"
        self._redis: subprocess.Popen[bytes] | None = None
        self._clients: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[bytes]] = []

    def up(self, hosts: int, coordination: str, stays: bool) -> None:
        """Bring it up, under load; `coordination` is sqlite or redis. A lab that `stays` outlives
        this process."""
        home = self.home
        lab.up(home, hosts=hosts, drops=False, stays=stays)
        own: dict[str, Any] = dict(CONFIGURATION)
        if coordination == "redis":
            own["coordination"] = f"redis://127.0.0.1:{REDIS_PORT}/0"
            (home / "redis").mkdir()
            self.start_redis()
        file = home / "edgetune.yaml"
        document = {**yaml.safe_load(file.read_text(encoding="utf-8")), **own}
        file.write_text(yaml.safe_dump(document), encoding="utf-8")

    def edgetune(self, *words: str, result: Path | None = None) -> subprocess.Popen[bytes]:
        """Start `edgetune run`; with `result` its JSON document goes into that file."""
        command = [sys.executable, "-m", "lab.cli", "run", "--verbose", *words]
        with self.log.open("ab") as log:
            log.write(f"\n$ edgetune run {' '.join(words)}\n".encode())
            log.flush()
            if result is None:
                return self._start(command, log)
            with result.open("wb") as file:
                return self._start([*command, "--json"], file, log)

    def start_redis(self) -> None:
        """Every write is on the disk before it is answered."""
        options = ["--port", f"{REDIS_PORT}", "--bind", "127.0.0.1", "--save", ""]
        options += ["--dir", str(self.home / "redis"), "--appendonly", "yes"]
        command = [sys.executable, "-m", "lab.cli", "lab", "exec", "redis-server", *options]
        with (self.home / "redis.log").open("wb") as log:
            self._redis = self._start([*command, "--appendfsync", "always"], log)
        end = time.monotonic() + REDIS_SECONDS
        while b"Ready to accept" not in (self.home / "redis.log").read_bytes():
            if time.monotonic() > end or self._redis.poll() is not None:
                raise lab.LabError(f"Redis did not start: see {self.home / 'redis.log'}")
            time.sleep(0.02)

    def kill_redis(self, wipe: bool) -> None:
        """With its data, or not."""
        if self._redis is not None:
            self._redis.kill()
            self._redis.wait()
        if wipe:
            shutil.rmtree(self.home / "redis")
            (self.home / "redis").mkdir()

    def start_clients(self, port: int) -> None:
        """What sockets are read through, at loopback of the controller (``clients``)."""
        module = [sys.executable, "-m", "bench.chaos.clients", f"{port}"]
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "lab.cli", "lab", "exec", *module]
            self._clients = self._start(command, log)

    def end_clients(self) -> None:
        """It answers nobody any more."""
        if self._clients is not None:
            self._clients.kill()
            self._clients.wait()

    @property
    def stays(self) -> set[int]:
        """Processes that end with the lab and not before."""
        kept = (self._redis, self._clients)
        return {process.pid for process in kept if process is not None}

    def exchange_addresses(self, one: str, other: str) -> None:
        """Let two hosts have each other's SSH address in the inventory."""
        with self.pop() as pop:
            hosts = pop["hosts"]
            exchanged = hosts[other]["address"], hosts[one]["address"]
            hosts[one]["address"], hosts[other]["address"] = exchanged

    @contextmanager
    def pop(self) -> Iterator[dict[str, Any]]:
        """Change what the inventory says of the PoP, at the end of the block."""
        file = self.home / "lab/inventory.yaml"
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        yield document["pops"]["lab1"]
        fresh = file.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(document), encoding="utf-8")
        fresh.replace(file)

    def reap(self) -> None:
        """Forget the processes that were started here, once somebody has ended them."""
        for process in self._started:
            process.wait(REAP_SECONDS)

    def lock_store(self) -> sqlite3.Connection:
        """Nobody else can use the store until the connection is closed; raises sqlite3.Error
        while somebody does."""
        held = sqlite3.connect(self.store, timeout=0.02, isolation_level=None)
        try:
            held.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error:
            held.close()
            raise
        return held

    def move_store(self, away: bool) -> None:
        """Put a directory in its place, as when a disk is not mounted, or put it back."""
        aside = self.store.with_suffix(".away")
        if away:
            self.store.rename(aside)
            self.store.mkdir()
        else:
            self.store.rmdir()
            aside.rename(self.store)

    @property
    def store(self) -> Path:
        """The SQLite file."""
        return self.home / "edgetune.sqlite"

    def _start(self, command: list[str], out: Any, err: Any = None) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "EDGETUNE_HOME": str(self.home)}
        environment["PYTHONPATH"] = f"{self.checkout}:{self.checkout / 'lib'}"
        environment["EDGETUNE_PACK"] = str(self.checkout)
        process = subprocess.Popen(
            command,
            cwd=self.checkout,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err or out,
            start_new_session=True,
        )
        self._started.append(process)
        return process


def read_result(path: Path) -> dict[str, Any] | None:
    """What an action answered, None if it failed."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    found: dict[str, Any] | None = (document.get("result") or {}).get("result")
    return found if document.get("status") == "succeeded" else None
