# SPDX-License-Identifier: Apache-2.0
"""What the rounds of the last hours showed of each client prefix of a PoP.

Two planes of bits hold it, a row for each round and a column for each prefix: whether it was
*measured* in the round, and whether it was *slow* when it was measured last. A round that is not
there is a row without a measurement, so a prefix flaps by that no more.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgetune.agent.vocabulary.prefixes import END
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.congestion import METRICS, Thresholds
from edgetune.base.documents.reading import check_is, decoded
from edgetune.base.errors import RefusedError
from edgetune.wings.congestion.rows import PrefixRows

Array = Any

LONGEST = 250
"""Rounds of a window; sums over it are bytes."""

MOST_PREFIXES = 400_000
_ROOM = 1.25
_WHOLE = 0.5
_SEGMENT = 1448.0


@dataclass(frozen=True)
class HistoryDocument:
    """As it is stored; ``planes`` are ``measured`` and ``slow`` from the oldest round to the
    newest, then the levels, all of them packed and compressed."""

    newest: int
    window: int
    prefixes: int
    planes: str


class History:
    """The rounds of a PoP up to the round ``newest``, -1 before the first one."""

    def __init__(self, window: int) -> None:
        """``window`` is how many rounds are remembered, 2 to LONGEST."""
        if not 2 <= window <= LONGEST:
            raise ValueError(f"a window has 2 to {LONGEST} rounds")
        self.window, self.newest = window, -1
        self._count = 0
        self._keys = np.empty(0, dtype=np.uint64)
        # A ring: the row of a round is its number modulo the window.
        self._measured = np.zeros((window, 0), dtype=bool)
        self._slow = np.zeros((window, 0), dtype=bool)
        self._levels = np.empty((len(METRICS), 0), dtype=np.float32)
        # How many were measured in each of these rounds, and the sums of ``counts``.
        self._numbers = [0] * window
        self._counts = np.zeros((3, 0), dtype=np.uint8)
        self._sorted, self._order = self._keys, np.empty(0, dtype=np.intp)

    def __len__(self) -> int:
        return self._count

    @property
    def keys(self) -> Array:
        """The number of each prefix, uint64, in the order of all that follows."""
        return self._keys[: self._count]

    @property
    def levels(self) -> Array:
        """The mean of each of METRICS over about a window, shape (metrics, prefixes); NaN if it
        was never known."""
        return self._levels[:, : self._count]

    @property
    def measured_now(self) -> Array:
        """Which were measured in the newest round, bool."""
        return self._measured[self._row(self.newest), : self._count]

    @property
    def slow_now(self) -> Array:
        """Which were slow when they were measured last, bool."""
        return self._slow[self._row(self.newest), : self._count]

    def add(self, rows: PrefixRows, thresholds: Thresholds) -> bool:
        """Remember the rows of a later round, which are those that count; False, and nothing is
        done, for any other.

        RefusedError when there are none, or fewer than half of what the rounds of the window had:
        such a round is not whole, and who is slow in it says nothing.
        """
        if rows.round <= self.newest:
            return False
        self._refuse_part(rows)
        if not len(rows):
            raise RefusedError(
                f"round {rows.round} has no prefix that counts: one with {thresholds.sockets} "
                f"sockets on the PoP's ports, a round-trip time of {thresholds.shortest_rtt_ms:g} "
                "ms or more, and not excluded"
            )
        self._begin(rows.round)
        self._write(rows, thresholds)
        return True

    def counts(self, places: Array) -> tuple[Array, Array, Array]:
        """Of prefixes by their places, over the window: rounds in which each was measured, in
        which it was slow then, and changes between slow and not; uint8."""
        measured, slow, flaps = self._counts[:, places]
        return measured, slow, flaps

    def find(self, keys: Array) -> Array:
        """The place of each key, -1 where it is not known."""
        if not self._count:
            return np.full(len(keys), -1, dtype=np.intp)
        at = np.searchsorted(self._sorted, keys)
        at = np.minimum(at, self._count - 1)
        return np.where(self._sorted[at] == keys, self._order[at], -1)

    def _refuse_part(self, rows: PrefixRows) -> None:
        first = max(rows.round, self.newest) - self.window + 1
        told = (self._numbers[self._row(each)] for each in range(first, self.newest + 1))
        usual = [number for number in told if number]
        if usual and len(rows) < _WHOLE * float(np.median(usual)):
            raise RefusedError(
                f"round {rows.round} has {len(rows)} prefixes with enough sockets, "
                f"and the rounds before it had {np.median(usual):.0f}: it is not whole"
            )

    def _row(self, number: int) -> int:
        return number % self.window

    def _begin(self, number: int) -> None:
        """Rows for this round and for those before it that are missing."""
        if number - self.newest >= self.window:
            self._slow[:] = self._slow[self._row(self.newest)].copy()
            self._measured[:] = False
            self._numbers = [0] * self.window
            self._counts[:] = 0
            self.newest = number
            return
        for each in range(self.newest + 1, number + 1):
            before, row, next_oldest = map(self._row, (each - 1, each, each + 1))
            measured, slow, flaps = self._counts
            measured -= self._measured[row]
            slow -= self._measured[row] & self._slow[row]
            flaps -= self._slow[row] ^ self._slow[next_oldest]
            self._measured[row] = False
            self._slow[row] = self._slow[before]
            self._numbers[row] = 0
        self.newest = number

    def _write(self, rows: PrefixRows, thresholds: Thresholds) -> None:
        logs = log_metrics(rows)
        rate = logs[0]
        slow = rate <= np.quantile(rate, thresholds.slowest)
        at = self._places(rows.prefixes, slow)
        if (at < 0).any():
            kept = at >= 0
            at, slow, logs = at[kept], slow[kept], logs[:, kept]
        row = self._row(rows.round)
        before = self._slow[row, at]
        self._measured[row, at] = True
        self._slow[row, at] = slow
        self._numbers[row] = len(at)
        measured, was_slow, flaps = self._counts
        measured[at] += 1
        was_slow[at] += slow
        flaps[at] += slow ^ before
        for level, told in zip(self._levels, logs):
            own = level[at]
            moved = own + (told - own) * np.float32(1 / self.window)
            # What is known of one of the two is all that is known.
            moved = np.where(np.isnan(own), told, moved)
            level[at] = np.where(np.isnan(told), own, moved)

    def _places(self, keys: Array, slow: Array) -> Array:
        """Where prefixes stand; those that are new get a place, and -1 where there is no room.

        A new one, or one that the window has not seen, was always as it is now: so it did not flap.
        """
        at = self.find(keys)
        if self._count + np.count_nonzero(at < 0) > self._keys.size:
            self._forget(len(keys))
            at = self.find(keys)
        new = np.flatnonzero(at < 0)[: MOST_PREFIXES - self._count]
        places = at[new] = np.arange(self._count, self._count + len(new))
        self._keys[places] = keys[new]
        self._measured[:, places] = False
        self._counts[:, places] = 0
        before = np.searchsorted(self._sorted, keys[new])
        self._sorted = np.insert(self._sorted, before, keys[new])
        self._order = np.insert(self._order, before, places)
        self._count += len(new)
        unseen = np.flatnonzero((at >= 0) & (self._counts[0, at] == 0))
        self._slow[:, at[unseen]] = slow[unseen]
        self._counts[2, at[unseen]] = 0
        self._levels[:, at[unseen]] = np.nan
        return at

    def _forget(self, more: int) -> None:
        """Let go of prefixes that the window has not seen, and make room for some more."""
        kept = np.flatnonzero(self._measured[:, : self._count].any(axis=0))
        room = int((len(kept) + more) * _ROOM)
        for name in ("_keys", "_measured", "_slow", "_levels", "_counts"):
            old = getattr(self, name)
            made = np.zeros((*old.shape[:-1], room), dtype=old.dtype)
            made[..., : len(kept)] = old[..., kept]
            setattr(self, name, made)
        self._count = len(kept)
        self._order = np.argsort(self.keys, kind="stable")
        self._sorted = self.keys[self._order]

    def document(self) -> HistoryDocument:
        """As it is stored."""
        rounds = range(self.newest - self.window + 1, self.newest + 1)
        rows = [self._row(each) for each in rounds]
        planes = [
            self.keys.astype("<u8").tobytes(),
            *(
                np.packbits(own[rows, : self._count]).tobytes()
                for own in (self._measured, self._slow)
            ),
            self.levels.astype("<f4").tobytes(),
        ]
        packed = base64.b64encode(zlib.compress(b"".join(planes), 1)).decode("ascii")
        return HistoryDocument(self.newest, self.window, self._count, packed)


def read_history(key: str, document: Mapping[str, object]) -> History:
    """A stored one; DamagedError names what is wrong with it."""
    kept = decoded(key, HistoryDocument, document)
    check_is(key, "window", 2 <= kept.window <= LONGEST, f"is not from 2 to {LONGEST}")
    check_is(key, "newest", kept.newest >= -1, "is negative")
    check_is(key, "prefixes", 0 <= kept.prefixes <= MOST_PREFIXES, "is too large, or negative")
    many, bits = kept.prefixes, math.ceil(kept.window * kept.prefixes / 8)
    sizes = [8 * many, bits, bits, 4 * many * len(METRICS)]
    raw = _inflated(kept.planes, sum(sizes))
    check_is(key, "planes", len(raw) == sum(sizes), "is damaged, or of other prefixes")
    keys, measured, slow, levels = np.split(
        np.frombuffer(raw, dtype=np.uint8), np.cumsum(sizes[:-1])
    )
    found = History(kept.window)
    found.newest, found._count = kept.newest, many
    found._keys = keys.view("<u8").astype(np.uint64)
    found._order = np.argsort(found._keys, kind="stable")
    found._sorted = found._keys[found._order]
    twice = np.any(found._sorted[1:] == found._sorted[:-1])
    check_is(key, "planes", not twice and bool(np.all(found._keys < END)), "has no prefixes")
    rows = np.arange(kept.newest - kept.window + 1, kept.newest + 1) % kept.window
    for own, bits_of in zip(("_measured", "_slow"), (measured, slow)):
        plane = np.unpackbits(bits_of)[: kept.window * many].reshape(kept.window, many)
        made = np.zeros((kept.window, many), dtype=bool)
        made[rows] = plane.astype(bool)
        setattr(found, own, made)
    found._numbers = [int(number) for number in found._measured.sum(axis=1)]
    found._counts = _count(found._measured[rows], found._slow[rows])
    found._levels = levels.view("<f4").astype(np.float32).reshape(len(METRICS), many)
    return found


def _count(measured: Array, slow: Array) -> Array:
    """The sums of ``History.counts`` from planes in the order of time, shape (3, prefixes)."""
    flaps = slow[1:] ^ slow[:-1]
    planes = (measured, measured & slow, flaps)
    return np.stack([np.add.reduce(plane, axis=0, dtype=np.uint8) for plane in planes])


def _inflated(text: str, most: int) -> bytes:
    """At most one byte more than that; nothing where it is damaged."""
    try:
        return zlib.decompressobj().decompress(base64.b64decode(text, validate=True), most + 1)
    except (binascii.Error, ValueError, zlib.error):
        return b""


def log_metrics(rows: PrefixRows) -> Array:
    """METRICS of rows as natural logarithms, float32 of shape (metrics, rows); NaN if unknown."""
    measures = rows.measures
    sent, again = measures["bytes_sent"], measures["bytes_retransmitted"]
    # One segment more: that none was sent again is no proof of a share of zero.
    with np.errstate(invalid="ignore"):
        share = np.log((again + _SEGMENT) / (sent + _SEGMENT))
        share = np.where(sent > 0, share, np.nan)
    return np.stack([np.log(measures["delivery_rate"]), share]).astype(np.float32)
