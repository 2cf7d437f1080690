# SPDX-License-Identifier: Apache-2.0
"""The base classes of sensors; every method that StackStorm wants is abstract here too."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

__all__ = ["PollingSensor", "Sensor"]


class Sensor(ABC):
    """Runs until its process ends; dispatches triggers with `self.sensor_service`."""

    def __init__(self, sensor_service: Any, config: dict[str, Any] | None = None) -> None:
        self.sensor_service = self._sensor_service = sensor_service
        self.config = self._config = config or {}

    @abstractmethod
    def setup(self) -> None: ...

    @abstractmethod
    def run(self) -> None: ...

    @abstractmethod
    def cleanup(self) -> None: ...

    @abstractmethod
    def add_trigger(self, trigger: Any) -> None: ...

    @abstractmethod
    def update_trigger(self, trigger: Any) -> None: ...

    @abstractmethod
    def remove_trigger(self, trigger: Any) -> None: ...


class PollingSensor(Sensor):
    """Polls every `poll_interval` seconds; an exception in `poll` ends the process."""

    def __init__(
        self,
        sensor_service: Any,
        config: dict[str, Any] | None = None,
        poll_interval: float | None = 5,
    ) -> None:
        super().__init__(sensor_service=sensor_service, config=config)
        self._poll_interval = poll_interval

    @abstractmethod
    def poll(self) -> None: ...

    def run(self) -> None:
        while True:
            self.poll()
            time.sleep(self._poll_interval or 0)

    def get_poll_interval(self) -> float | None:
        return self._poll_interval

    def set_poll_interval(self, poll_interval: float) -> None:
        self._poll_interval = poll_interval
