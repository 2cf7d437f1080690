# SPDX-License-Identifier: Apache-2.0
"""Chooses the prefixes that are slow all the time, and lets go of those that are not any more."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from edgetune.agent.vocabulary.prefixes import number_of, text_of
from edgetune.base.addresses import span_of_network
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.congestion import METRICS, Chosen, Thresholds, read_chosen
from edgetune.base.documents.reading import check_is, encoded, read_document
from edgetune.base.errors import RefusedError
from edgetune.wings.congestion.history import History, log_metrics, read_history
from edgetune.wings.congestion.rows import PrefixRows

Array = Any
USUAL_WINDOW = 10
"""Segments: RFC 6928, and Linux."""
MOST_WINDOW = 40
"""Segments, 58 kB: a burst that buffers of access networks still take."""
_SEGMENT = 1448
_SHARE_OF_PATH = 0.5
_MOST_RETRANSMITS = 0.02


def initial_window(delivery_rate: float, rtt_ms: float, retransmits: float) -> int:
    """Segments that a new connection may send before the first acknowledgement, or 0: the kernel's.

    Half of what the path of its median socket carries within a round-trip time (``delivery_rate``
    in bytes a second). A prefix with more than 2 % of its bytes sent again keeps the kernel's: a
    burst would add to that. So does one of which a value is NaN.
    """
    segments = _SHARE_OF_PATH * delivery_rate * rtt_ms / 1000 / _SEGMENT
    if not (retransmits <= _MOST_RETRANSMITS and USUAL_WINDOW < segments < math.inf):
        return 0
    return min(MOST_WINDOW, int(segments)) if int(segments) > USUAL_WINDOW else 0


def is_drawn(prefix: str, salt: str, purpose: str, share: float) -> bool:
    """Whether a prefix is among this share, by a hash that nobody can foresee without the salt.

    A draw is the same at every round, on every action runner.

    ``salt`` is that of the PoP. Draws for different purposes do not depend on each other. A
    larger share holds all of a smaller one.
    """
    text = "\n".join((salt, purpose, prefix)).encode()
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return number < share * 2**64


def is_held_out(prefix: str, salt: str, share: float) -> bool:
    """Whether a chosen prefix stays untreated.

    A prefix is chosen because it was bad, and what was worst gets better by itself (regression to
    the mean). Only the difference to those that are held out is an effect.
    """
    return is_drawn(prefix, salt, "hold-out", share)


def has_window(prefix: str, salt: str) -> bool:
    """Whether a treated prefix gets an initial window as well: every other one does."""
    return is_drawn(prefix, salt, "initial window", 0.5)


@dataclass(frozen=True)
class Selection:
    """What is known of a PoP's prefixes after a round, and which are chosen.

    ``new`` and ``gone`` are the prefixes that the newest round changed. ``salt`` draws the
    hold-out.
    """

    pop: str
    salt: str
    history: History
    chosen: Sequence[Chosen] = ()
    new: Sequence[str] = ()
    gone: Sequence[str] = ()

    def text(self) -> str:
        """As it is stored."""
        return json.dumps(
            {
                "pop": self.pop,
                "salt": self.salt,
                "history": encoded(self.history.document()),
                "chosen": encoded([*self.chosen]),
                "new": [*self.new],
                "gone": [*self.gone],
            }
        )


def read_selection(key: str, text: str) -> Selection:
    """A stored one; DamagedError names what is wrong with it."""
    document = read_document(key, text)
    names = {"pop", "salt", "history", "chosen", "new", "gone"}
    check_is(key, "", document.keys() == names, "has other fields than a selection")
    for name, kind in {"pop": str, "salt": str, "chosen": list, "new": list, "gone": list}.items():
        check_is(key, name, type(document[name]) is kind, "is of another type")
    for name in ("new", "gone"):
        check_is(key, name, all(type(own) is str for own in document[name]), "holds no texts")
    chosen = tuple(read_chosen(key, own) for own in document["chosen"])
    check_is(key, "chosen", len({own.prefix for own in chosen}) == len(chosen), "has one twice")
    history = read_history(key, document["history"])
    new, gone = tuple(document["new"]), tuple(document["gone"])
    return Selection(document["pop"], document["salt"], history, chosen, new, gone)


class Excluded:
    """Networks whose prefixes are never looked at: our own, back offices, other PoPs."""

    def __init__(self, networks: Sequence[str]) -> None:
        """ValueError for a text that is no network."""
        spans = [span_of_network(network) for network in networks]
        self._first = np.array([first for first, _ in spans], dtype=np.uint64)
        self._last = np.array([last for _, last in spans], dtype=np.uint64)

    def hold(self, keys: Array) -> Array:
        """Which prefixes overlap one of them, bool; ``keys`` are sorted."""
        found = np.zeros(len(keys) + 1, dtype=np.int64)
        np.add.at(found, np.searchsorted(keys, self._first), 1)
        np.add.at(found, np.searchsorted(keys, self._last, side="right"), -1)
        held: Array = np.cumsum(found)[: len(keys)] > 0
        return held

    def overlap(self, chosen: Sequence[Chosen]) -> list[bool]:
        """Which of the chosen ones overlap one of them."""
        keys = _numbers([own.prefix for own in chosen])
        order = np.argsort(keys)
        found = np.zeros(len(keys), dtype=bool)
        found[order] = self.hold(keys[order])
        return [bool(own) for own in found]


def put_off(selection: Selection, untold: Collection[str], number: int) -> Selection:
    """As if prefixes that hosts were not told of were chosen in this round, with all that were
    chosen beside them: held-out ones are compared with these over the same rounds.
    """
    waiting = [own.since for own in selection.chosen if own.prefix in untold]
    if not waiting:
        return selection
    first = min(waiting)
    chosen = [replace(own, since=number) if own.since >= first else own for own in selection.chosen]
    return replace(selection, chosen=chosen)


def advance(
    before: Selection,
    rows: PrefixRows,
    thresholds: Thresholds,
    excluded: Excluded,
    windows: bool = True,
    skipped: Collection[str] = (),
) -> Selection:
    """The selection after one more round; the same one for a round that is not later.

    ``windows`` says whether hosts can give a prefix an initial window. What the round showed of
    prefixes that a host ``skipped`` does not count: they were not treated.
    The history of ``before`` goes on in the new one, unless it has another window. RefusedError
    when the round is not whole, or a window older than what is known; then nothing is changed.
    """
    history = before.history
    if history.window != thresholds.window:
        history = History(thresholds.window)
    if history.newest - rows.round >= history.window:
        raise RefusedError(
            f"{before.pop}: what is stored ends {history.newest - rows.round} rounds after round "
            f"{rows.round}, so a clock was ahead; remove it to begin anew"
        )
    measured = rows.only(counted(rows, thresholds, excluded))
    if not history.add(measured, thresholds):
        return before
    followed = _followed(before.chosen, measured, thresholds, skipped)
    places = history.find(_numbers([own.prefix for own in followed]))
    stays = _stay(followed, places, history, thresholds)
    # The inventory may have changed: what it excludes leaves at once, and what is too many.
    stays = [stay and not out for stay, out in zip(stays, excluded.overlap(followed))]
    stays = [stay and sum(stays[:at]) < thresholds.prefixes for at, stay in enumerate(stays)]
    kept = [own for own, stay in zip(followed, stays) if stay]
    room = max(0, min(thresholds.new, thresholds.prefixes - len(kept)))
    new = [
        _choose(before.salt, candidate, history, measured, thresholds, windows)
        for candidate in _worst(history, places, thresholds, room)
    ]
    return replace(
        before,
        history=history,
        chosen=(*kept, *new),
        new=tuple(own.prefix for own in new),
        gone=tuple(own.prefix for own, stay in zip(followed, stays) if not stay),
    )


def counted(rows: PrefixRows, thresholds: Thresholds, excluded: Excluded) -> Array:
    """Which rows count: they have enough sockets, are not excluded, and their paths are long
    enough to be the cause."""
    least, usual = rows.measures["min_rtt_ms"], rows.measures["rtt_ms"]
    rtt: Array = np.where(np.isnan(least), usual, least)
    counts: Array = (rtt >= thresholds.shortest_rtt_ms) & ~excluded.hold(rows.prefixes)
    return counts & (rows.measures["sockets"] >= thresholds.sockets)


def _stay(
    chosen: Sequence[Chosen], places: Array, history: History, thresholds: Thresholds
) -> list[bool]:
    """Which of the chosen ones stay; a place is -1 where the history has no such prefix."""
    if not len(history):
        return [False] * len(chosen)
    measured, slow, _ = history.counts(places)
    duty = slow / np.maximum(measured, 1)
    # What was put off to this round was not treated yet, so it has no reason to stay.
    young = [0 < history.newest - own.since < thresholds.stay for own in chosen]
    stays = (
        (places >= 0) & (measured > 0) & (np.array(young, bool) | (duty >= thresholds.leave_duty))
    )
    return [bool(stay) for stay in stays]


_Candidate = tuple[int, float, float]
"""A prefix by its place in the history, with its duty cycle and its share of flaps."""


def _worst(history: History, chosen: Array, thresholds: Thresholds, most: int) -> list[_Candidate]:
    """Those that may be chosen, without the ones at the places ``chosen``: those with the longest
    duty cycle first, then with the lowest rate."""
    fit = history.measured_now & history.slow_now
    fit[chosen[chosen >= 0]] = False
    places: Array = np.flatnonzero(fit)
    measured, slow, flaps = history.counts(places)
    duty = slow / np.maximum(measured, 1)
    flapping = flaps / np.maximum(measured.astype(int) - 1, 1)
    enough = (
        (measured >= thresholds.measured * history.window)
        & (duty >= thresholds.duty)
        & (flapping <= thresholds.flaps)
    )
    at, duty, flapping = places[enough], duty[enough], flapping[enough]
    order = np.lexsort((history.keys[at], history.levels[0][at], -duty))
    return [(int(at[own]), float(duty[own]), float(flapping[own])) for own in order[:most]]


def _choose(
    salt: str,
    candidate: _Candidate,
    history: History,
    rows: PrefixRows,
    thresholds: Thresholds,
    windows: bool,
) -> Chosen:
    place, duty, flaps = candidate
    number = history.keys[place]
    prefix = text_of(int(number))
    row = int(np.searchsorted(rows.prefixes, number))
    now = {name: float(values[row]) for name, values in rows.measures.items()}
    share = now["bytes_retransmitted"] / now["bytes_sent"] if now["bytes_sent"] > 0 else math.nan
    window = initial_window(now["delivery_rate"], now["rtt_ms"], share)
    levels = [float(level) for level in history.levels[:, place]]
    return Chosen(
        prefix=prefix,
        since=history.newest,
        held_out=not thresholds.block and is_held_out(prefix, salt, thresholds.held_out),
        duty=duty,
        flaps=flaps,
        initcwnd=window,
        has_window=windows and bool(window) and has_window(prefix, salt),
        before=[None if math.isnan(level) else level for level in levels],
    )


def _followed(
    chosen: Sequence[Chosen], rows: PrefixRows, thresholds: Thresholds, skipped: Collection[str]
) -> list[Chosen]:
    """The chosen ones with what this round showed of those that are past their warm-up."""
    if not chosen or not len(rows):
        return [*chosen]
    keys = _numbers([own.prefix for own in chosen])
    at = np.minimum(np.searchsorted(rows.prefixes, keys), len(rows) - 1)
    present = rows.only(at)
    logs, there = log_metrics(present), present.prefixes == keys
    return [
        _added(own, logs[:, index])
        if there[index] and rows.round - own.since > thresholds.warmup and own.prefix not in skipped
        else own
        for index, own in enumerate(chosen)
    ]


def _added(own: Chosen, logs: Array) -> Chosen:
    known = ~np.isnan(logs)
    return replace(
        own,
        rounds=[own.rounds[i] + int(known[i]) for i in range(len(METRICS))],
        totals=[own.totals[i] + (float(logs[i]) if known[i] else 0.0) for i in range(len(METRICS))],
    )


def _numbers(prefixes: Sequence[str]) -> Array:
    return np.array([_number(prefix) for prefix in prefixes], dtype=np.uint64)


# The same prefixes are chosen in each round.
_number = lru_cache(maxsize=10_000)(number_of)
