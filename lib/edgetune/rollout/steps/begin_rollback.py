# SPDX-License-Identifier: Apache-2.0
"""Begin to take a rollout back under its epoch: which hosts that visits, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from edgetune.base import clock
from edgetune.base.documents.batch import UNTOUCHED_STEPS, Batch, HostStep
from edgetune.base.documents.head import CHANGES_HOSTS, Head
from edgetune.base.documents.words import Decision
from edgetune.base.errors import AWAY, InputError, RefusedError, SourceError
from edgetune.base.names import listed
from edgetune.judge.limits import sickness
from edgetune.net.bmc.answers import SHUTDOWN
from edgetune.rollout.context import Context
from edgetune.rollout.evidence.soak import usual_health
from edgetune.rollout.gates.pause import lift_bound
from edgetune.rollout.hosts.in_service import hosts_in_service, needs_room
from edgetune.rollout.hosts.weights import end_measuring
from edgetune.rollout.ownership import lease
from edgetune.rollout.ownership.lease import BatchesResult, Rollout
from edgetune.rollout.record.rollout import Record, failures_text, under_way

_BACK = ("rebooted", "verified", "undraining")
_REBOOTED_SINCE = ("rebooting", *_BACK, "done", "quarantined")
# Every load balancer was seen to send it nothing, and none was told to since.
_OUT = ("drained", "changing", "changed", "rebooting", "coming_back", "rebooted", "verified")
# How far back samples tell how a host does now, in intervals.
_RECENT = 3


def plan_restore(opened: Rollout) -> None:
    """Write the batches of a rollback: hosts out of service first, then the sickest first, within
    ``min_in_service``. With the head's ``only`` no other host is visited."""
    touched, only = _touched(opened), opened.head.only
    if only:
        touched = {name: touched[name] for name in only if name in touched}
    out, serving, in_service, away = _by_service(opened, list(touched))
    spare = max(1, in_service - opened.pop.must_serve)
    if not opened.drains:
        spare = max(1, len(serving))
    # Those that need not wait for a load balancer that is away: see `drain.reachable`.
    first = [name for name in out if away and touched[name].was_out]
    groups = [each for each in (first, [name for name in out if name not in first]) if each]
    groups += [serving[start : start + spare] for start in range(0, len(serving), spare)]
    planned = len(opened.plan.every_batch)
    opened.head.first_restore = planned + opened.head.restore_batches
    for number, names in enumerate(groups, opened.head.first_restore):
        hosts = {name: touched[name] for name in names}
        opened.save_batch(Batch(opened.head.id, number, "restore", "", hosts))
    opened.head.restore_batches += len(groups)
    for name in touched:
        opened.head.quarantined.pop(name, None)


def carrying(opened: Record) -> list[str]:
    """The hosts that carry the change of a rollout."""
    return [name for name, host in _touched(opened).items() if host.ours]


def _touched(opened: Record) -> dict[str, HostStep]:
    """Every host that is not wholly as it was, with where its way back begins."""
    touched: dict[str, HostStep] = {}
    for batch in opened.batches():
        for name, host in batch.hosts.items():
            if host.step == "done" and batch.batch_type != "change":
                touched.pop(name, None)
            elif host.step not in UNTOUCHED_STEPS:
                step = _left_at(opened, name, host)
                touched[name] = _way_back(opened, batch, host, step, touched.get(name))
            # What an earlier rollback planned and never reached is as touched as it was before.
    return touched


def _left_at(opened: Record, name: str, host: HostStep) -> str:
    """Its step; one that its BMC shut down and that was quarantined is to be turned on yet."""
    if host.step == "quarantined" and SHUTDOWN in host.resets:
        why = opened.head.quarantined.get(name)
        return (why.step if why else None) or host.step
    return host.step


def _way_back(
    opened: Record, batch: Batch, host: HostStep, step: str, earlier: HostStep | None
) -> HostStep:
    mid_reboot = step in ("rebooting", "coming_back")
    # What an earlier rollback has restored already only has to come back.
    restored = batch.batch_type == "restore" and step == "rebooting"
    changed = batch.batch_type == "change" and host.step in ("changed", *_REBOOTED_SINCE)
    # Those of a batch that was planned for its way back stay out until they are put back.
    stayed = host.was_out and host.step in ("planned", "draining")
    return HostStep(
        step=step if restored else "coming_back" if mid_reboot else "planned",
        at=host.at if mid_reboot else 0.0,
        reboot=_must_reboot(opened, batch, host, earlier),
        ours=host.ours or changed or bool(earlier and earlier.ours),
        lb_before=None if host.step == "done" else host.lb_before,
        out_at=0.0 if host.step == "done" else host.out_at,
        boot_before=host.boot_before,
        resets=host.resets if mid_reboot else [],
        refused=host.refused if mid_reboot else {},
        goes_back_to=host.goes_back_to,
        reverts_at=host.reverts_at,
        was_out=host.lb_before is not None and (host.step in _OUT or stayed),
    )


