# SPDX-License-Identifier: Apache-2.0
"""Have BMCs restart hosts that do not reboot themselves, in the ways that the plan shows of each.

Such a host answers from the same boot, so it is in no POST. Where the way was a shutdown, the host
is turned on once its BMC says that it is off. A host that a boot of another kernel silences answers
nobody, or by SSH alone; its BMC then has to say that it is past POST. Each way is written down
before it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Callable

from edgetune.base import clock
from edgetune.base.documents.batch import Batch, HostStep
from edgetune.base.errors import EdgetuneError
from edgetune.net.bmc.answers import ON, SHUTDOWN
from edgetune.net.bmc.payload import BmcError
from edgetune.net.result import HostResult
from edgetune.rollout.hosts.bios import machine_of
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record
from edgetune.site.inventory import Host

TIMEOUT = 20
# Seconds between two looks at hosts that boot.
LOOK = (2, 30)
# What a BMC answers that did nothing, and may do it when it is asked again.
_LATER = ("busy", "unreachable", "garbage", "tls")
# What it answers that did nothing, and will not do it. "failed" is a request that it turned down.
_NEVER = ("refused", "failed")
# What comes of a host whose boot went wrong: nothing, or what no agent says where none can run.
_SILENT = ("unreachable", "garbage")
# How often a machine is turned on that stays off.
_MOST_ON = 2
# A host that answers from the same boot is in no POST. Its BMC may say so for as many times the
# patience with a host that was told to reboot; then it is believed no more.
_POST_BELIEVED = 2


def restart(opened: Rollout, work: Batch, names: Sequence[str]) -> list[str]:
    """Ask the BMCs of hosts that still answer from the same boot, each way once; whom it asked.

    These have their time from now. A way that a BMC refuses is left for the next one at once, and
    all of them where it refuses our login: it would be locked.
    """
    ways = {name: way for name in names for way in _next_way(opened, work, name)}
    if not ways:
        return []
    told_at = {name: work.hosts[name].at for name in ways}

    def request(host: Host) -> dict[str, object]:
        # The others of the batch took their time: it may be in POST by now.
        answer = opened.ask([host.name], "facts", timeout=TIMEOUT)[host.name]
        if answer.failed or is_back(work, answer):
            raise BmcError("busy", "the host is on its way by now")
        waited = clock.now() - told_at[host.name]
        return {
            "os_answers": True,
            "disbelieve_post": waited > _POST_BELIEVED * _patience(opened),
            "machine": vars(answer.facts.machine),
        }

    idle = _send(opened, work, ways, request)
    refused = [name for name, answer in idle.items() if answer.reason in _NEVER]
    return [*(name for name in ways if name not in idle), *restart(opened, work, refused)]


def rescue(opened: Rollout, work: Batch, silent: Mapping[str, HostResult]) -> list[str]:
    """Have hosts restarted that hang in the first boot of a kernel, each way once; who has time.

    Their next boot is of the old kernel. Each way has the time of a boot, as the one that hangs
    had: a host without a network heeds the gentle way. A BMC that is away is waited for as long.
    """
    deadline = opened.config.reboot_deadline
    # Who takes a rollout over gives its hosts their time anew.
    waited = {
        name: clock.now() - max(work.hosts[name].at, opened.head.taken_over) for name in silent
    }
    hopeful = {
        name: way
        for name, answer in silent.items()
        if answer.reason in _SILENT and opened.plan.tries_a_boot(name)
        for way in _untried(opened, work, name)
    }
    # One that was told long before a take-over is not given up before it was reset.
    early = [name for name in hopeful if waited[name] <= deadline]
    ways = {name: way for name, way in hopeful.items() if name not in early}
    if not ways:
        return early
    idle = _send(opened, work, ways, lambda host: {"os_answers": False})
    refused = {name: silent[name] for name, answer in idle.items() if answer.reason in _NEVER}
    away = [name for name, answer in idle.items() if answer.reason in _LATER]
    waiting = [name for name in away if waited[name] <= 2 * deadline]
    asked = [name for name in ways if name not in idle]
    return [*early, *asked, *waiting, *rescue(opened, work, refused)]


def _send(
    opened: Rollout,
    work: Batch,
    ways: Mapping[str, str],
    request: Callable[[Host], Mapping[str, object]],
) -> dict[str, HostResult]:
    """Ask BMCs for these resets, which are written down before; the answers that did nothing.

    The hosts of the others have their time from now.
    """
    opened.permit()
    told_at = {name: work.hosts[name].at for name in ways}
    asked: set[str] = set()

    def full_request(host: Host) -> dict[str, object]:
        own = request(host)
        asked.add(host.name)
        return {
            "kind": ways[host.name],
            "system": machine_of(opened, host.name),
            "known": _known(opened, host.name),
            **own,
        }

    def leave(names: Iterable[str]) -> None:
        for name in names:
            work.hosts[name].resets.remove(ways[name])
            work.hosts[name].at = told_at[name]
        opened.save_batch(work)

    for name, way in ways.items():
        work.hosts[name].resets.append(way)
        work.hosts[name].at = clock.now()
    opened.save_batch(work)
    try:
        answers = opened.ask_bmcs(list(ways), "reset", full_request)
    except EdgetuneError:  # it is no longer permitted
        leave(set(ways) - asked)
        raise
    idle = {n: a for n, a in answers.items() if a.reason in (*_LATER, *_NEVER, "auth")}
    for name, answer in idle.items():
        if answer.reason not in _LATER:
            _refuse(opened, work.hosts[name], ways[name], answer)
    leave(idle)
    return idle


def _refuse(opened: Record, host: HostStep, way: str, answer: HostResult) -> None:
    """Write down that the way is none, nor is any that was not tried where our login is refused."""
    shown = opened.plan.restarts.get(answer.host)
    untried = shown.resets if shown and answer.reason == "auth" else []
    left = [way, *(other for other in untried if other not in host.resets)]
    host.refused.update(dict.fromkeys(left, str(answer.error)))


def turn_on(opened: Rollout, work: Batch, names: Sequence[str]) -> list[str]:
    """Turn hosts on that their BMCs shut down for us and that are off by now; whom it turned on.

    These have their time from the first time on. A machine that is off for sure, and stays off,
    can be turned on once more.
    """
    off = [name for name in names if _was_shut_down(opened, work.hosts[name])]

    def request(host: Host) -> dict[str, object]:
        return {"kind": ON, "os_answers": False, "known": _known(opened, host.name)}

    answers = opened.ask_bmcs(off, "reset", request)
    turned = []
    for name, answer in answers.items():
        host = work.hosts[name]
        if answer.reason in (*_NEVER, "auth"):
            host.refused[ON] = str(answer.error)
        elif answer.reason not in _LATER:
            turned.append(name)
            host.at = host.at if ON in host.resets else clock.now()
            host.resets.append(ON)
    return turned


def _was_shut_down(opened: Record, host: HostStep) -> bool:
    """Whether we shut it down last, and it is to be turned on: again after its time for that."""
    ways = [reset for reset in host.resets if reset != ON]
    if ways[-1:] != [SHUTDOWN] or ON in host.refused:
        return False
    waited = clock.now() - host.at
    tried = host.resets.count(ON)
    return not tried or (tried < _MOST_ON and waited > _patience(opened))


def _next_way(opened: Record, work: Batch, name: str) -> list[str]:
    """The way in which it is to be restarted now, if there is one left."""
    return _untried(opened, work, name) if _heard_us(opened, work.hosts[name]) else []


def _untried(opened: Record, work: Batch, name: str) -> list[str]:
    """The gentlest way that its BMC was not asked for, if there is one left."""
    host = work.hosts[name]
    if not opened.pop.host(name).bmc:
        return []
    # The plan of an earlier version shows nothing.
    shown, tried = opened.plan.restarts.get(name), (*host.resets, *host.refused)
    return [way for way in (shown.resets if shown else ()) if way not in tried][:1]


def _known(opened: Record, name: str) -> dict[str, str]:
    """The machine that its BMC had when the plan was made: ``{system, serial, sku}``."""
    shown = opened.plan.restarts.get(name)
    return shown.machine if shown else {}


def _heard_us(opened: Record, host: HostStep) -> bool:
    """Whether it was told by us, long enough ago, to reboot itself."""
    told = host.step == "rebooting" and host.at > opened.head.taken_over
    return told and clock.now() - host.at > _patience(opened)


def _patience(opened: Record) -> float:
    """Seconds in which a host that was told to reboot itself may go on answering."""
    return min(opened.config.reset_after, opened.config.reboot_deadline)


def asked_for(host: HostStep) -> str:
    """What its BMC did for it, and what it refused."""
    asked = f", though its BMC was asked for {', then '.join(host.resets)}" if host.resets else ""
    ways: dict[str, list[str]] = {}
    for way, why in host.refused.items():
        ways.setdefault(why, []).append(way)
    refused = [f"its BMC refused {', '.join(own)}: {why}" for why, own in ways.items()]
    return "; ".join([asked, *refused])


def is_back(work: Batch, answer: HostResult) -> bool:
    """Whether a host answers from another boot than the one that it was told to leave."""
    return not answer.failed and answer.boot_id != work.hosts[answer.host].boot_before
