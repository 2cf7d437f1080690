# SPDX-License-Identifier: Apache-2.0
"""Who owns a PoP: a claim with an expiry, and an epoch that only grows.

The epoch goes to every host with every change, and a host refuses a smaller one: an owner
that was thought dead cannot change anything any more. Redis needs no lock beyond ``SET NX PX``
here because taking and renewing are one script each.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Protocol

from edgetune.backends import SCHEME, Database, open_redis, redis_errors
from edgetune.config import Config
from edgetune.errors import FencedError, StoreError


@dataclass(frozen=True)
class Claim:
    """A PoP's owner."""

    rollout: str
    epoch: int


class Claims(Protocol):
    """Claims on PoPs; every call raises StoreError when the backend fails."""

    def take(
        self, pop: str, rollout: str, ttl: float, after: int | None = None, above: int = 0
    ) -> Claim:
        """Claim a PoP for ``ttl`` seconds with a new epoch; FencedError if another has it.

        With ``after`` only the holder of that epoch gets the next one, so that of two callers
        who want to carry a rollout on, one does. The new epoch is larger than ``above``, which
        hosts may have seen although the backend has lost its count.
        """

    def holder(self, pop: str) -> Claim | None:
        """Who has it now."""

    def expires_in(self, pop: str) -> float:
        """Seconds until the claim on a PoP runs out; 0 if nobody has it."""

    def renew(self, pop: str, claim: Claim, ttl: float) -> None:
        """Keep it for ``ttl`` more seconds; FencedError if it is not this one's any more.

        A claim that ran out and that nobody took since is this one's still.
        """

    def release(self, pop: str, claim: Claim, after: float = 0) -> bool:
        """Give it back in ``after`` seconds; False if it was not this one's any more."""

    def refuses_changes(self) -> str:
        """Why a claim could not be written, or ""; writes nothing and takes no epoch."""


def open_claims(config: Config) -> Claims:
    """The claims of a configuration's ``coordination``."""
    if config.coordination.startswith(SCHEME):
        return SqliteClaims(Database(config.coordination))
    return RedisClaims(open_redis(config))


class SqliteClaims:
    """Claims in a SQLite file, one transaction a call."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(
        self, pop: str, rollout: str, ttl: float, after: int | None = None, above: int = 0
    ) -> Claim:
        """Claim a PoP with a new epoch; FencedError if somebody else has it."""
        with self._database.transaction() as db:
            held = self._held(db, pop)
            if held is not None and held.rollout != rollout:
                raise FencedError(_taken(pop, held))
            last = max(self._epoch(db, pop), above)
            if after is not None and (held.epoch if held else last) != after:
                raise FencedError(_lost(pop, Claim(rollout, after), held))
            claim = Claim(rollout, last + 1)
            db.execute("INSERT OR REPLACE INTO epochs VALUES (?, ?)", (pop, claim.epoch))
            self._write(db, pop, claim, ttl)
        return claim

    def holder(self, pop: str) -> Claim | None:
        """Who has it now."""
        with self._database.transaction() as db:
            return self._held(db, pop)

    def expires_in(self, pop: str) -> float:
        """Seconds until the claim on a PoP runs out; 0 if nobody has it."""
        with self._database.transaction() as db:
            row = db.execute("SELECT expires FROM claims WHERE pop = ?", (pop,)).fetchone()
        return max(0.0, float(row[0]) - time.time()) if row else 0.0

    def renew(self, pop: str, claim: Claim, ttl: float) -> None:
        """Keep it; FencedError if it is not this one's any more."""
        with self._database.transaction() as db:
            held = self._held(db, pop)
            if held != claim and (held is not None or self._epoch(db, pop) != claim.epoch):
                raise FencedError(_lost(pop, claim, held))
            self._write(db, pop, claim, ttl)

    def release(self, pop: str, claim: Claim, after: float = 0) -> bool:
        """Give it back in ``after`` seconds; False if it was not this one's any more."""
        with self._database.transaction() as db:
            if self._held(db, pop) != claim:
                return False
            self._write(db, pop, claim, after)
        return True

    def refuses_changes(self) -> str:
        """Takes the lock for writing: StoreError where the file is read-only."""
        with self._database.transaction():
            return ""

    @staticmethod
    def _held(db: Any, pop: str) -> Claim | None:
        query = "SELECT value FROM claims WHERE pop = ? AND expires > ?"
        row = db.execute(query, (pop, time.time())).fetchone()
        return _decode(row[0]) if row else None

    @staticmethod
    def _epoch(db: Any, pop: str) -> int:
        row = db.execute("SELECT epoch FROM epochs WHERE pop = ?", (pop,)).fetchone()
        return int(row[0]) if row else 0

    @staticmethod
    def _write(db: Any, pop: str, claim: Claim, ttl: float) -> None:
        row = (pop, _encode(claim), time.time() + ttl)
        db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", row)


