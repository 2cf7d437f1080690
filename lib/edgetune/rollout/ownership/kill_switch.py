# SPDX-License-Identifier: Apache-2.0
"""The kill switch: two keys in the store, read before every side effect.

edgetune.stop_all    set by anybody on call, also by hand: st2 key set edgetune.stop_all true
edgetune.resumed     set by edgetune alone: the one text of the other key that permits changes

Every text of the first key stops, but for the permit that ``resume_all`` wrote under both. So who
may write the first key alone can stop and not lift: another text, such as "false", is a stop, and
so is no text. A step that meets a stop takes the permit away, and no copy of it lifts that stop.
"""

from __future__ import annotations

import contextlib
import json

from edgetune import CAMPAIGN_SCHEMA, PACK
from edgetune.base.documents.reading import read_document
from edgetune.base.errors import DamagedError, RefusedError, StoreError
from edgetune.base.sanitize import command
from edgetune.rollout.context import Context
from edgetune.rollout.store.records import value_of

STOP_KEY = f"{PACK}.stop_all"
RESUMED_KEY = f"{PACK}.resumed"
# Until something was stopped or resumed for the first time there is no permit.
_OFF = ("", "false", "0", "no")


def stopped_by(context: Context) -> str:
    """Why everything is stopped; nothing while it is not."""
    text, value = (value_of(context.store, key) for key in (RESUMED_KEY, STOP_KEY))
    if text is None:
        why = (value or "").strip()
        return "" if why.lower() in _OFF else why
    permit, stop = _kept(text)
    if permit and value == permit:
        return ""
    given = (value or "").strip()
    if given.lower() in _OFF or given.startswith("resumed by "):
        lifts = f"{given or 'an empty or missing key'} lifts no stop"
        return f"{stop}; {lifts}" if stop else lifts
    return given


def refuse_if_stopped(context: Context) -> None:
    """RefusedError while everything is stopped."""
    why = stopped_by(context)
    if why:
        take_permit_away(context, why)
        permits = f"{command('resume_all')} permits changes"
        raise RefusedError(f"everything is stopped ({STOP_KEY}: {why}); {permits}")


def take_permit_away(context: Context, why: str) -> None:
    """Remember a stop where those who may only stop cannot write."""
    text = value_of(context.store, RESUMED_KEY)
    if text is not None and not _kept(text)[0]:
        return
    # The stop stands in any case; a user who may not write this key has stopped all the same.
    with contextlib.suppress(StoreError):
        keep_permit(context, "", why)


def keep_permit(context: Context, permit: str, stop: str) -> None:
    """Write the permit down, or the stop that took it away."""
    document = {"schema": CAMPAIGN_SCHEMA, "permit": permit, "stop": stop}
    context.store.put(RESUMED_KEY, json.dumps(document))


def _kept(text: str) -> tuple[str, str]:
    """The permit, and the stop that took it away; neither where the document is damaged."""
    try:
        document = read_document(RESUMED_KEY, text)
    except DamagedError as error:
        return "", str(error)
    permit, stop = document.get("permit"), document.get("stop")
    return permit if isinstance(permit, str) else "", stop if isinstance(stop, str) else ""
