# SPDX-License-Identifier: Apache-2.0
"""The kill switch: one key in the store, read before every side effect.

It needs no workflow: ``st2 key set edgetune.stop_all true`` stops everything as well.
"""

from __future__ import annotations

from typing import Any

from edgetune import PACK
from edgetune.errors import RefusedError
from edgetune.rollout.site import Site

STOP_KEY = f"{PACK}.stop_all"
_OFF = ("", "false", "0", "no")


def stop_all(site: Site, by: str = "", reason: str = "") -> dict[str, Any]:
    """Let nothing be changed any more, on any PoP, until ``resume_all``."""
    why = f"stopped by {by or 'unknown'}" + (f": {reason}" if reason else "")
    site.store.put(STOP_KEY, why)
    return {"stopped": True, "message": f"{why}; hosts stay as they are until resume_all"}


def resume_all(site: Site, by: str = "") -> dict[str, Any]:
    """Permit changes again; what was stopped is carried on by ``recover_orphans``."""
    was = stopped_by(site)
    site.store.put(STOP_KEY, "false")
    message = f"{by or 'unknown'} permits changes again ({was})" if was else "nothing was stopped"
    return {"stopped": False, "message": message}


def stopped_by(site: Site) -> str:
    """What the key says while everything is stopped, else nothing."""
    why = (site.store.get(STOP_KEY) or "").strip()
    return "" if why.lower() in _OFF else why


def refuse_if_stopped(site: Site) -> None:
    """RefusedError while everything is stopped."""
    why = stopped_by(site)
    if why:
        raise RefusedError(f"everything is stopped ({STOP_KEY}: {why}); resume_all permits changes")
