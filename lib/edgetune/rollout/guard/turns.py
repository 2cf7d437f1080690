# SPDX-License-Identifier: Apache-2.0
"""Of several guards one looks at a time, and people are told a thing once, whichever tells them.

StackStorm runs a sensor in each of its sensor containers, unless they are partitioned.
"""

from __future__ import annotations

from typing import Any, Union

from edgetune.base import clock
from edgetune.net.databases import SCHEME, open_redis, redis_errors
from edgetune.site.config import Config

TURN = 75
"""Seconds for which a guard that looks keeps its turn, and looks every 30 s."""
AN_HOUR = 3600
"""Seconds in which people are told a thing once."""
_TURN_KEY = "edgetune:guard:turn"


def open_turns(config: Config, alone: Turns) -> Turns:
    """Those of a configuration's ``coordination``; beside a SQLite file a guard is ``alone``."""
    return alone if config.coordination.startswith(SCHEME) else RedisTurns(open_redis(config))


class Alone:
    """Of a guard that has no other beside it."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def has(self, guard: str) -> bool:
        """Whether it is this guard's turn to look: always."""
        return True

    def was_told(self, what: str) -> bool:
        """Whether people were told that within the hour."""
        now = clock.wall()
        self._told = {key: at for key, at in self._told.items() if at > now - AN_HOUR}
        return what in self._told

    def tell(self, what: str) -> None:
        """Keep that people were told, for an hour from when they were first."""
        self._told.setdefault(what, clock.wall())

    def give_up(self, guard: str) -> None:
        """Let another look at once: there is none."""


class RedisTurns:
    """What guards agree on, in Redis, which forgets by itself; every call raises StoreError when
    Redis fails. A guard keeps its turn by asking for it again in time."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def has(self, guard: str) -> bool:
        with redis_errors(_TURN_KEY):
            if self._client.set(_TURN_KEY, guard, nx=True, ex=TURN):
                return True
            return bool(
                self._client.get(_TURN_KEY) == guard and self._client.expire(_TURN_KEY, TURN)
            )

    def was_told(self, what: str) -> bool:
        with redis_errors(_told_key(what)):
            return bool(self._client.exists(_told_key(what)))

    def tell(self, what: str) -> None:
        with redis_errors(_told_key(what)):
            self._client.set(_told_key(what), "1", nx=True, ex=AN_HOUR)

    def give_up(self, guard: str) -> None:
        with redis_errors(_TURN_KEY):
            if self._client.get(_TURN_KEY) == guard:
                self._client.delete(_TURN_KEY)


Turns = Union[Alone, RedisTurns]


def _told_key(what: str) -> str:
    return f"edgetune:told:{what}"
