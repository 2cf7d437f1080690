# SPDX-License-Identifier: Apache-2.0
"""Moments by the clock on the wall of the controller, beside UTC."""

from __future__ import annotations

from datetime import datetime, timezone


def local(seconds: float) -> str:
    """A moment in the controller's time zone, with the zone's name; the day where it is not that
    of UTC. Empty where the zone is UTC itself."""
    utc = datetime.fromtimestamp(seconds, tz=timezone.utc)
    here = utc.astimezone()
    if not here.utcoffset():
        return ""
    day = "" if here.date() == utc.date() else "%b %d "
    return here.strftime(f"{day}%H:%M:%S %Z")


def zone(seconds: float) -> str:
    """The controller's time zone at a moment, such as "CEST, UTC+02:00"; empty for UTC."""
    here = datetime.fromtimestamp(seconds, tz=timezone.utc).astimezone()
    return (
        here.strftime("%Z, UTC%z")[:-2] + ":" + here.strftime("%z")[-2:] if local(seconds) else ""
    )


def stamp(seconds: float) -> str:
    """A moment as programs read it (ISO 8601, UTC)."""
    return datetime.fromtimestamp(seconds, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