def _must_reboot(opened: Record, batch: Batch, host: HostStep, earlier: HostStep | None) -> bool:
    """Whether it may have booted with our change, and not since without it."""
    if batch.batch_type == "restore":
        return host.reboot and host.step not in _BACK
    booted = batch.batch_type == "change" and host.step in _REBOOTED_SINCE
    asked = opened.plan.reboots
    return (asked and booted) or bool(earlier and earlier.reboot)


def _by_service(opened: Record, names: Sequence[str]) -> tuple[list[str], list[str], int, str]:
    """Those out of service, those in service (the sickest first), how many of the PoP are, and
    why one of several load balancers did not tell."""
    if not opened.drains or not names:
        return [], _sickest_first(opened, names), len(opened.pop.hosts), ""
    driver, away = opened.context.load_balancer(opened.pop).answering()
    servers = driver.servers()
    needing = needs_room(opened.pop, servers)
    serving = [name for name in names if name in needing]
    out = [name for name in names if name not in serving]
    in_service = len(hosts_in_service(opened.pop, servers))
    return out, _sickest_first(opened, serving), in_service, away


def _sickest_first(opened: Record, names: Sequence[str]) -> list[str]:
    if not opened.head.baseline or len(names) < 2:
        return list(names)
    samples, pop, now = opened.context.samples, opened.head.pop, clock.wall()
    try:
        usual = usual_health(opened)
        recent = samples.window(pop, now - _RECENT * opened.plan.options.interval, now)
    except (RefusedError, SourceError):
        # It is good for the order only.
        return list(names)
    latest = recent.latest_gauges()
    return sorted(names, key=lambda name: sickness(latest.get(name), usual.get(name)), reverse=True)


def begin_rollback(
    context: Context,
    rollout: str,
    epoch: int,
    owner: str = "",
    requested_by: str = "",
    reason: str = "",
    hosts: Sequence[str] = (),
) -> BatchesResult:
    """Decide that a workflow takes its rollout back, plan its batches, and say which these are.

    Of two callers with the same epoch one wins, the other gets FencedError. Nothing is taken back
    because a store is away: RefusedError, and the rollout is carried on once the store is there
    again. A rollback that is under way goes on where it stands.
    """
    if AWAY in reason:
        raise RefusedError(f"{reason}; nothing is taken back for that, recover_orphans goes on")
    return roll_back(context, rollout, epoch, owner, requested_by, reason, hosts)


def roll_back(
    context: Context,
    rollout: str,
    epoch: int,
    owner: str,
    requested_by: str,
    reason: str,
    hosts: Sequence[str],
) -> BatchesResult:
    """The same, whatever the reason. With ``hosts`` the rollback visits no other host."""
    opened = lease.open_rollout(context, rollout, epoch)
    head, before = opened.head, opened.head.state
    refuse_hosts(head, hosts)
    end_measuring(opened, patient=False)
    why = _with_hosts_under_way(opened, reason or _what_failed(opened) or "asked for")
    lease.enter_state(opened, "rolling_back", owner, requested_by, why)
    if before in CHANGES_HOSTS:
        head.taken_over = clock.now()
    if before != "rolling_back":
        head.only = list(hosts)
    # Decided from here on, even if the load balancer is away and nothing can be planned yet.
    opened.save()
    lift_bound(context, head.pop, rollout, requested_by)
    plan_restore(opened)
    opened.save()
    return lease.batches_result(opened, f"{head.state}: {head.history[-1].told}")


def refuse_hosts(head: Head, hosts: Sequence[str]) -> None:
    """Single hosts are visited only once all others are back: RefusedError, or InputError."""
    if hosts and head.state != "rolled_back":
        text = "single hosts are visited only once it is rolled_back"
        raise RefusedError(f"rollout {head.id} is {head.state}; {text}")
    for name in hosts:
        if name not in head.quarantined:
            raise InputError("parameter", "hosts", f"{name} has nothing to be taken back")


def _with_hosts_under_way(opened: Record, reason: str) -> str:
    """A step that did not end, or an aborted one, names no host: its batch tells them."""
    try:
        hosts = dict(under_way(opened.batches()))
    except RefusedError:
        # What cannot be read keeps nobody from deciding to take it back.
        return reason
    told = [f"{name} ({host.step})" for name, host in hosts.items()]
    named = not told or any(name in reason for name in hosts)
    return reason if named else f"{reason}; under way: {listed(told)}"


def _what_failed(opened: Record) -> str:
    failed = list(failures_text(opened))
    if failed:
        return "; ".join(failed[:3])
    verdict = opened.head.verdict
    return verdict.reason if verdict and verdict.decision is Decision.ROLL_BACK else ""
