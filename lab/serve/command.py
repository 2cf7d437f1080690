# SPDX-License-Identifier: Apache-2.0
"""Serves a pack until it is told to end, and leaves no process behind."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from edgetune.base import clock
from lab.runner.engine import Engine
from lab.runner.inbox import Inbox
from lab.runner.metadata import Pack
from lab.runner.story import StoryTeller
from lab.serve.log import Log, News
from lab.serve.metrics import Address, metrics_served
from lab.serve.rules import RuleBook, Switches
from lab.serve.sensors import SensorKeeper, load_sensors, start
from lab.serve.server import Server

__all__ = ["serve"]

_TICK_SECONDS = 0.2


def serve(
    pack: Pack,
    config: dict[str, Any],
    home: Path,
    switches: Switches,
    stream: TextIO,
    every: float | None = None,
    verbose: bool = False,
    metrics: Address | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, which cancels; a second one kills the actions that run.

    With `every`, timers of rules that `switches` has on in any case tick, and sensors poll, at
    least once in so many seconds; such a rule is passed over while its last execution runs.
    `verbose` tells each trigger and execution. Prometheus may scrape `/metrics` at `metrics`, a
    host and a port. Raises MetadataError before anything is started, ServedError if somebody serves
    `home`, and UsageError if that address is not free.
    """
    book, sensors = RuleBook(pack), load_sensors(pack, every)
    # Beside a StackStorm, orquesta imports plugins that hang a thread that is not the main one.
    import_module("lab.runner.workflow")
    log = Log(stream, _now) if verbose else News(stream, _now, StoryTeller(config))
    inbox = Inbox(home)
    engine = Engine(pack, config, home, log)
    keepers = [
        SensorKeeper(sensor, partial(start, sensor, config, home), log.line) for sensor in sensors
    ]
    with inbox.served(), metrics_served(config, metrics), _signals() as signals:
        server = Server(engine, book, switches, keepers, inbox, log, _now, every)
        rules = ", ".join(name for name, rule in book.rules.items() if switches.is_on(rule))
        log.line("serving", f"rules that are on: {rules or 'none'}")
        if metrics:
            log.line("serving", f"http://{metrics[0]}:{metrics[1]}/metrics")
        if every:
            log.line("serving", f"sensors, and timers of --enable, every {every:g} s")
        try:
            while not signals:
                server.tick()
                log.look()
                time.sleep(_TICK_SECONDS)
        finally:
            server.stop()
            if server.busy:
                log.line("ending", "running actions are left to finish (Ctrl-C again kills them)")
            while server.busy:
                if len(signals) > 1:
                    engine.kill()
                time.sleep(_TICK_SECONDS)


def _now() -> datetime:
    return datetime.fromtimestamp(clock.wall(), timezone.utc)


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """SIGINT and SIGTERM are only counted meanwhile."""
    came: list[int] = []

    def count(number: int, frame: FrameType | None) -> None:
        came.append(number)

    previous = {number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
