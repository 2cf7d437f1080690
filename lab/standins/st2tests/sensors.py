# SPDX-License-Identifier: Apache-2.0
"""The base class for tests of sensors."""

from __future__ import annotations

from typing import Any

from .mocks import MockSensorService
from .pack_resource import BasePackResourceTestCase

__all__ = ["BaseSensorTestCase"]


class BaseSensorTestCase(BasePackResourceTestCase):
    """Set `sensor_cls`; triggers it dispatches are kept, not checked against their schema."""

    sensor_cls: Any = None

    def setUp(self) -> None:
        super().setUp()
        self.sensor_service = MockSensorService(self.sensor_cls.__name__)

    def get_sensor_instance(
        self, config: dict[str, Any] | None = None, poll_interval: float | None = None
    ) -> Any:
        arguments: dict[str, Any] = {"config": config} if config else {}
        if poll_interval is not None:
            arguments["poll_interval"] = poll_interval
        return self.sensor_cls(sensor_service=self.sensor_service, **arguments)

    def get_dispatched_triggers(self) -> list[dict[str, Any]]:
        return self.sensor_service.dispatched_triggers

    def get_last_dispatched_trigger(self) -> dict[str, Any]:
        return self.sensor_service.dispatched_triggers[-1]

    def assertTriggerDispatched(
        self, trigger: str, payload: Any = None, trace_context: Any = None
    ) -> bool:
        """Payload and trace context count only when given."""
        wanted = {"payload": payload, "trace_context": trace_context}
        for item in self.get_dispatched_triggers():
            if item["trigger"] == trigger and all(
                not value or item[name] == value for name, value in wanted.items()
            ):
                return True
        raise AssertionError(f'Trigger "{trigger}" hasn\'t been dispatched')
