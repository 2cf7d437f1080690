# SPDX-License-Identifier: Apache-2.0
"""A request to a BMC, and its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .messages import Refused


@dataclass
class Answer:
    status: int
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    name: str = ""  # of the resource
    item: str = ""  # which one of many

    def json(self) -> dict[str, Any]:
        """The body, an object; Refused if it is none."""
        try:
            value = json.loads(self.body or b"{}")
        except ValueError:
            raise Refused("malformed") from None
        if not isinstance(value, dict):
            raise Refused("malformed")
        return value
