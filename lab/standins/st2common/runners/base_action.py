# SPDX-License-Identifier: Apache-2.0
"""The base class of Python actions, as much of it as an action may rely on."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any

__all__ = ["Action"]


class PackConfigDict(dict[str, Any]):
    """A missing key is a ValueError that names the pack."""

    def __init__(self, pack: str, values: dict[str, Any]) -> None:
        super().__init__(values)
        self._pack = pack

    def __missing__(self, key: str) -> Any:
        raise ValueError(f'Config for pack "{self._pack}" is missing key "{key}".')


class Action(ABC):
    """`logger` writes to standard error, `config` is the pack's configuration."""

    description: str | None = None

    def __init__(self, config: dict[str, Any] | None = None, action_service: Any = None) -> None:
        wrapper = getattr(action_service, "_action_wrapper", None)
        self.action_service = action_service
        self.config = PackConfigDict(getattr(wrapper, "_pack", "unknown"), config or {})
        self.logger = _logger(type(self).__name__, getattr(wrapper, "_log_level", "debug"))

    @abstractmethod
    def run(self, **parameters: Any) -> Any:
        """Carry the action out; return data, or (succeeded, data)."""


def _logger(action: str, level: str) -> logging.Logger:
    logger = logging.getLogger("st2.actions.python." + action)
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)-12s: %(levelname)-8s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(getattr(logging, level.upper(), logging.DEBUG))
    return logger