_TAKE = """
local held = redis.call('GET', KEYS[1])
if held and cjson.decode(held).rollout ~= ARGV[1] then return {0, held} end
local last = math.max(tonumber(redis.call('GET', KEYS[2]) or '0'), tonumber(ARGV[4]))
if ARGV[3] ~= '' and (held and cjson.decode(held).epoch or last) ~= tonumber(ARGV[3]) then
  return {0, held}
end
local epoch = last + 1
redis.call('SET', KEYS[2], epoch)
local claim = cjson.encode({rollout = ARGV[1], epoch = epoch})
redis.call('SET', KEYS[1], claim, 'PX', ARGV[2])
return {1, claim}
"""

_RENEW = """
local held = redis.call('GET', KEYS[1])
if not held and redis.call('GET', KEYS[2]) == ARGV[2] then
  held = cjson.encode({rollout = ARGV[1], epoch = tonumber(ARGV[2])})
  redis.call('SET', KEYS[1], held)
end
if not held then return {0, false} end
local claim = cjson.decode(held)
if claim.rollout ~= ARGV[1] or claim.epoch ~= tonumber(ARGV[2]) then return {0, held} end
if ARGV[3] == '0' then redis.call('DEL', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return {1, held}
"""


class RedisClaims:
    """Claims in Redis, shared by every action runner."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def take(
        self, pop: str, rollout: str, ttl: float, after: int | None = None, above: int = 0
    ) -> Claim:
        """Claim a PoP with a new epoch; FencedError if somebody else has it."""
        expected = "" if after is None else str(after)
        arguments = (rollout, str(int(ttl * 1000)), expected, str(above))
        ok, text = self._run(_TAKE, pop, arguments)
        held = _decode(text) if text else None
        if ok and held is not None:
            return held
        if held is not None and held.rollout != rollout:
            raise FencedError(_taken(pop, held))
        raise FencedError(_lost(pop, Claim(rollout, after or 0), held))

    def holder(self, pop: str) -> Claim | None:
        """Who has it now."""
        with redis_errors():
            held = self._client.get(_claim_key(pop))
        return _decode(held) if held else None

    def expires_in(self, pop: str) -> float:
        """Seconds until the claim on a PoP runs out; 0 if nobody has it."""
        with redis_errors():
            return max(0, int(self._client.pttl(_claim_key(pop)))) / 1000

    def renew(self, pop: str, claim: Claim, ttl: float) -> None:
        """Keep it; FencedError if it is not this one's any more."""
        ok, held = self._own(pop, claim, int(ttl * 1000))
        if not ok:
            raise FencedError(_lost(pop, claim, _decode(held) if held else None))

    def release(self, pop: str, claim: Claim, after: float = 0) -> bool:
        """Give it back in ``after`` seconds; False if it was not this one's any more."""
        return bool(self._own(pop, claim, int(after * 1000))[0])

    def refuses_changes(self) -> str:
        """Writes over a key that is never there, which Redis refuses as it would any write.

        So a replica, a full memory, a failed save and missing permissions are seen.
        """
        try:
            with redis_errors():
                self._client.set("edgetune:never-there", "", xx=True)
        except StoreError as error:
            return str(error)
        return ""

    def _own(self, pop: str, claim: Claim, milliseconds: int) -> Any:
        arguments = (claim.rollout, str(claim.epoch), str(milliseconds))
        return self._run(_RENEW, pop, arguments)

    def _run(self, script: str, pop: str, arguments: tuple[str, ...]) -> Any:
        keys = (_claim_key(pop), f"edgetune:epoch:{pop}")
        with redis_errors():
            return self._client.eval(script, len(keys), *keys, *arguments)


def _claim_key(pop: str) -> str:
    return f"edgetune:claim:{pop}"


def _encode(claim: Claim) -> str:
    return json.dumps({"rollout": claim.rollout, "epoch": claim.epoch})


def _decode(text: str) -> Claim:
    value = json.loads(text)
    return Claim(str(value["rollout"]), int(value["epoch"]))


def _taken(pop: str, held: Claim) -> str:
    return f"{pop} is claimed by rollout {held.rollout}"


def _lost(pop: str, claim: Claim, held: Claim | None) -> str:
    owner = f"it belongs to {held.rollout}, epoch {held.epoch}" if held else "nobody holds it"
    return f"{claim.rollout}, epoch {claim.epoch}, has lost its claim on {pop}: {owner}"
