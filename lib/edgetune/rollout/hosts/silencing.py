# SPDX-License-Identifier: Apache-2.0
"""Alerts of hosts that a batch has out of service are silenced, and of no others.

Alertmanager keeps the silences. The record of the batch says whose alerts may be silent, written
before Alertmanager is asked, so that what a stopped step left is renewed or ended by the next one.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgetune import PACK
from edgetune.base import clock
from edgetune.base.documents.batch import SETTLED_STEPS, Batch, Silence
from edgetune.base.names import listed
from edgetune.rollout.context import Context
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record
from edgetune.site.inventory import Host, Pop

_RENEWED = 0.1
"""The part of its bound after which a silence is renewed, and a failure tried again."""
_FAILED = "alerts of hosts are not silenced: "


def keep_silenced(opened: Rollout, work: Batch) -> None:
    """Silence the batch's hosts that are out of service, and end what silenced the others.

    Alertmanager is asked when hosts leave or come back, and to renew. After a failure it is asked
    again when a silence would be renewed. The record says why it failed, the history says it once,
    and no step fails for it.
    """
    before, out = work.silence or Silence(), _out_of_service(work)
    hosts = sorted({*out, *before.hosts})
    if not opened.config.alertmanager.url or not hosts or not _is_due(opened, before, out):
        return
    if hosts != before.hosts:
        work.silence = Silence(hosts, 0.0, before.problem)
        opened.save_batch(work)
    problem = _ask(opened, hosts, out)
    work.silence = Silence(hosts if problem else out, clock.wall(), problem)
    opened.save_batch(work)
    if problem and not any(entry.reason.startswith(_FAILED) for entry in opened.head.history):
        opened.head.note(PACK, f"{_FAILED}{problem}")
        opened.save()


def silence_text(work: Batch) -> str:
    """Why alerts of a batch are not silenced as they should be, or ""."""
    return f"{_FAILED}{work.silence.problem}" if work.silence and work.silence.problem else ""


def _out_of_service(work: Batch) -> list[str]:
    """Hosts that the batch has taken out and not given back.

    A quarantined one is none of them: it waits for a person, who may learn of it by its alerts.
    """
    hosts = work.hosts.items()
    return sorted(n for n, h in hosts if h.lb_before is not None and h.step not in SETTLED_STEPS)


def _is_due(opened: Record, before: Silence, out: Sequence[str]) -> bool:
    age = clock.wall() - before.at
    # A clock that was set back makes it negative.
    is_recent = 0 <= age < _RENEWED * opened.config.alertmanager.bound
    return not is_recent or (list(out) != before.hosts and not before.problem)


def _ask(opened: Record, hosts: Sequence[str], out: Sequence[str]) -> str:
    """Have exactly those that are ``out`` of these hosts silenced; "", or why they are not."""
    # Most sites have none, and HTTP and TLS are half of what a step would import.
    from edgetune.net.silences import Wanted, keep_silences

    settings, pop = opened.config.alertmanager, opened.pop
    # One may have left the inventory since.
    known = [host for host in pop.hosts if host.name in hosts]
    problem = shared_matchers(opened.context, pop, known)
    if problem or not known:
        return problem
    silent = f"edgetune has it out of service in rollout {opened.head.id}"
    wanted = [
        Wanted(
            settings.matchers_of(pop.name, host.name, host.address),
            f"{host.name}: {silent}" if host.name in out else "",
        )
        for host in known
    ]
    return keep_silences(settings, opened.head.id, wanted)


def shared_matchers(context: Context, pop: Pop, hosts: Sequence[Host]) -> str:
    """Which hosts have the same alerts as one of these, so that a silence of one would silence
    the other; "" if none has."""
    settings, inventory = context.config.alertmanager, context.known_inventory

    def alerts_of(pop: Pop, host: Host) -> tuple[str, ...]:
        return tuple(settings.matchers_of(pop.name, host.name, host.address).values())

    named: dict[tuple[str, ...], list[str]] = {alerts_of(pop, host): [] for host in hosts}
    for each in map(inventory.pop, inventory.pop_names()):
        for host in each.hosts:
            if alerts_of(each, host) in named:
                named[alerts_of(each, host)].append(f"{each.name}/{host.name}")
    shared = next((names for names in named.values() if len(names) > 1), None)
    return f"{listed(shared)} have the same alertmanager.matchers" if shared else ""
