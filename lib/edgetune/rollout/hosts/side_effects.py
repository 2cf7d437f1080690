# SPDX-License-Identifier: Apache-2.0
"""Have hosts and their BMCs change something, as long as that is permitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Callable

from edgetune.rollout.ownership.lease import Rollout
from edgetune.site.inventory import Host

if TYPE_CHECKING:
    from edgetune.net.result import HostResult


def ask_hosts(
    opened: Rollout,
    names: Sequence[str],
    verb: str,
    request: Callable[[Host], Mapping[str, object]],
    timeout: float = 60,
    patient: bool = True,
) -> dict[str, HostResult]:
    """Have hosts change something, under our epoch and as long as it is permitted.

    A host that cannot be reached is asked again for ``health_deadline`` s: every verb can be
    repeated. ``patient`` False asks once.
    """

    def permitted(host: Host) -> dict[str, object]:
        opened.lease.permit()
        return {"epoch": opened.head.epoch, **request(host)}

    patience = opened.config.health_deadline if patient else 0
    return opened.context.fleet.ask(opened.hosts(names), verb, permitted, timeout, patience)


def ask_bmcs(
    opened: Rollout,
    names: Sequence[str],
    verb: str,
    request: Callable[[Host], Mapping[str, object]],
) -> dict[str, HostResult]:
    """Ask the BMCs of hosts, as long as it is permitted, be it in the middle of it.

    In a rollback one BMC that refuses a login does not stop the others of its credentials name.
    """

    def permitted(host: Host) -> Mapping[str, object]:
        opened.lease.permit()
        return request(host)

    if not names:
        return {}
    hosts = opened.hosts(names)
    refusals = 2 if opened.head.state == "rolling_back" else 1
    return opened.context.bmcs.ask(
        hosts, verb, permitted, permit=opened.lease.permit, refusals=refusals
    )
