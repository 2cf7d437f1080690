# SPDX-License-Identifier: Apache-2.0
"""``diagnose``: what is wrong with a host."""

from typing import Any, List, Sequence, Tuple

from edgetune.agent.host import Host
from edgetune.agent.journal import Journals
from edgetune.agent.protocol import Json, Request, complaint
from edgetune.agent.vocabulary.kind import SERVICE_NAME

LONGEST = 60


def diagnose(host: Host, request: Request) -> Json:
    """Findings, each with its numbers; what could not be read, and why. Writes nothing at all.

    Counters are read twice, ``seconds`` apart (0: once, and rates are those since the boot).
    ``services`` are those that serve; where their threads run is looked at.
    """
    seconds = request.whole("seconds", 0, LONGEST, default=5)
    services = _services(request)
    request.done()
    snap, finders = _findings_of(host, services)
    snap.look(seconds)
    findings: List[Json] = []
    with host.read_cache():
        for find in finders:
            try:
                findings += find(snap)
            except Exception as error:
                snap.unread[find.__name__] = complaint(error)
    return {
        "system": host.system,
        "seconds": round(snap.seconds, 3),
        "findings": findings,
        "unread": [f"{what}: {why}" for what, why in snap.unread.items()],
        "tunings": {journal.tuning: journal.state for journal in Journals(host).all()},
    }


def _findings_of(host: Host, services: Sequence[str]) -> Tuple[Any, Sequence[Any]]:
    """What findings of this host are made of, and what makes them."""
    if host.system == "freebsd":
        from edgetune.agent.findings import freebsd

        return freebsd.Snapshot(host, services), freebsd.FINDERS
    from edgetune.agent.findings import linux, snapshot

    return snapshot.Snapshot(host, services), linux.FINDERS


def _services(request: Request) -> List[str]:
    names = request.texts("services")
    if names is None:
        return ["nginx"]
    listed = Request({f"services[{i}]": name for i, name in enumerate(names)})
    return [listed.text(f"services[{i}]", SERVICE_NAME) for i in range(len(names))]
