# SPDX-License-Identifier: Apache-2.0
"""Which rollouts there are, and which of their records cannot be read."""

from __future__ import annotations

import hashlib

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import ID, LARGEST_EPOCH, Head, head_key, read_head
from edgetune.base.documents.reading import read_document
from edgetune.base.documents.schema import is_other_schema
from edgetune.base.errors import DamagedError, RefusedError
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
