# SPDX-License-Identifier: Apache-2.0
"""Rollouts that have ended leave those under way, so that no step reads them again.

edgetune.archive.ID    the head of such a rollout, as it was
edgetune.past.POP      what the archive holds of a PoP

A rollout leaves when the next one of its PoP begins, or a day after its end. Who moves it holds the
claim of the PoP, and writes in this order: what the archive will hold, the copy, and only then the
original is deleted. Whoever stops in between leaves a head in both places. Readers prefer the
original, and the next who moves something there goes on. A rollout that is taken up again is
written to its first place; the copy is written over once it has ended.

What the archive holds of a PoP counts its copies, so that nobody reads them to count. It names the
rollouts that are moving, which it does not count, before the first of them moves, and counts them
after the last one has. So each rollout is counted once, whoever stops in between. The steps that a
rollout took are counted along, and then forgotten.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from types import MappingProxyType

from edgetune import __version__
from edgetune.base import clock
from edgetune.base.documents.effect import effect_key, read_effect
from edgetune.base.documents.head import ENDED, ID, PROMOTED, Head, archive_key, head_key, runs
from edgetune.base.documents.past import Past, Standing, Tally, Tried, past_key, read_past
from edgetune.base.documents.steps import StepsTaken, StepTaken, read_steps, steps_key
from edgetune.base.documents.words import Decision, State
from edgetune.base.durations import DAY
from edgetune.base.errors import DamagedError, EdgetuneError, FencedError, RefusedError
from edgetune.base.sanitize import shortened
from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import (
    Unreadable,
    archived_head,
    read_archived_heads,
    read_living_heads,
)
from edgetune.rollout.store.claims import Claim
from edgetune.rollout.store.records import value_of

CLAIMED_BY = "archive"
"""In place of a rollout, while the sweep moves those of a PoP that have ended."""
AT_ONCE = 25
"""How many are moved as a rollout begins; the sweep moves the others."""
SWEPT_AT_ONCE = 100
MOST_STANDING = 50
"""How many standing rollouts of a PoP are kept, and the newest of each tuning."""
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
    """As the copies in the archive tell it; without tallies, which the sweep makes."""
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
    # Afterwards: what leaves in between is there already.
    past = past_of(context, pop)
    return _tried(heads, past.tried if past else {}).get(tuning)


def _tried(
    heads: Iterable[Head], before: Mapping[str, Tried] = MappingProxyType({})
) -> dict[str, Tried]:
    tried = {**before}
    for head in sorted(heads, key=_end):
        if head.state in PROMOTED:
            # It was tried again, and stood.
            tried.pop(head.tuning, None)
        last = _taken_back(head)
        if last and (head.tuning not in tried or last.at >= tried[head.tuning].at):
            tried[head.tuning] = last
    return tried


def _taken_back(head: Head) -> Tried | None:
    """How a rollout that changed hosts ended, the first time that it was taken back.

    What its look found counts where that, or a person who looked at it, took the rollout back.
    """
    stays = runs(head.history)
    states = [stay[0].state for stay in stays]
    if head.state != "rolled_back" or not {State.CHANGING, State.ROLLING_BACK} <= {*states}:
        return None
    first = states.index(State.ROLLING_BACK)
    look, was_held = head.verdict, states[first - 1] == State.HELD
    judged = look and (look.decision is Decision.ROLL_BACK or was_held) and not _fell(head)
    why = look.reason if look and judged else stays[first][0].told
    return Tried(head.id, stays[first][0].at, shortened(why, _LONGEST))


def count_rollouts(context: Context, living: Sequence[Head]) -> dict[tuple[str, str], Tally]:
    """By PoP and tuning, the living rollouts and those of the archive, counted."""
    prefix, steps = past_key(""), _steps_taken(context, "")
    by_pop: dict[str, list[Head]] = {}
    for head in living:
        by_pop.setdefault(head.pop, []).append(head)
    pasts = {key[len(prefix) :]: text for key, text in context.store.list(prefix).items()}
    return {
        (pop, tuning): tally
        for pop in {**by_pop, **pasts}
        for tuning, tally in _counted(
            context, pop, pasts.get(pop), by_pop.get(pop, []), steps
        ).items()
    }


def _counted(
    context: Context,
    pop: str,
    text: str | None,
    living: Sequence[Head],
    steps: Mapping[str, StepsTaken],
) -> dict[str, Tally]:
    """The rollouts of a PoP by tuning, each counted where it tells more."""
    if text is None:
        return _tallies({}, living, steps)
    epochs, past = {head.id: head.epoch for head in living}, None
    with suppress(RefusedError):
        past = read_past(pop, text)
    if past is None or past.tallies is None:
        copies = read_archived_heads(context, pop)[0]
        return _tallies({}, [*living, *(copy for copy in copies if copy.id not in epochs)], steps)
    copies = _copies(context, [name for name in past.moving if name not in epochs])
    known = _copies(context, [name for name in epochs if _is_counted(past, name)])
    # To take one up again is a new epoch: one with the same has moved since it was read.
    moved = [copy.id for copy in known if copy.epoch == epochs[copy.id]]
    fresh = [head for head in living if head.id not in moved]
    again = [copy for copy in known if copy.id not in moved]
    return _tallies(past.tallies, [*copies, *fresh], steps, again)


def _is_counted(past: Past, rollout: str) -> bool:
    """Whether the tallies count the copy of a rollout, if there is one."""
    return rollout <= past.last and rollout not in past.moving


def _copies(context: Context, rollouts: Iterable[str]) -> list[Head]:
    """Those that lie in the archive and can be read."""
    heads = (archived_head(context, name) for name in rollouts)
    return [head for head in heads if head is not None]


def _tallies(
    before: Mapping[str, Tally],
    heads: Iterable[Head],
    steps: Mapping[str, StepsTaken],
    again: Iterable[Head] = (),
) -> dict[str, Tally]:
    """With some rollouts counted, and without those that are counted at another place ``again``."""
    tallies, now = deepcopy({**before}), clock.wall()
    for head in heads:
        _count(tallies.setdefault(head.tuning, Tally()), head, steps, now)
    for head in again:
        tallies.setdefault(head.tuning, Tally()).count(head, now, -1)
    return tallies


def _count(tally: Tally, head: Head, steps: Mapping[str, StepsTaken], now: float) -> None:
    tally.count(head, now)
    if head.id in steps:
        tally.count_steps(steps[head.id])


def _steps_taken(context: Context, start: str) -> dict[str, StepsTaken]:
    """By the ids of rollouts that begin so. One that cannot be read counts as one that is gone."""
    prefix, taken = steps_key(""), {}
    for key, text in context.store.list(steps_key(start)).items():
        with suppress(RefusedError):
            taken[key[len(prefix) :]] = read_steps(key[len(prefix) :], text)
    return taken


def archived_steps(context: Context, tuning: str) -> list[Mapping[str, StepTaken]]:
    """The steps of all archived rollouts of a tuning by name, for each PoP that counted some."""
    prefix, found = past_key(""), list[Mapping[str, StepTaken]]()
    for key, text in context.store.list(prefix).items():
        # To read hundreds of PoPs that never had it takes longer than all else.
        if f'"{tuning}"' in text:
            with suppress(RefusedError):
                tallies = read_past(key[len(prefix) :], text).tallies or {}
                found += [tallies[tuning].steps] if tuning in tallies else []
    return found


def has_past(context: Context) -> bool:
    """Whether anything lies in the archive."""
    return bool(context.store.list(past_key("")))


def what_stands(
    context: Context, living: Iterable[Head], unreadable: Iterable[Unreadable] = ()
) -> dict[str, dict[str, Standing]]:
    """By PoP, and by the rollout that is complete; ``living`` are the heads outside the archive,
    which were read before, as were those that are ``unreadable``."""
    prefix = past_key("")
    standing: dict[str, dict[str, Standing]] = {}
    for key, text in context.store.list(prefix).items():
        pop = key[len(prefix) :]
        try:
            past: Past | None = read_past(pop, text)
        except RefusedError:
            past = _read_again(context, pop)
        standing[pop] = {**past.standing} if past else {}
    for head in living:
        standing[head.pop] = _standing([head], standing.get(head.pop, {}))
    for each in unreadable:
        if each.state == "complete":
            # What the archive holds of the PoP may tell more of it.
            standing.setdefault(each.pop, {}).setdefault(each.id, Standing())
    return {pop: by_rollout for pop, by_rollout in sorted(standing.items()) if by_rollout}


def _standing(
    heads: Iterable[Head], before: Mapping[str, Standing] = MappingProxyType({})
) -> dict[str, Standing]:
    standing = {**before}
    for head in heads:
        standing.pop(head.id, None)
        if head.state == "complete":
            seen = head.verdict
            since = runs(head.history)[-1][0].at if head.history else head.created
            ratio = (seen.metric, seen.ratio) if seen and seen.ratio is not None else ("", None)
            standing[head.id] = Standing(head.tuning, since, *ratio)
    in_turn = sorted(standing.items(), key=lambda row: row[1].at)
    # Of a tuning that stands in many versions, the oldest need not be kept.
    newest = {one.tuning: id for id, one in in_turn}.values()
    recent = [id for id, _ in in_turn[-MOST_STANDING:]]
    return {id: one for id, one in in_turn if id in recent or id in newest}


def largest_epoch(context: Context, pop: str) -> int:
    """The largest epoch of the rollouts of a PoP, 0 without any: a new one has to be larger."""
    heads, unreadable = read_living_heads(context, pop)
    # Afterwards: what leaves in between is there already.
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


def sweep_ended(context: Context, heads: Sequence[Head]) -> tuple[int, list[str]]:
    """Move what has ended of PoPs on which nothing is under way, of all living ``heads``.

    How many were moved, and why some PoPs keep theirs; no more than ``SWEPT_AT_ONCE``, the others
    by the next sweeps.
    """
    if not _is_understood(context):
        return 0, []
    moved, kept = 0, list[str]()
    busy = {head.pop for head in heads if head.state not in ENDED}
    for pop in sorted({head.pop for head in _due(heads) if head.pop not in busy}):
        if moved < SWEPT_AT_ONCE:
            with _alone(pop, kept):
                moved += _sweep(context, pop, SWEPT_AT_ONCE - moved)
    if not moved:
        _count_one(context, busy, kept)
    return moved, kept


@contextmanager
def _alone(pop: str, kept: list[str]) -> Iterator[None]:
    """What cannot be read of a PoP stops no other; one that somebody has waits its turn."""
    try:
        yield
    except FencedError:
        pass
    except RefusedError as error:
        kept.append(f"{pop}: its ended rollouts are not archived: {error}")


def _count_one(context: Context, busy: Container[str], kept: list[str]) -> None:
    """Count the archive of one PoP that was not counted yet, or whose count is damaged."""
    prefix = past_key("")
    for key, text in context.store.list(prefix).items():
        pop = key[len(prefix) :]
        if pop not in busy and not _has_tallies(pop, text):
            with _alone(pop, kept), _claimed(context, pop) as claim:
                known = _read_again(context, pop)
                if known is None:
                    continue
                steps = _steps_taken(context, f"{pop}-")
                heads, _ = read_archived_heads(context, pop)
                past = replace(known, tallies=_tallies({}, heads, steps)).document()
                _write(context, pop, claim, _TTL, key, past)
                _forget_steps(context, pop, claim, _TTL, steps.keys() & {head.id for head in heads})
                return


def _has_tallies(pop: str, text: str) -> bool:
    try:
        # To read hundreds of them at each sweep takes longer than all else that it does.
        return '"tallies": {' in text or read_past(pop, text).tallies is not None
    except DamagedError:
        return False
    except RefusedError:
        # A later version wrote it, and knows better.
        return True


@contextmanager
def _claimed(context: Context, pop: str) -> Iterator[Claim]:
    """The claim of a PoP for the body; FencedError where somebody has it."""
    claim = context.claims.take(pop, CLAIMED_BY, _TTL)
    try:
        yield claim
    finally:
        context.claims.release(pop, claim)


def _forget_steps(
    context: Context, pop: str, claim: Claim, ttl: float, rollouts: Iterable[str]
) -> None:
    for name in rollouts:
        context.claims.renew(pop, claim, ttl)
        context.store.delete(steps_key(name))


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
    with _claimed(context, pop) as claim:
        # One may have begun, or been taken up again, before the claim.
        return _move(context, pop, _due_now(context, pop)[:most], claim, _TTL)


def _due_now(context: Context, pop: str) -> list[Head]:
    heads, _ = read_living_heads(context, pop)
    return [] if any(head.state not in ENDED for head in heads) else _due(heads)


def _move(context: Context, pop: str, ended: Sequence[Head], claim: Claim, ttl: float) -> int:
    if not ended:
        return 0
    before, steps = past_of(context, pop), _steps_taken(context, f"{pop}-")
    past = _leaving(context, before, ended, steps)
    _write(context, pop, claim, ttl, past_key(pop), past.document() if past != before else None)
    for head in ended:
        _write(context, pop, claim, ttl, *_effect(context, head))
        text = context.store.get(head_key(head.id))
        _write(context, pop, claim, ttl, archive_key(head.id), text)
        context.claims.renew(pop, claim, ttl)
        context.store.delete(head_key(head.id))
    arrived = past_with(past, ended, steps)
    if arrived != past:
        _write(context, pop, claim, ttl, past_key(pop), arrived.document())
    if arrived.tallies is not None:
        arrived_ids = {*past.moving, *(before.moving if before else ())} - {*arrived.moving}
        _forget_steps(context, pop, claim, ttl, steps.keys() & arrived_ids)
    return len(ended)


def _effect(context: Context, head: Head) -> tuple[str, str | None]:
    """The effect that is kept of a rollout, with how that ended; None where none is."""
    key = effect_key(head.tuning, head.id)
    text = context.store.get(key) if head.looks else None
    with suppress(RefusedError):
        return key, text and read_effect(key, text).after(head.state, head.cause).document()
    return key, None


def _leaving(
    context: Context, before: Past | None, ended: Sequence[Head], steps: Mapping[str, StepsTaken]
) -> Past:
    """Before the first of them moves; those of an earlier move that stopped are settled."""
    known = before or Past(1, ended[0].id, {}, tallies={})
    names = [head.id for head in ended]
    past = Past(
        max(known.epoch, *(head.epoch for head in ended)),
        max(known.last, *names),
        _standing(ended, known.standing),
        _tried(ended, known.tried),
    )
    if known.tallies is None:
        return past
    left = [name for name in known.moving if name not in names]
    still = [name for name in left if context.store.get(head_key(name)) is not None]
    moved = _copies(context, [name for name in left if name not in still])
    again = _copies(context, [name for name in names if before and _is_counted(before, name)])
    tallies = _tallies(known.tallies, moved, steps, again)
    return replace(past, tallies=tallies, moving=[*still, *names])


def past_with(past: Past, ended: Sequence[Head], steps: Mapping[str, StepsTaken]) -> Past:
    """With rollouts that have moved."""
    if past.tallies is None:
        return past
    names = {head.id for head in ended}
    return replace(
        past,
        tallies=_tallies(past.tallies, ended, steps),
        moving=[name for name in past.moving if name not in names],
    )


def _fell(head: Head) -> bool:
    """Whether its tuning stood, and does no more."""
    return head.state != "complete" and any(entry.state == "complete" for entry in head.history)


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
