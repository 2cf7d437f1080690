# SPDX-License-Identifier: Apache-2.0
"""Who owns a PoP: a claim with an expiry, and an epoch that only grows.

The epoch goes to every host with every change, and a host refuses a smaller one: an owner
that was thought dead cannot change anything any more. Redis needs no lock beyond ``SET NX PX``
here because taking and renewing are one script each.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Union

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.reading import check_is, decoded, encoded, read_document
from edgetune.base.errors import DamagedError, FencedError, StoreError
from edgetune.net.databases import SCHEME, Database, open_redis, redis_errors
from edgetune.site.config import Config

LARGEST_EPOCH = 10**12
"""Above it Redis counts in floats whose texts are rounded."""


@dataclass(frozen=True)
class Claim:
    """A PoP's owner."""

    rollout: str
    epoch: int


def open_claims(config: Config) -> Claims:
    """The claims of a configuration's ``coordination``."""
    if config.coordination.startswith(SCHEME):
        longest = max(config.claim_ttl, config.claim_grace)
        return SqliteClaims(Database(config.coordination), longest)
    return RedisClaims(open_redis(config))


class SqliteClaims:
    """Claims in a SQLite file, one transaction a call; none lasts more than ``longest`` seconds.

    The file knows no other clock than the wall clock of its machine. Every call raises StoreError
    when the backend fails, and DamagedError when what it keeps of a PoP is no claim or no epoch.
    """

    def __init__(self, database: Database, longest: float = math.inf) -> None:
        self._database = database
        self._longest = longest

    def take(
        self, pop: str, rollout: str, ttl: float, after: int | None = None, above: int = 0
    ) -> Claim:
        """Claim a PoP for ``ttl`` seconds with a new epoch; FencedError if another has it.

        With ``after`` only the holder of that epoch gets the next one, so that of two callers
        who want to carry a rollout on, one does. The new epoch is larger than ``above``, which
        hosts may have seen although the backend has lost its count: the epoch of the record.
        """
        with self._database.transaction() as db:
            held = self._held(db, pop)
            if held is not None and held.rollout != rollout:
                raise FencedError(_taken(pop, held))
            last = max(self._epoch(db, pop), above, held.epoch if held else 0)
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

    def expiries(self, pops: Sequence[str]) -> dict[str, float]:
        """Seconds until the claim on each PoP runs out, all seen at one moment; 0 where nobody
        has it."""
        with self._database.transaction() as db:
            now = self._bound(db)
            rows = dict(db.execute("SELECT pop, expires FROM claims").fetchall())
        # A claim that does not tell its end is over; the next step of its owner puts that right.
        ends = {pop: end for pop, end in rows.items() if type(end) is float}
        return {pop: max(0.0, ends.get(pop, 0.0) - now) for pop in pops}

    def renew(self, pop: str, claim: Claim, ttl: float) -> None:
        """Keep it for ``ttl`` more seconds; FencedError if it is not this one's any more.

        A claim that ran out and that nobody took since is this one's still.
        """
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
        """Why a claim could not be written, or ""; writes nothing and takes no epoch.

        It takes the lock for writing: StoreError where the file is read-only.
        """
        with self._database.transaction():
            return ""

    def _bound(self, db: Any) -> float:
        """The time; no claim lasts longer from then on because the clock was set back."""
        now = clock.wall()
        ends = (now + self._longest, now + self._longest)
        # What is no number is greater than any, and no end that could be brought nearer.
        too_far = "typeof(expires) = 'real' AND expires > ?"
        db.execute(f"UPDATE claims SET expires = ? WHERE {too_far}", ends)
        return now

    def _held(self, db: Any, pop: str) -> Claim | None:
        query = "SELECT value FROM claims WHERE pop = ? AND expires > ?"
        row = db.execute(query, (pop, self._bound(db))).fetchone()
        return _decode(f"claims.{pop}", row[0]) if row else None

    @staticmethod
    def _epoch(db: Any, pop: str) -> int:
        row = db.execute("SELECT epoch FROM epochs WHERE pop = ?", (pop,)).fetchone()
        if row is None:
            return 0
        # SQLite keeps what it is given, whatever the type of the column.
        good = type(row[0]) is int and 0 <= row[0] <= LARGEST_EPOCH
        check_is(f"epochs.{pop}", "epoch", good, "is no epoch")
        return int(row[0])

    @staticmethod
    def _write(db: Any, pop: str, claim: Claim, ttl: float) -> None:
        row = (pop, json.dumps(encoded(claim)), clock.wall() + ttl)
        db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", row)


