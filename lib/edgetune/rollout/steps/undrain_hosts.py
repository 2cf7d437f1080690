# SPDX-License-Identifier: Apache-2.0
"""Bring the hosts of a batch back to the state that they had in the load balancer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgetune.base import clock
from edgetune.base.documents.batch import Batch
from edgetune.base.errors import DrainError, ServerError
from edgetune.base.names import listed
from edgetune.net.traffic import DrainDriver, Server
from edgetune.rollout.hosts import in_service, quarantine
from edgetune.rollout.hosts.door import BatchStep
from edgetune.rollout.hosts.drain import POLL
from edgetune.rollout.hosts.silencing import keep_silenced
from edgetune.rollout.order import BatchResult, batch_result
from edgetune.rollout.ownership.lease import Rollout

_SICK = "does not pass the load balancer's check"
# For so long a server is looked at until its absence is believed, in seconds.
_SURE = 5.0


class UndrainResult(BatchResult):
    """The hosts that serve again are ``done``."""

    done: list[str]
    next: str


@BatchStep
def undrain_hosts(opened: Rollout, work: Batch) -> UndrainResult:
    """Give verified hosts their previous state back and wait until they serve again.

    In a rollback it is the batch's last step in the load balancer: hosts that were quarantined
    on the way are seen out of service.
    """
    names = work.at("verified", "undraining")
    drained = [name for name in names if work.hosts[name].lb_before is not None]
    opened.move(work, names, "undraining")
    failed = []
    if drained:
        driver = opened.load_balancer
        refused = _put_back(opened, driver, work, drained)
        put = [name for name in drained if name not in refused]
        for name, why in {**refused, **_not_back(opened, driver, work, put)}.items():
            if quarantine.fail_host(opened, work, name, why):
                failed.append(name)
    opened.move(work, [n for n in work.at("undraining") if n not in failed], "done")
    quarantine.take_out_quarantined(opened, work)
    keep_silenced(opened, work)
    done = [name for name in names if work.hosts[name].step == "done"]
    told = batch_result(work, failed, f"{len(done)} of {len(names)} serve again")
    return {**told, "done": done, "next": "check_health"}


def _put_back(
    opened: Rollout, driver: DrainDriver, work: Batch, names: Sequence[str]
) -> dict[str, str]:
    """Why hosts that steer themselves were not put back, by name.

    All are tried before DrainError says what a load balancer refused: each may serve meanwhile.
    """
    refused: dict[str, str] = {}
    problems: dict[str, str] = {}
    for host in opened.hosts(names):
        opened.permit()
        try:
            in_service.put_back(driver, host.server, work.hosts[host.name].lb_before)
        except ServerError as error:
            refused[host.name] = str(error)
        except DrainError as error:
            problems[host.name] = str(error)
    if problems:
        told = [f"{listed(own)}: {text}" for text, own in _by_text(problems).items()]
        raise DrainError(f"{opened.pop.name}: not put back: {'; '.join(told)}")
    return refused


def _by_text(problems: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, text in problems.items():
        found.setdefault(text, []).append(name)
    return found


def _why_out(server: Server | None) -> str:
    """Why a host that was put back does not serve, or ""."""
    if server is None or server.lacking:
        return quarantine.why_lost(server)
    if server.unknown or server.is_back:
        return server.unknown
    if server.withdrawn or server.idle:
        return f"was put back, and the load balancer has it {in_service.why_out(server)}"
    return _SICK


def _not_back(
    opened: Rollout, driver: DrainDriver, work: Batch, names: Sequence[str]
) -> dict[str, str]:
    """By host that should serve again and does not, after the health deadline, why.

    One that got no requests before is not expected to, whatever kept them away. The last look alone
    is no evidence: a host that served in an earlier one is looked at again.
    """
    served = [name for name in names if in_service.was_serving(work.hosts[name].lb_before)]
    expected = {opened.pop.host(name).server: name for name in served}
    patience = opened.config.health_deadline
    began, sure = clock.monotonic(), min(patience, _SURE)
    since: dict[str, float] = {}
    while True:
        servers = driver.servers()
        now = clock.monotonic()
        missing = {
            name: why for own, name in expected.items() if (why := _why_out(servers.get(own)))
        }
        since = {name: since.get(name, now) for name in missing}
        seen_long = all(now - start >= sure for start in since.values())
        if not missing or now - began > patience + (0 if seen_long else 2 * sure):
            return missing
        clock.sleep(POLL)
        opened.permit()
