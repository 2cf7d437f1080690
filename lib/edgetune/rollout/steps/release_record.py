# SPDX-License-Identifier: Apache-2.0
"""Give up a record that cannot be read."""

from __future__ import annotations

import json
from typing import TypedDict

from edgetune import CAMPAIGN_SCHEMA
from edgetune.base import clock
from edgetune.base.documents.head import Head
from edgetune.base.errors import InputError, RefusedError
from edgetune.base.sanitize import command
from edgetune.rollout.context import Context
from edgetune.rollout.gates.pause import lift_bound
from edgetune.rollout.record.heads import look_up, release_key


class GivenUpResult(TypedDict):
    """The record that was given up, and ``why`` it cannot be read."""

    rollout: str
    pop: str
    why: str
    message: str


def release_record(
    context: Context, rollout: str, reason: str = "", requested_by: str = ""
) -> GivenUpResult:
    """Give up a record that cannot be read, so that rollouts begin on its PoP again.

    A pause that its plan asked for is lifted. The text stays where it is. Another text under the
    same key is judged anew. InputError if there is no such record, RefusedError if it can be read.
    """
    found = look_up(context, rollout)
    if isinstance(found, Head):
        raise RefusedError(
            f"the record of rollout {rollout} can be read: "
            f"{command('rollout_pop', rollout=rollout)} carries it on, "
            f"{command('roll_back_pop', rollout=rollout)} takes it back"
        )
    if found is None:
        raise InputError("parameter", "rollout", f"there is no rollout {rollout!r}")
    document = {
        "schema": CAMPAIGN_SCHEMA,
        "digest": found.digest,
        "by": requested_by,
        "at": clock.wall(),
        "reason": reason,
    }
    context.store.put(release_key(rollout), json.dumps(document))
    if found.pop:
        lift_bound(context, found.pop, rollout, requested_by)
    where = found.pop or "every PoP"
    who = requested_by or "unknown"
    message = f"{who} gives up the record of {rollout}: rollouts begin on {where} again"
    return {"rollout": rollout, "pop": found.pop, "why": found.why, "message": message}
