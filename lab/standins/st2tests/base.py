# SPDX-License-Identifier: Apache-2.0
"""The names that tests of a pack import."""

from __future__ import annotations

from .action_aliases import BaseActionAliasTestCase
from .actions import BaseActionTestCase
from .pack_resource import BasePackResourceTestCase
from .sensors import BaseSensorTestCase

__all__ = [
    "BaseActionAliasTestCase",
    "BaseActionTestCase",
    "BasePackResourceTestCase",
    "BaseSensorTestCase",
]
