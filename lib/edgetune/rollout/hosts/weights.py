# SPDX-License-Identifier: Apache-2.0
"""Weights that are lent to hosts in their load balancer, so that they get more of the traffic.

The head of the rollout has what each weight was and what is given, before it is given. So whoever
acts on the rollout next can return it, and knows a weight that somebody else has set: that one is
left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Callable

from edgetune.base.documents.head import Lent, Measuring
from edgetune.base.errors import DrainError, FencedError, RefusedError
from edgetune.net.traffic import DrainDriver, Server
from edgetune.rollout.hosts.measuring import conclude
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.capacity import load_capacity


def weights_shown(server: Server) -> set[int | None]:
    """Those that its load balancers show: one, unless they differ."""
    return {own.weight for own in server.parts.values() if own is not None} or {server.weight}


def set_by_others(opened: Rollout, servers: Mapping[str, Server]) -> dict[str, str]:
    """By host, how its lent weight is another one than it was given last, in words."""
    found = {}
    for name, own in _lent(opened).items():
        server = servers.get(opened.pop.host(name).server)
        if server is None:
            found[name] = "the load balancer has no such server any more"
        elif weights_shown(server) != {own.given[-1]}:
            found[name] = f"its weight is {_text(server)}, and it was given {own.given[-1]}"
    return found


def lend(
    opened: Rollout, driver: DrainDriver, servers: Mapping[str, Server], weights: Mapping[str, int]
) -> None:
    """Give hosts other weights, in the order of ``weights``; what they had is written down first.

    DrainError where a load balancer refuses, or shows a weight that is not told.
    """
    assert opened.head.measuring is not None
    lent = opened.head.measuring.lent
    for name, weight in weights.items():
        shown = servers[opened.pop.host(name).server].weight
        if name not in lent and shown is None:
            raise DrainError(f"{name}: its load balancer tells no weight")
        own = lent.setdefault(name, Lent(shown or 0))
        own.given = [*(each for each in own.given if each != weight), weight]
    opened.save()
    for name, weight in weights.items():
        opened.permit()
        driver.set_weight(opened.pop.host(name).server, weight)
    try:
        opened.renew()
    except FencedError:
        # Somebody took the rollout over since, and may have returned them before they were given.
        _put_back(opened, driver, [*weights], lambda: None)
        raise


def return_weights(opened: Rollout, names: Sequence[str] | None = None) -> list[str]:
    """Give hosts back the weights that they had, those of ``names`` or all; what was found of those
    that somebody else has set, in words. No weight is lent then, to these hosts.

    DrainError where a load balancer does not do it: what it was told of stays written down.
    """
    lent = _lent(opened)
    names = [name for name in (lent if names is None else names) if name in lent]
    if not names:
        return []
    notes, failed = _put_back(opened, opened.load_balancer, names, opened.permit)
    for name in names:
        if name not in failed:
            del lent[name]
    opened.save()
    if failed:
        raise DrainError("; ".join(f"{name}: {why}" for name, why in failed.items()))
    return notes


def end_measuring(opened: Rollout, patient: bool = True) -> list[str]:
    """Return all weights, and have no measurement under way any more; as ``return_weights``.

    To be called by whoever acts on a rollout in another way. Not ``patient``, a load balancer that
    is away keeps nobody from that: the weights stay written down, and are returned by a later step.
    """
    head = opened.head
    if head.measuring is None:
        return []
    # Whoever measured has no say any more, be the load balancer away.
    head.measuring = Measuring(0.0, head.measuring.lent)
    with suppress(*([] if patient else [DrainError])):
        notes = return_weights(opened)
        _leave(opened)
        return notes
    return []


def _leave(opened: Rollout) -> None:
    """Have no measurement under way; of one that was not over, what it found so far is kept."""
    found = None
    # What cannot be read keeps nobody from going on.
    with suppress(RefusedError):
        found = load_capacity(opened.context, opened.head.id)
    if found and not found.ended:
        found.stopped = found.stopped or "its rollout went on without it"
        conclude(opened, found)
    else:
        opened.head.measuring = None
        opened.save()


def _put_back(
    opened: Rollout, driver: DrainDriver, names: Sequence[str], permit: Callable[[], None]
) -> tuple[list[str], dict[str, str]]:
    """Notes on weights that somebody else has set; by host, why its weight was not returned."""
    servers, notes, failed = driver.servers(), list[str](), dict[str, str]()
    lent = _lent(opened)
    for name in names:
        own, server = lent[name], servers.get(opened.pop.host(name).server)
        if server is None or weights_shown(server) == {own.before}:
            continue
        if not weights_shown(server) <= {own.before, *own.given}:
            shown = _text(server)
            notes.append(f"somebody else has set the weight of {name} to {shown}: it is left so")
            continue
        permit()
        try:
            driver.set_weight(server.name, own.before)
        except DrainError as error:
            failed[name] = str(error)
    return notes, failed


def _lent(opened: Rollout) -> dict[str, Lent]:
    return opened.head.measuring.lent if opened.head.measuring else {}


def _text(server: Server) -> str:
    return " and ".join(str(own) for own in sorted(weights_shown(server), key=str))
