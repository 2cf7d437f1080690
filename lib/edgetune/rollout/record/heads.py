# SPDX-License-Identifier: Apache-2.0
"""Which rollouts there are, and which of their records cannot be read.

What has ended leaves for the archive (``archive``). So what is under way is read at the same cost
however many have ended; who needs those asks for all heads, or for one by its id.

A record that cannot be read is named, shown, and out of the way of all others. The id of a rollout
begins with the name of its PoP, so the key tells the PoP whatever the text has become. No rollout
begins on that PoP until the record is put right, or a person releases it. A key that tells no PoP
is not one of ours: it keeps every PoP. Rollouts under way go on in any case.

edgetune.released.ID    who gave up the record of a rollout, when and why; for that text alone
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from edgetune import PACK
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.head import (
    ENDED,
    ID,
    LARGEST_EPOCH,
    Head,
    archive_key,
    head_key,
    read_head,
)
from edgetune.base.documents.reading import read_document
from edgetune.base.documents.schema import is_other_schema
from edgetune.base.errors import DamagedError, RefusedError
from edgetune.base.sanitize import command
from edgetune.rollout.context import Context
from edgetune.rollout.store.records import value_of


@dataclass(frozen=True)
class Unreadable:
    """A head that cannot be read, with ``why``; ``pop`` is empty where its key does not tell.

    ``state`` is known of one that another version of the pack wrote. ``epoch`` is 0 where the
    text tells none. One that lies in the archive (``archived``) keeps no PoP.
    """

    id: str
    pop: str
    why: str
    text: str
    state: str = ""
    epoch: int = 0
    archived: bool = False

    def may_be_on(self, pop: str) -> bool:
        """Whether it can be a rollout of this PoP."""
        return self.pop in ("", pop)

    @property
    def digest(self) -> str:
        """That of its text."""
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()

    def may_stand_on(self, head: Head) -> bool:
        """Whether it can be a later rollout of the same PoP that was not taken back."""
        ours, other = ID.fullmatch(self.id), ID.fullmatch(head.id)
        earlier = ours is not None and other is not None and ours[2] < other[2]
        return self.may_be_on(head.pop) and self.state != "rolled_back" and not earlier


def has_record(context: Context, rollout: str) -> bool:
    """Whether there is a record of that rollout, be it one that cannot be read."""
    return find_text(context, rollout) is not None


def find_text(context: Context, rollout: str) -> tuple[str, bool] | None:
    """The stored text of a head, and whether it lies in the archive; None where there is none."""
    text = context.store.get(head_key(rollout))
    if text is not None:
        return text, False
    # Afterwards: what leaves in between is there already.
    text = context.store.get(archive_key(rollout)) if ID.fullmatch(rollout) else None
    return None if text is None else (text, True)


def living_heads(context: Context, pop: str = "") -> list[Head]:
    """Those of ``read_living_heads`` that can be read."""
    return read_living_heads(context, pop)[0]


def read_living_heads(context: Context, pop: str = "") -> tuple[list[Head], list[Unreadable]]:
    """Heads that are not in the archive, oldest first, and those that cannot be read.

    With ``pop`` those of that PoP, and what may be on it; no other is read then.
    """
    return _read(pop, _living_texts(context, pop), {})


def all_heads(context: Context, pop: str = "") -> list[Head]:
    """Those of ``read_all_heads`` that can be read."""
    return read_all_heads(context, pop)[0]


def read_all_heads(context: Context, pop: str = "") -> tuple[list[Head], list[Unreadable]]:
    """The same with those in the archive, however many there are. Of one that lies in both places
    that in the archive is older."""
    living = _living_texts(context, pop)
    # Afterwards: what leaves in between is there already.
    archived = _texts(context, archive_key(""), pop)
    return _read(pop, living, {name: archived[name] for name in archived.keys() - living.keys()})


def read_archived_heads(context: Context, pop: str) -> tuple[list[Head], list[Unreadable]]:
    """The same of what lies in the archive, be it that it lies among the living, too."""
    return _read(pop, {}, _texts(context, archive_key(""), pop))


def archived_head(context: Context, rollout: str) -> Head | None:
    """That in the archive, be it that it lies among the living, too; None where none can be
    read."""
    text = context.store.get(archive_key(rollout))
    head = None if text is None else _head_of(rollout, text, True)
    return head if isinstance(head, Head) else None


def _living_texts(context: Context, pop: str) -> dict[str, str]:
    texts = _texts(context, head_key(""), pop)
    for name in context.strays if pop else ():
        text = context.store.get(head_key(name))
        if text is not None:
            texts[name] = text
    return texts


def _texts(context: Context, prefix: str, pop: str) -> dict[str, str]:
    """By id; with ``pop`` without those whose key tells another one."""
    start = prefix + (f"{pop}-" if pop else "")
    texts = {key[len(prefix) :]: text for key, text in context.store.list(start).items()}
    return {name: text for name, text in texts.items() if not pop or _pop_of(name) in ("", pop)}


def _pop_of(rollout: str) -> str:
    named = ID.fullmatch(rollout)
    return named[1] if named else ""


def _read(
    pop: str, living: Mapping[str, str], archived: Mapping[str, str]
) -> tuple[list[Head], list[Unreadable]]:
    heads: list[Head] = []
    unreadable: list[Unreadable] = []
    for texts in (living, archived):
        for name, text in texts.items():
            read = _head_of(name, text, texts is archived)
            if isinstance(read, Head):
                heads += [read] if pop in ("", read.pop) else []
            elif not pop or read.may_be_on(pop):
                unreadable.append(read)
    return sorted(heads, key=lambda head: head.created), unreadable


def look_up(context: Context, rollout: str) -> Head | Unreadable | None:
    """One of them by its id, which may be no name; None where there is none."""
    for key, archived in ((head_key(rollout), False), (archive_key(rollout), True)):
        text = value_of(context.store, key)
        if text is not None:
            return _head_of(rollout, text, archived)
    return None


def _head_of(rollout: str, text: str, archived: bool) -> Head | Unreadable:
    try:
        return read_head(rollout, text, archived)
    except RefusedError as error:
        return _unreadable(rollout, text, str(error), archived)


def _unreadable(rollout: str, text: str, why: str, archived: bool) -> Unreadable:
    pop, state, epoch = _pop_of(rollout), "", 0
    try:
        document = read_document(head_key(rollout), text)
    except DamagedError:
        return Unreadable(rollout, pop, why, text, archived=archived)
    written = document.get("epoch")
    if type(written) is int and 0 <= written <= LARGEST_EPOCH:
        epoch = written
    if is_other_schema(document.get("schema")):
        state = str(document.get("state", ""))
        pop = pop or str(document.get("pop", ""))
    return Unreadable(rollout, pop, why, text, state, epoch, archived)


def refuse_lost_past(context: Context, unreadable: Sequence[Unreadable]) -> None:
    """RefusedError where one of the archive cannot be read: a tuning may stand by it."""
    for each in unreadable:
        if each.archived and not is_released(context, each):
            gives_up = command("release_record", rollout=each.id)
            raise RefusedError(
                f"{each.why}; a tuning may stand on {each.pop} by it: put that record back, or "
                f"{gives_up} gives it up"
            )


def unreadable_rollouts(context: Context, pop: str = "") -> list[Unreadable]:
    """Those that keep a PoP, or this one: not released, and not ended by another version."""
    return keeping_their_pop(context, read_living_heads(context, pop)[1])


def keeping_their_pop(context: Context, unreadable: Sequence[Unreadable]) -> list[Unreadable]:
    """The same of those that are known."""
    return [
        each
        for each in unreadable
        if not each.archived and each.state not in ENDED and not is_released(context, each)
    ]


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
    heads, unreadable = read_living_heads(context, pop)
    unended = [(head.id, head.state) for head in heads if head.state not in ENDED]
    if but in [name for name, _ in unended]:
        unreadable = [each for each in unreadable if each.state]
    kept = keeping_their_pop(context, unreadable)
    # Another version of the pack wrote those whose state is known.
    unended += [(each.id, each.state) for each in kept if each.state]
    for name, state in unended:
        if name != but:
            shows = command("rollout_status", pop=pop)
            raise RefusedError(f"{pop} has a rollout that is {state}: {name}; {shows} shows it")
    for each in kept:
        raise RefusedError(unreadable_text(each))
