# SPDX-License-Identifier: Apache-2.0
"""Sensors as processes of their own, started again as StackStorm does (see sensor_process.py)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Protocol

from lab import CHECKOUT
from lab.runner.action_process import COMMANDS
from lab.runner.metadata import MetadataError, Pack, load_yaml

__all__ = ["Process", "Sensor", "SensorKeeper", "load_sensors", "start"]

_TRIES = 2
_BACK_OFF_SECONDS = 2.5
_STARTED_SECONDS = 10
_STOP_SECONDS = 15


@dataclass(frozen=True)
class Sensor:
    """One enabled sensor; without a `poll_interval` (in seconds) it is passive."""

    name: str
    pack: str
    class_name: str
    file: str
    poll_interval: float | None


class Process(Protocol):
    """What the keeper wants of a process: a part of `subprocess.Popen`."""

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""

    def terminate(self) -> None:
        """Ask it to end."""

    def wait(self, timeout: float) -> int:
        """Its exit code; raises TimeoutExpired."""

    def kill(self) -> None:
        """End it."""


class SensorKeeper:
    """Keeps a sensor's process running.

    When it fails it is started again, twice, after 2.5 and then 5 s, and then left for good; ten
    seconds of running earn it two more tries. One that ends by itself is not started again.
    """

    def __init__(
        self, sensor: Sensor, start: Callable[[], Process], note: Callable[[str, str], None]
    ) -> None:
        self._name = sensor.name
        self._start = start
        self._note = note
        self._process: Process | None = None
        self._due: float | None = float("-inf")
        self._started = 0.0
        self._tries = 0

    def tend(self, now: float) -> None:
        """Start it when it is time to, or see whether it still runs; `now` in seconds."""
        if self._process is None:
            if self._due is not None and now >= self._due:
                self._process, self._started = self._start(), now
                self._note("sensor", f"{self._name} started")
            return
        code = self._process.poll()
        if code is not None:
            self._process = None
            self._plan_restart(code, now)
        elif now - self._started >= _STARTED_SECONDS:
            self._tries = 0

    def terminate(self) -> None:
        """Ask its process to end."""
        self._due = None
        if self._process is not None:
            self._process.terminate()

    def close(self) -> None:
        """Wait until its process, which was asked, has ended; kill it when it does not."""
        if self._process is None:
            return
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_SECONDS)
        self._process = None

    def _plan_restart(self, code: int, now: float) -> None:
        self._due = None
        if code == 0:
            self._note("sensor", f"{self._name} ended by itself, it is not started again")
        elif self._tries == _TRIES:
            self._note("sensor", f"{self._name} failed again (exit {code}) and is LEFT FOR GOOD")
        else:
            self._tries += 1
            delay = _BACK_OFF_SECONDS * self._tries
            self._due = now + delay
            self._note("sensor", f"{self._name} failed (exit {code}), again in {delay:g} s")


def load_sensors(pack: Pack, every: float | None = None) -> list[Sensor]:
    """The enabled sensors of a pack, which poll once in `every` seconds or more often, if given.

    Raises MetadataError that names the file.
    """
    return [
        _sensor(pack, file, given, every)
        for file in sorted((pack.root / "sensors").glob("*.yaml"))
        for given in [load_yaml(file)]
        if given.get("enabled", True)
    ]


def _sensor(pack: Pack, file: Path, given: dict[str, Any], every: float | None) -> Sensor:
    source = file.with_name(str(given.get("entry_point")))
    if not source.is_file() or not given.get("class_name"):
        raise MetadataError(f"{file}: class_name, and an entry_point beside it, are expected")
    interval = given.get("poll_interval")
    if every and interval:
        interval = min(interval, every)
    return Sensor(file.stem, pack.ref, given["class_name"], str(source), interval)


class _Group(subprocess.Popen[str]):
    """A process with its descendants; its standard input is closed when it is seen to be over."""

    def poll(self) -> int | None:
        code = super().poll()
        if code is not None and self.stdin is not None:
            self.stdin.close()
        return code

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def start(sensor: Sensor, config: dict[str, Any], home: Path) -> Process:
    """Start a sensor's process. Nothing of the configuration appears in its arguments.

    Its standard input stays open as long as we live, which is how it learns that we died.
    """
    search = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = _Group(
        [sys.executable, "-u", "-m", "lab.serve.sensor_process", f"{sensor.pack}.{sensor.name}"],
        stdin=subprocess.PIPE,
        stdout=2,  # what it prints is no line of ours
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search), **COMMANDS},
        start_new_session=True,
    )
    request = {"sensor": asdict(sensor), "config": config, "home": str(home)}
    with contextlib.suppress(BrokenPipeError):
        assert process.stdin is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
    return process
