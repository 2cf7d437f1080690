# SPDX-License-Identifier: Apache-2.0
"""The process of a sensor: `python -m lab.serve.sensor_process REF`, one line of JSON on stdin.

The request has sensor (name, pack, class_name, file, poll_interval), config and home. The process
ends when its standard input does. Unlike StackStorm it does not patch anything for eventlet.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from lab import use_standins
from lab.runner.datastore import Datastore
from lab.runner.inbox import Inbox
from lab.runner.wrapper import load_module

__all__ = ["SensorService", "main"]


class SensorService(Datastore):
    """What a sensor gets as `self.sensor_service`; payloads are checked by the server."""

    def __init__(self, home: Path, pack: str, class_name: str) -> None:
        self._log = logging.getLogger(f"sensor.{class_name}")
        super().__init__(home / "datastore.sqlite", pack, class_name, self._log)
        self._inbox = Inbox(home)

    def get_logger(self, name: str) -> logging.Logger:
        return self._log.getChild(name)

    def dispatch(self, trigger: str, payload: Any = None, trace_tag: str | None = None) -> None:
        """Tell the server; there are no traces."""
        self._inbox.post(trigger, payload)

    def dispatch_with_context(
        self, trigger: str, payload: Any = None, trace_context: Any = None
    ) -> None:
        self._inbox.post(trigger, payload)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(levelname)-8s %(message)s")
    request = json.loads(sys.stdin.readline())
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sensor = _sensor(request)
    try:
        sensor.setup()
        sensor.run()
    finally:
        sensor.cleanup()


def _sensor(request: dict[str, Any]) -> Any:
    use_standins()
    given = request["sensor"]
    configs = import_module("st2common.util.config_loader").ContentPackConfigLoader.configs
    configs[given["pack"]] = request["config"]
    file = Path(given["file"])
    sys.path.append(str(file.parent))
    sensor_class = getattr(load_module(file.stem, file), given["class_name"])
    interval = given["poll_interval"]
    service = SensorService(Path(request["home"]), given["pack"], given["class_name"])
    polled = {} if interval is None else {"poll_interval": interval}
    return sensor_class(sensor_service=service, config=request["config"], **polled)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
