# SPDX-License-Identifier: Apache-2.0
"""The configuration of a pack, for code that StackStorm gives none or an old one."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

__all__ = ["ContentPackConfigLoader"]


class ContentPackConfigLoader:
    """Answers with what the process that runs a pack's code keeps in ``configs``."""

    configs: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(self, pack_name: str, user: str | None = None) -> None:
        self.pack_name, self.user = pack_name, user

    def get_config(self) -> dict[str, Any]:
        return copy.deepcopy(self.configs.get(self.pack_name, {}))
