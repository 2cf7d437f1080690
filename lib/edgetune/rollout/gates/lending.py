# SPDX-License-Identifier: Apache-2.0
"""Why hosts may get no more traffic than they have, and return what they were lent: a freeze, a
pause, a surge, the floor of their PoP, or somebody who steers them otherwise.

The kill switch and a lost claim stop the step itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgetune.base.documents.words import State
from edgetune.judge.capacity import share_of
from edgetune.net.traffic import Server
from edgetune.rollout.evidence.sampling import surge_of
from edgetune.rollout.gates import pause as gate
from edgetune.rollout.gates.freeze import why_frozen
from edgetune.rollout.hosts.in_service import hosts_in_service
from edgetune.rollout.hosts.weights import set_by_others
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record

_ROUNDING = 1e-9
MEASURED_IN = (State.SOAKING, State.HELD)
"""The states in which tuned and untuned hosts serve side by side, and nothing is changed."""


def why_no_more(opened: Rollout, servers: Mapping[str, Server], hosts: Sequence[str]) -> str:
    """Why these hosts may not be lent anything now, in words; nothing where they may."""
    head = opened.head
    if head.state not in MEASURED_IN:
        return f"rollout {head.id} is {head.state}"
    pauses = gate.pause_text(head.pop, gate.pauses_of(opened.context, head.pop))
    closed = why_frozen(opened.context, head) or pauses or why_no_room(opened, servers, hosts)
    if closed:
        return closed
    others = set_by_others(opened, servers)
    if others:
        return "; ".join(f"{name}: {why}" for name, why in others.items())
    surge = surge_of(opened)
    return surge.partition(";")[0]


def why_no_room(opened: Record, servers: Mapping[str, Server], hosts: Sequence[str]) -> str:
    """Why the PoP could not do without these hosts at once, in words; nothing where it could."""
    pop, serving = opened.pop, hosts_in_service(opened.pop, servers)
    out = [name for name in hosts if name not in serving]
    if out:
        return f"{' and '.join(out)} {'does' if len(out) == 1 else 'do'} not serve"
    left = len(serving - {*hosts})
    if left < pop.must_serve:
        return (
            f"without {' and '.join(hosts)} {left} hosts of {pop.name} would serve, "
            f"{pop.must_serve} must"
        )
    return ""


def shares_with(
    opened: Record, servers: Mapping[str, Server], weights: Mapping[str, int] | None = None
) -> dict[str, float]:
    """By host, the share of the requests that it gets as the servers stand, or with these
    ``weights``."""
    shown = {
        name: servers[opened.pop.host(name).server].weight or 0
        for name in hosts_in_service(opened.pop, servers)
    }
    shown.update({name: weight for name, weight in (weights or {}).items() if name in shown})
    return {name: share_of(weight, sum(shown.values())) for name, weight in shown.items()}


def why_too_much(shares: Mapping[str, float], hosts: Sequence[str], most: float) -> str:
    """Which of the hosts get more than ``most`` of the requests, in words; nothing for none."""
    over = [name for name in hosts if shares.get(name, 0.0) > most + _ROUNDING]
    text = " and ".join(f"{name} would get {shares[name]:.1%} of the requests" for name in over)
    return f"{text}, as fewer others serve by now" if over else ""
