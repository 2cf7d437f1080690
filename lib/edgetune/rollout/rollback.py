# SPDX-License-Identifier: Apache-2.0
"""Which hosts a rollback has to visit, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from edgetune.rollout.record import UNTOUCHED_STEPS, Batch, HostStep, Rollout

_REBOOTED_SINCE = ("rebooting", "rebooted", "verified", "undraining", "done", "quarantined")


def plan_restore(opened: Rollout) -> None:
    """Write the batches of a rollback: hosts out of service first, the rest under the floor."""
    touched = _touched(opened)
    out, serving, in_service = _by_service(opened, list(touched))
    spare = max(1, in_service - opened.pop.must_serve)
    if opened.plan["disruption"] == "live":
        spare = max(1, len(serving))
    groups = [out] if out else []
    groups += [serving[start : start + spare] for start in range(0, len(serving), spare)]
    planned = len(opened.plan["batches"]) + len(opened.plan["promote_batches"])
    opened.head.first_restore = planned + opened.head.restore_batches
    for number, names in enumerate(groups, opened.head.first_restore):
        hosts = {name: touched[name] for name in names}
        opened.save_batch(Batch(opened.head.id, number, "restore", "", hosts))
    opened.head.restore_batches += len(groups)
    opened.head.quarantined = {}


def _touched(opened: Rollout) -> dict[str, HostStep]:
    """Every host that is not wholly as it was, with where its way back begins."""
    touched: dict[str, HostStep] = {}
    for batch in opened.batches():
        for name, host in batch.hosts.items():
            if host.step == "done" and batch.what != "change":
                touched.pop(name, None)
            elif host.step not in UNTOUCHED_STEPS:
                touched[name] = _way_back(opened, batch, host, touched.get(name))
            # What an earlier rollback planned and never reached is as touched as it was before.
    return touched


def _way_back(opened: Rollout, batch: Batch, host: HostStep, earlier: HostStep | None) -> HostStep:
    mid_reboot = host.step in ("rebooting", "coming_back")
    reboots = opened.plan["disruption"] == "reboot" and batch.what != "sham"
    return HostStep(
        step="coming_back" if mid_reboot else "planned",
        at=host.at if mid_reboot else 0.0,
        reboot=reboots and (host.step in _REBOOTED_SINCE or bool(earlier and earlier.reboot)),
        ours=_carries_our_change(batch, host) or bool(earlier and earlier.ours),
        lb_before=None if host.step == "done" else host.lb_before,
        boot_before=host.boot_before,
    )


def _carries_our_change(batch: Batch, host: HostStep) -> bool:
    return batch.what == "change" and host.step in ("changed", *_REBOOTED_SINCE)


def _by_service(opened: Rollout, names: Sequence[str]) -> tuple[list[str], list[str], int]:
    """Those out of service, those in service, and how many of the PoP are."""
    if opened.plan["disruption"] == "live" or not names:
        return [], list(names), len(opened.pop.hosts)
    servers = opened.site.load_balancer(opened.pop).servers()
    all_serving = [
        host.name
        for host in opened.pop.hosts
        if host.server in servers and servers[host.server].in_service
    ]
    serving = [name for name in names if name in all_serving]
    return [name for name in names if name not in serving], serving, len(all_serving)
