# SPDX-License-Identifier: Apache-2.0
"""Services for actions and sensors under test: a datastore in memory, dispatched triggers kept."""

from __future__ import annotations

from logging import RootLogger
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

__all__ = ["MockActionService", "MockSensorService"]


class _DatastoreService:
    """Keeps the object that was set, as StackStorm's mock does; the real store keeps its str()."""

    def __init__(self, wrapper: SimpleNamespace) -> None:
        self._prefix = f"{wrapper._pack}.{wrapper._class_name}:"
        self._items: dict[str, SimpleNamespace] = {}
        self._logger = Mock(spec=RootLogger)

    @property
    def datastore_service(self) -> _DatastoreService:
        return self

    def get_user_info(self) -> dict[str, Any]:
        return {"username": "admin", "rbac": {"is_admin": True, "enabled": True}}

    def list_values(
        self,
        local: bool = True,
        prefix: str | None = None,
        limit: int | None = None,
        offset: int | None = 0,
    ) -> list[SimpleNamespace]:
        start = (self._prefix if local else "") + (prefix or "")
        return [item for name, item in self._items.items() if name.startswith(start)]

    def get_value(
        self, name: str, local: bool = True, scope: str = "system", decrypt: bool = False
    ) -> Any:
        item = self._items.get(self._key(name, local))
        return None if item is None else item.value

    def set_value(
        self,
        name: str,
        value: Any,
        ttl: int | None = None,
        local: bool = True,
        scope: str = "system",
        encrypt: bool = False,
    ) -> bool:
        key = self._key(name, local)
        self._items[key] = SimpleNamespace(id=key, name=key, value=value, ttl=ttl)
        return True

    def delete_value(self, name: str, local: bool = True, scope: str = "system") -> bool:
        return self._items.pop(self._key(name, local), None) is not None

    def _key(self, name: str, local: bool) -> str:
        return self._prefix + name if local else name


class MockActionService(_DatastoreService):
    """`action_service` of an action under test."""

    def __init__(self, class_name: str) -> None:
        self._action_wrapper = SimpleNamespace(_pack="tests", _class_name=class_name)
        super().__init__(self._action_wrapper)


class MockSensorService(_DatastoreService):
    """`sensor_service` of a sensor under test; its logger is a Mock."""

    def __init__(self, class_name: str) -> None:
        self._sensor_wrapper = SimpleNamespace(_pack="tests", _class_name=class_name)
        super().__init__(self._sensor_wrapper)
        self.dispatched_triggers: list[dict[str, Any]] = []

    def get_logger(self, name: str) -> Any:
        return self._logger

    def dispatch(
        self, trigger: str, payload: Any = None, trace_tag: str | None = None
    ) -> dict[str, Any]:
        context = SimpleNamespace(trace_tag=trace_tag) if trace_tag else None
        return self.dispatch_with_context(trigger, payload, context)

    def dispatch_with_context(
        self, trigger: str, payload: Any = None, trace_context: Any = None
    ) -> dict[str, Any]:
        item = {"trigger": trigger, "payload": payload, "trace_context": trace_context}
        self.dispatched_triggers.append(item)
        return item
