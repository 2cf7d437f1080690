# SPDX-License-Identifier: Apache-2.0
"""Rollouts that have ended leave those under way, so that no step reads them again.

edgetune.archive.ID    the head of such a rollout, as it was
edgetune.past.POP      what the archive holds of a PoP

A rollout leaves when the next one of its PoP begins, or a day after its end. Who moves it holds the
claim of the PoP, and writes in this order: what the archive will hold, the copy, and only then the
original is deleted. Whoever stops in between leaves a head in both places. Readers prefer the
original, and the next who moves something there goes on. A rollout that is taken up again is
written to its first place; the copy is written over once it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from edgetune import __version__
from edgetune.base import clock
from edgetune.base.documents.effect import effect_key, read_effect
from edgetune.base.documents.head import ENDED, ID, PROMOTED, Head, archive_key, head_key, runs
from edgetune.base.documents.past import Past, Standing, Tried, past_key, read_past
from edgetune.base.documents.words import Decision, State
from edgetune.base.durations import DAY
from edgetune.base.errors import EdgetuneError, FencedError, RefusedError
from edgetune.base.sanitize import shortened
from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import Unreadable, read_archived_heads, read_living_heads
from edgetune.rollout.store.claims import Claim
from edgetune.rollout.store.records import value_of

CLAIMED_BY = "archive"
"""In place of a rollout, while the sweep moves those of a PoP that have ended."""
AT_ONCE = 25
"""How many are moved as a rollout begins; the sweep moves the others."""
SWEPT_AT_ONCE = 100
_TTL = 60.0
_LONGEST = 300


def past_of(context: Context, pop: str) -> Past | None:
    """What the archive holds of a PoP, None where it holds nothing."""
    text = value_of(context.store, past_key(pop))
    try:
        return None if text is None else read_past(pop, text)
    except RefusedError:
        return _read_again(context, pop)


def _read_again(context: Context, pop: str) -> Past | None:
    heads, unreadable = read_archived_heads(context, pop)
    every: list[Head | Unreadable] = [*heads, *unreadable]
    if not every:
        return None
    standing = {**_standing(heads), **{each.id: Standing() for each in unreadable}}
    epoch, last = max(1, *(each.epoch for each in every)), max(each.id for each in every)
    return Past(epoch, last, standing, _tried(heads))


def tried_before(context: Context, pop: str, tuning: str) -> Tried | None:
    """The newest rollout of a tuning on a PoP that was taken back; None without one."""
    heads, _ = read_living_heads(context, pop)
    # Afterwards: what leaves in between is told there already.
    past = past_of(context, pop)
    return _tried(heads, past.tried if past else {}).get(tuning)


def _tried(
    heads: Iterable[Head], before: Mapping[str, Tried] = MappingProxyType({})
) -> dict[str, Tried]:
    found = {**before}
    for head in sorted(heads, key=_end):
        if head.state in PROMOTED:
            # It was tried again, and stood.
            found.pop(head.tuning, None)
        own = _taken_back(head)
        if own and (head.tuning not in found or own.at >= found[head.tuning].at):
            found[head.tuning] = own
    return found


def _taken_back(head: Head) -> Tried | None:
    """How a rollout that changed hosts ended, the first time that it was taken back.

    What its look found counts where that, or a person who looked at it, took the rollout back.
    """
    stays = runs(head.history)
    states = [own[0].state for own in stays]
    if head.state != "rolled_back" or not {State.CHANGING, State.ROLLING_BACK} <= {*states}:
        return None
    first = states.index(State.ROLLING_BACK)
    look, was_held = head.verdict, states[first - 1] == State.HELD
    judged = look and (look.decision is Decision.ROLL_BACK or was_held) and not _fell(head)
    why = look.reason if look and judged else stays[first][0].told
    return Tried(head.id, stays[first][0].at, shortened(why, _LONGEST))


def has_past(context: Context) -> bool:
    """Whether anything lies in the archive."""
    return bool(context.store.list(past_key("")))


def what_stands(context: Context, living: Iterable[Head]) -> dict[str, dict[str, Standing]]:
    """By PoP, and by the rollout that is complete; ``living`` are the heads outside the archive,
    which were read before."""
    prefix = past_key("")
    found: dict[str, dict[str, Standing]] = {}
    for key, text in context.store.list(prefix).items():
        pop = key[len(prefix) :]
        try:
            past: Past | None = read_past(pop, text)
        except RefusedError:
            past = _read_again(context, pop)
        found[pop] = {**past.standing} if past else {}
    for head in living:
        found[head.pop] = _standing([head], found.get(head.pop, {}))
    return {pop: own for pop, own in sorted(found.items()) if own}


def _standing(
    heads: Iterable[Head], before: Mapping[str, Standing] = MappingProxyType({})
) -> dict[str, Standing]:
    found = {**before}
    for head in heads:
        found.pop(head.id, None)
        if head.state == "complete":
            seen = head.verdict
            since = runs(head.history)[-1][0].at if head.history else head.created
            ratio = (seen.metric, seen.ratio) if seen and seen.ratio is not None else ("", None)
            found[head.id] = Standing(head.tuning, since, *ratio)
    return found


def largest_epoch(context: Context, pop: str) -> int:
    """The largest epoch of the rollouts of a PoP, 0 without any: a new one has to be larger."""
    heads, unreadable = read_living_heads(context, pop)
    # Afterwards: what leaves in between is told there already.
    past = past_of(context, pop)
    every: list[Head | Unreadable] = [*heads, *unreadable]
    return max([past.epoch if past else 0, *(each.epoch for each in every)])


def archive_ended(context: Context, pop: str, claim: Claim, ttl: float) -> int:
    """Move what has ended of a PoP on which a rollout begins under this claim; how many were.

    It does not matter to the rollout that one is not moved: the sweep does it.
    """
    with suppress(EdgetuneError):
        if _is_understood(context):
            heads, _ = read_living_heads(context, pop)
            ended = [head for head in heads if _may_leave(head)]
            return _move(context, pop, ended[:AT_ONCE], claim, ttl)
    return 0


def sweep_ended(context: Context, heads: Sequence[Head]) -> int:
    """Move what has ended of PoPs on which nothing is under way, of all living ``heads``.

    How many were moved; no more than ``SWEPT_AT_ONCE``, the others by the next sweeps.
    """
    if not _is_understood(context):
        return 0
    moved = 0
    busy = {head.pop for head in heads if head.state not in ENDED}
    for pop in sorted({head.pop for head in _due(heads) if head.pop not in busy}):
        if moved < SWEPT_AT_ONCE:
            moved += _sweep(context, pop, SWEPT_AT_ONCE - moved)
    return moved


def _may_leave(head: Head) -> bool:
    """A key that tells no PoP is not one of ours, and stays where it is."""
    return head.is_at_rest and ID.fullmatch(head.id) is not None


def _due(heads: Sequence[Head]) -> list[Head]:
    """Those at rest that are not the last of their PoP, or are so for a day."""
    last = {head.pop: head for head in heads}
    return [
        head
        for head in heads
        if _may_leave(head) and (head is not last[head.pop] or clock.wall() - _end(head) >= DAY)
    ]


def _end(head: Head) -> float:
    return head.history[-1].at if head.history else head.created


def _sweep(context: Context, pop: str, most: int) -> int:
    if not _due_now(context, pop):
        return 0
    try:
        claim = context.claims.take(pop, CLAIMED_BY, _TTL)
    except FencedError:
        return 0
    try:
        # One may have begun, or been taken up again, before the claim.
        return _move(context, pop, _due_now(context, pop)[:most], claim, _TTL)
    except FencedError:
        return 0
    finally:
        context.claims.release(pop, claim)


def _due_now(context: Context, pop: str) -> list[Head]:
    heads, _ = read_living_heads(context, pop)
    return [] if any(head.state not in ENDED for head in heads) else _due(heads)


def _move(context: Context, pop: str, ended: Sequence[Head], claim: Claim, ttl: float) -> int:
    if not ended:
        return 0
    before = past_of(context, pop)
    past = _with(before, ended)
    _write(context, pop, claim, ttl, past_key(pop), past.document() if past != before else None)
    for head in ended:
        _write(context, pop, claim, ttl, *_effect(context, head))
        text = context.store.get(head_key(head.id))
        _write(context, pop, claim, ttl, archive_key(head.id), text)
        context.claims.renew(pop, claim, ttl)
        context.store.delete(head_key(head.id))
    return len(ended)


def _effect(context: Context, head: Head) -> tuple[str, str | None]:
    """The effect that is kept of a rollout, with how that ended; None where none is."""
    key = effect_key(head.tuning, head.id)
    text = context.store.get(key) if head.looks else None
    with suppress(RefusedError):
        return key, text and read_effect(key, text).after(head.state, head.cause).document()
    return key, None


def _with(before: Past | None, ended: Sequence[Head]) -> Past:
    known = before or Past(1, ended[0].id, {})
    return Past(
        max(known.epoch, *(head.epoch for head in ended)),
        max(known.last, *(head.id for head in ended)),
        _standing(ended, known.standing),
        _tried(ended, known.tried),
    )


def _fell(head: Head) -> bool:
    """Whether its tuning stood, and does no more."""
    return head.state != "complete" and any(own.state == "complete" for own in head.history)


def _write(
    context: Context, pop: str, claim: Claim, ttl: float, key: str, text: str | None
) -> None:
    """As the holder of the claim only; FencedError once somebody else has it."""
    if text is not None:
        context.claims.renew(pop, claim, ttl)
        context.store.put(key, text)


def _is_understood(context: Context) -> bool:
    """Whether no node runs another version of the pack, which knows no archive.

    Such a node would find nothing that stands on a PoP.
    """
    packs = {node.holds.get("pack", "") for node in context.nodes.all()}
    return len(packs) <= 1 and all(pack.startswith(f"{__version__} ") for pack in packs)
