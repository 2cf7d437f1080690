# SPDX-License-Identifier: Apache-2.0
"""Which rollouts there are, and which of their records cannot be read.

A record that cannot be read is named, told, and out of the way of all others. The id of a rollout
begins with the name of its PoP, so the key tells the PoP whatever the text has become. No rollout
begins on that PoP until the record is put right, or a person releases it. A key that tells no PoP
is not one of ours: it keeps every PoP. Rollouts under way go on in any case.

edgetune.released.ID    who gave up the record of a rollout, when and why; for that text alone
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from edgetune import PACK
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import ENDED, ID, LARGEST_EPOCH, Head, head_key, read_head
from edgetune.base.documents.reading import read_document
from edgetune.base.documents.schema import is_other_schema
from edgetune.base.errors import DamagedError, RefusedError
from edgetune.base.sanitize import command
from edgetune.rollout.context import Context


@dataclass(frozen=True)
class Unreadable:
    """A head that cannot be read, with ``why``; ``pop`` is empty where its key does not tell.

    ``state`` is known of one that another version of the pack wrote. ``epoch`` is 0 where the
    text tells none.
    """

    id: str
    pop: str
    why: str
    text: str
    state: str = ""
    epoch: int = 0

    def may_be_on(self, pop: str) -> bool:
        """Whether it can be a rollout of this PoP."""
        return self.pop in ("", pop)

    @property
    def digest(self) -> str:
        """That of its text."""
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()

    def may_stand_on(self, head: Head) -> bool:
        """Whether it can be a later rollout of the same PoP that was not taken back."""
        own, other = ID.fullmatch(self.id), ID.fullmatch(head.id)
        earlier = own is not None and other is not None and own[2] < other[2]
        return self.may_be_on(head.pop) and self.state != "rolled_back" and not earlier


def has_record(context: Context, rollout: str) -> bool:
    """Whether there is a record of that rollout, be it one that cannot be read."""
    return context.store.get(head_key(rollout)) is not None


def all_heads(context: Context) -> list[Head]:
    """Heads of all rollouts that can be read, oldest first."""
    return read_heads(context)[0]


def read_heads(context: Context) -> tuple[list[Head], list[Unreadable]]:
    """Heads of all rollouts, oldest first, and those that cannot be read."""
    heads, unreadable = [], []
    prefix = head_key("")
    for key, text in context.store.list(prefix).items():
        rollout = key[len(prefix) :]
        try:
            heads.append(read_head(rollout, text))
        except RefusedError as error:
            unreadable.append(_unreadable(rollout, text, str(error)))
    return sorted(heads, key=lambda head: head.created), unreadable


def _unreadable(rollout: str, text: str, why: str) -> Unreadable:
    named = ID.fullmatch(rollout)
    pop, state, epoch = named[1] if named else "", "", 0
    try:
        document = read_document(head_key(rollout), text)
    except DamagedError:
        return Unreadable(rollout, pop, why, text)
    told = document.get("epoch")
    if type(told) is int and 0 <= told <= LARGEST_EPOCH:
        epoch = told
    if is_other_schema(document.get("schema")):
        state = str(document.get("state", ""))
        pop = pop or str(document.get("pop", ""))
    return Unreadable(rollout, pop, why, text, state, epoch)


def unreadable_rollouts(context: Context) -> list[Unreadable]:
    """Those that keep a PoP: not released, and not ended by another version of the pack."""
    return keeping_their_pop(context, read_heads(context)[1])


def keeping_their_pop(context: Context, unreadable: Sequence[Unreadable]) -> list[Unreadable]:
    """The same of those that are known."""
    return [
        each for each in unreadable if each.state not in ENDED and not is_released(context, each)
    ]


def refuse_unreadable(context: Context, pop: str) -> None:
    """RefusedError while a rollout that cannot be read may be on a PoP."""
    for each in unreadable_rollouts(context):
        if each.may_be_on(pop):
            raise RefusedError(unreadable_text(each))


def unreadable_text(each: Unreadable) -> str:
    """Which record cannot be read, what waits for it, and the command that ends this."""
    where = each.pop or "any PoP"
    return (
        f"{each.why}; no rollout begins on {where} until that record is put back, or until "
        f"{command('release_record', rollout=each.id)} gives it up"
    )


def is_released(context: Context, each: Unreadable) -> bool:
    """Whether a person gave up this text of a record."""
    key = release_key(each.id)
    text = context.store.get(key)
    try:
        return text is not None and read_document(key, text)["digest"] == each.digest
    except (DamagedError, KeyError):
        return False


def release_key(rollout: str) -> str:
    """The key under which a person gave a record up."""
    return f"{PACK}.released.{rollout}"


def refuse_unfinished(context: Context, pop: str, but: str = "") -> None:
    """RefusedError while a PoP has an unfinished rollout, or one that cannot be read.

    A claim can run out; half a tuned PoP is nobody else's to change all the same. ``but`` is the
    rollout that is to go on. While it has not ended, no other one can have begun beside it.
    """
    heads, unreadable = read_heads(context)
    unended = [
        (head.id, head.state) for head in heads if head.pop == pop and head.state not in ENDED
    ]
    if but in [name for name, _ in unended]:
        unreadable = [each for each in unreadable if each.state]
    kept = [each for each in keeping_their_pop(context, unreadable) if each.may_be_on(pop)]
    # Another version of the pack wrote those whose state is known.
    unended += [(each.id, each.state) for each in kept if each.state]
    for name, state in unended:
        if name != but:
            shows = command("rollout_status", pop=pop)
            raise RefusedError(f"{pop} has a rollout that is {state}: {name}; {shows} shows it")
    for each in kept:
        raise RefusedError(unreadable_text(each))


def largest_epoch(context: Context, pop: str) -> int:
    """The largest epoch of the rollouts of a PoP, 0 without any: a new one has to be larger."""
    heads, unreadable = read_heads(context)
    epochs = [head.epoch for head in heads if head.pop == pop]
    epochs += [each.epoch for each in unreadable if each.may_be_on(pop)]
    return max(epochs, default=0)