_READ = """
local function whole(number)
  return type(number) == 'number' and number >= 0 and number <= LARGEST
    and number == math.floor(number)
end
local text, held = redis.call('GET', KEYS[1]), nil
if text then
  local good, claim = pcall(cjson.decode, text)
  if not good or type(claim) ~= 'table' or type(claim.rollout) ~= 'string'
    or not whole(claim.epoch) then return {-1, KEYS[1]} end
  held = claim
end
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if not whole(last) then return {-1, KEYS[2]} end
""".replace("LARGEST", str(LARGEST_EPOCH))

_TAKE = (
    _READ
    + """
if held and held.rollout ~= ARGV[1] then return {0, text} end
last = math.max(last, tonumber(ARGV[4]), held and held.epoch or 0)
if ARGV[3] ~= '' and (held and held.epoch or last) ~= tonumber(ARGV[3]) then
  return {0, text}
end
local epoch = last + 1
redis.call('SET', KEYS[2], string.format('%.0f', epoch))
local claim = cjson.encode({rollout = ARGV[1], epoch = epoch})
redis.call('SET', KEYS[1], claim, 'PX', ARGV[2])
return {1, claim}
"""
)

_RENEW = (
    _READ
    + """
if not held and last == tonumber(ARGV[2]) then
  held = {rollout = ARGV[1], epoch = last}
  text = cjson.encode(held)
  redis.call('SET', KEYS[1], text)
end
if not held then return {0, false} end
if held.rollout ~= ARGV[1] or held.epoch ~= tonumber(ARGV[2]) then return {0, text} end
if ARGV[3] == '0' then redis.call('DEL', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return {1, text}
"""
)

_EXPIRIES = """
local left = {}
for number, key in ipairs(KEYS) do left[number] = redis.call('PTTL', key) end
return left
"""


class RedisClaims:
    """The same in Redis, shared by every action runner."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def take(
        self, pop: str, rollout: str, ttl: float, after: int | None = None, above: int = 0
    ) -> Claim:
        expected = "" if after is None else str(after)
        arguments = (rollout, str(int(ttl * 1000)), expected, str(above))
        ok, text = self._run(_TAKE, pop, arguments)
        held = _decode(_claim_key(pop), text) if text else None
        if ok and held is not None:
            return held
        if held is not None and held.rollout != rollout:
            raise FencedError(_taken(pop, held))
        raise FencedError(_lost(pop, Claim(rollout, after or 0), held))

    def holder(self, pop: str) -> Claim | None:
        with redis_errors(_claim_key(pop)):
            held = self._client.get(_claim_key(pop))
        return _decode(_claim_key(pop), held) if held is not None else None

    def expiries(self, pops: Sequence[str]) -> dict[str, float]:
        keys = [_claim_key(pop) for pop in pops]
        with redis_errors():
            left = self._client.eval(_EXPIRIES, len(keys), *keys) if keys else []
        return {pop: max(0, milliseconds) / 1000 for pop, milliseconds in zip(pops, left)}

    def renew(self, pop: str, claim: Claim, ttl: float) -> None:
        ok, held = self._extend(pop, claim, int(ttl * 1000))
        if not ok:
            holder = _decode(_claim_key(pop), held) if held else None
            raise FencedError(_lost(pop, claim, holder))

    def release(self, pop: str, claim: Claim, after: float = 0) -> bool:
        return bool(self._extend(pop, claim, int(after * 1000))[0])

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

    def _extend(self, pop: str, claim: Claim, milliseconds: int) -> Any:
        arguments = (claim.rollout, str(claim.epoch), str(milliseconds))
        return self._run(_RENEW, pop, arguments)

    def _run(self, script: str, pop: str, arguments: tuple[str, ...]) -> Any:
        keys = (_claim_key(pop), f"edgetune:epoch:{pop}")
        with redis_errors(keys[0]):
            ok, text = self._client.eval(script, len(keys), *keys, *arguments)
        if ok < 0:
            raise DamagedError(str(text), "", "holds no claim, or no epoch")
        return ok, text


Claims = Union[SqliteClaims, RedisClaims]


def _claim_key(pop: str) -> str:
    return f"edgetune:claim:{pop}"


def _decode(key: str, text: Any) -> Claim:
    claim = decoded(key, Claim, read_document(key, text))
    # What was no text was replaced as it was read; half a character can be sent nowhere.
    is_text = not re.search("[\ud800-\udfff\ufffd]", claim.rollout)
    check_is(key, "rollout", is_text, "holds bytes that are no text")
    check_is(key, "epoch", 0 <= claim.epoch <= LARGEST_EPOCH, "is no epoch")
    return claim


def _taken(pop: str, held: Claim) -> str:
    return f"{pop} is claimed by rollout {held.rollout}"


def _lost(pop: str, claim: Claim, held: Claim | None) -> str:
    owner = f"it belongs to {held.rollout}, epoch {held.epoch}" if held else "nobody holds it"
    return f"{claim.rollout}, epoch {claim.epoch}, has lost its claim on {pop}: {owner}"
