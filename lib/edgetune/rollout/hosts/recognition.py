# SPDX-License-Identifier: Apache-2.0
"""Before each batch: the machines that answer SSH are those of the plan.

The inventory or the load balancer may have changed since the plan was made. `identity` compares;
here hosts are asked, and those that turn out to be other machines fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgetune.base import clock
from edgetune.base.documents.batch import Batch
from edgetune.base.errors import DrainError, RefusedError
from edgetune.net.result import HostResult
from edgetune.net.traffic import DrainDriver, Server
from edgetune.rollout.hosts.change import revert_text, waits_for_revert
from edgetune.rollout.hosts.drain import POLL
from edgetune.rollout.hosts.identity import is_another
from edgetune.rollout.hosts.quarantine import fail_host, take_out_quarantined, why_lost
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record


def without_strangers(
    opened: Rollout, work: Batch, servers: Mapping[str, Server], names: Sequence[str]
) -> list[str]:
    """RefusedError when another machine than the plan saw answers for one of the hosts.

    In a rollback that host alone is quarantined. A silent one goes on, and is asked once more
    before anything is done to it.
    """
    back = work.batch_type == "restore"
    patience = 0 if back else opened.config.health_deadline
    answers = opened.ask(names, "facts", patience=patience)
    silent = {name: str(answer.error) for name, answer in answers.items() if answer.failed}
    wrong = _strangers(opened, work, servers, answers)
    wrong = wrong if back else {**silent, **wrong}
    _fail_strangers(opened, work, wrong)
    if wrong and not back:
        raise RefusedError("; ".join(f"{name}: {why}" for name, why in wrong.items()))
    return [name for name in names if name not in wrong]


def recognised(
    opened: Rollout, work: Batch, driver: DrainDriver, names: Sequence[str]
) -> list[str]:
    """Those of a rollback that answer as the plan's machines: some were silent before."""
    answers = opened.ask(names, "facts", patience=opened.config.health_deadline)
    _fail_strangers(opened, work, _strangers(opened, work, driver.servers(), answers))
    for name in work.at("draining"):
        answer = answers.get(name)
        if answer and answer.failed:
            if waits_for_revert(opened, work, answer):
                work.hosts[name].awaited = revert_text(work.hosts[name])
            else:
                fail_host(opened, work, name, str(answer.error))
    return [n for n in names if work.hosts[n].step == "draining" and not answers[n].failed]


def _strangers(
    opened: Record,
    work: Batch,
    servers: Mapping[str, Server],
    answers: Mapping[str, HostResult],
) -> dict[str, str]:
    """By host: why another machine than the plan saw answers for it.

    A board may be new on a host that a person has taken back by its name.
    """
    planned = dict(opened.plan.machines)
    for name in opened.head.only:
        if name in planned:
            planned[name] = replace(planned[name], uuid="")
    back = work.batch_type == "restore"
    found = {
        host.name: is_another(host, servers[host.server], planned.get(host.name), told.facts, back)
        for host, told in zip(opened.hosts([*answers]), answers.values())
        if host.server in servers and not told.failed
    }
    return {name: why for name, why in found.items() if why}


def _fail_strangers(opened: Rollout, work: Batch, wrong: Mapping[str, str]) -> None:
    """Nothing of ours is on another machine: whatever is done for the host leaves it alone."""
    for name, why in wrong.items():
        work.hosts[name].go("planned")
        fail_host(opened, work, name, why)
    if wrong:
        opened.save_batch(work)


def without_lost(
    opened: Rollout, work: Batch, driver: DrainDriver, names: Sequence[str]
) -> list[str]:
    """In a rollback, a host that the load balancer lost stops nobody else: it is quarantined."""
    lost = _lost(opened, driver, names) if work.batch_type == "restore" else {}
    for name, why in lost.items():
        fail_host(opened, work, name, why)
    if lost:
        opened.save_batch(work)
        take_out_quarantined(opened, work)
    return [name for name in names if name not in lost]


def _lost(opened: Rollout, driver: DrainDriver, names: Sequence[str]) -> dict[str, str]:
    """Hosts that the load balancer's whole list lacks in every look for ``health_deadline``, and
    why; with several load balancers, that the list of one lacks.

    DrainError if it knows none of the PoP's hosts: that says something of the load balancer.
    """
    deadline = clock.monotonic() + opened.config.health_deadline
    lost = dict.fromkeys(names, "")
    while True:
        servers = driver.servers()
        if not any(host.server in servers for host in opened.pop.hosts):
            raise DrainError(f"{opened.pop.name}: the load balancer knows none of its hosts")
        whys = {host.name: why_lost(servers.get(host.server)) for host in opened.hosts([*lost])}
        lost = {name: why for name, why in whys.items() if why}
        if not lost or clock.monotonic() > deadline:
            return lost
        clock.sleep(POLL)
        opened.permit()
