# SPDX-License-Identifier: Apache-2.0
"""The base class for tests of Python actions."""

from __future__ import annotations

from typing import Any

from .mocks import MockActionService
from .pack_resource import BasePackResourceTestCase

__all__ = ["BaseActionTestCase"]


class BaseActionTestCase(BasePackResourceTestCase):
    """Set `action_cls`; get an instance of it with a configuration and a mock datastore."""

    action_cls: Any = None

    def setUp(self) -> None:
        super().setUp()
        self.action_service = MockActionService(self.action_cls.__name__)

    def get_action_instance(self, config: dict[str, Any] | None = None) -> Any:
        return self.action_cls(config=config, action_service=self.action_service)
