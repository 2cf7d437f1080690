# SPDX-License-Identifier: Apache-2.0
"""Rollouts whose record cannot be read: named, told, and out of the way of all others.

The id of a rollout begins with the name of its PoP, so the key tells the PoP whatever the text has
become. No rollout begins on that PoP until the record is put right, or a person releases it. A key
that tells no PoP is not one of ours: it keeps every PoP. Rollouts under way go on in any case.

edgetune.released.ID    who gave up the record of a rollout, when and why; for that text alone
"""

from __future__ import annotations

from collections.abc import Sequence

from edgetune import PACK
from edgetune.base.documents.head import ENDED
from edgetune.base.documents.reading import read_document
from edgetune.base.errors import DamagedError, RefusedError
from edgetune.base.sanitize import command
from edgetune.rollout.context import Context
from edgetune.rollout.record.heads import Unreadable, read_heads


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
