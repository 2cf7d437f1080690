# SPDX-License-Identifier: Apache-2.0
"""A store that keeps what it is asked, and how much it tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class AskedStore:
    """``keys`` that were asked for, in order; ``requests`` as StackStorm answers, 100 keys of a
    list each; ``texts`` that lists had."""

    def __init__(self, store: Any) -> None:
        self._store, self.keys = store, list[str]()
        self.requests = self.texts = 0

    def list(self, prefix: str) -> Mapping[str, str]:
        found: Mapping[str, str] = self._store.list(prefix)
        self.keys.append(prefix)
        self.requests += 1 + len(found) // 100
        self.texts += len(found)
        return found

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def asked(key: str, *more: Any) -> Any:
            self.keys.append(key)
            self.requests += 1
            return method(key, *more)

        return asked
