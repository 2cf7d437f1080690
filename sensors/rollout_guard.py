# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from st2common.util.config_loader import ContentPackConfigLoader
from st2reactor.sensor.base import PollingSensor

# A sensor has only its own folder on the path, not the pack's lib.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from edgetune import PACK  # noqa: E402
from edgetune.base.errors import EdgetuneError  # noqa: E402
from edgetune.report.action import safe  # noqa: E402
from edgetune.rollout.context import Context  # noqa: E402
from edgetune.rollout.guard import Guard  # noqa: E402
from edgetune.rollout.ownership.automation import GUARD_PROBLEM, QUIET  # noqa: E402
from edgetune.rollout.store.records import SensorStore  # noqa: E402


class RolloutGuard(PollingSensor):
    """Dispatches what the guard finds, as the triggers of this pack."""

    def setup(self) -> None:
        self._logger = self.sensor_service.get_logger(name=type(self).__name__)
        self._guard = Guard(lambda problem: self._logger.error("%s", problem))

    def poll(self) -> None:
        # An exception here ends the sensor's process, and after two more tries for good.
        try:
            # StackStorm gives a sensor the configuration of its start, and tells of no change.
            context = Context(ContentPackConfigLoader(pack_name=PACK).get_config())
            if context.config.records == "st2":
                context.store = SensorStore(self.sensor_service)
            for trigger, payload in self._guard.look(context):
                self.sensor_service.dispatch(
                    trigger=f"edgetune.{trigger}", payload=safe(payload), trace_tag=payload["id"]
                )
        except Exception as error:  # noqa: BLE001
            self._complain(str(error) if isinstance(error, EdgetuneError) else repr(error))

    def _complain(self, problem: str) -> None:
        self._logger.error("cannot look at running rollouts: %s", problem)
        # Without a configuration there is no heartbeat that could tell it.
        with suppress(Exception):
            self.sensor_service.set_value(GUARD_PROBLEM, problem, ttl=int(QUIET), local=False)

    def cleanup(self) -> None:
        self._guard.stop()

    def add_trigger(self, trigger: dict[str, Any]) -> None:
        pass

    def update_trigger(self, trigger: dict[str, Any]) -> None:
        pass

    def remove_trigger(self, trigger: dict[str, Any]) -> None:
        pass
