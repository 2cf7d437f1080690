# SPDX-License-Identifier: Apache-2.0
"""Tells hosts a configuration: one of them first, then the others, and reads it back from each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Callable

from edgetune.base.dataclass import dataclass
from edgetune.base.documents.congestion import Configuration
from edgetune.base.documents.host import CongestionAnswer
from edgetune.site.inventory import Host

if TYPE_CHECKING:
    from edgetune.net.hosts.fleet import Fleet
    from edgetune.net.result import HostResult

_TIMEOUT = 120.0
_MOST_SKIPPED = 0.5


@dataclass(frozen=True)
class Pushed:
    """Which hosts have the configuration now, and why others have not, by their names.

    ``skipped`` are prefixes that some host has no route of ours for, with its reason. What stood
    on a host that has an error stands there still, until its time is up.
    """

    done: Sequence[str]
    errors: Mapping[str, str]
    skipped: Mapping[str, str]


def push(
    fleet: Fleet,
    hosts: Sequence[Host],
    configuration: Configuration,
    epoch: int,
    permit: Callable[[], None],
) -> Pushed:
    """Tell the first of the hosts, and the others only if that one has it.

    One without prefixes takes all of it back, and is told to all hosts, whatever the first one
    says. ``permit`` is asked before each side effect; it raises where that may not be.
    """
    permit()
    canary = _tell(fleet, hosts[:1], configuration, epoch)
    if canary.errors and configuration.prefixes:
        reason = f"not told: {hosts[0].name}, the first one, does not have it"
        return Pushed((), {**dict.fromkeys((h.name for h in hosts), reason), **canary.errors}, {})
    permit()
    rest = _tell(fleet, hosts[1:], configuration, epoch)
    return Pushed(
        (*canary.done, *rest.done),
        {**canary.errors, **rest.errors},
        {**rest.skipped, **canary.skipped},
    )


def renew(
    fleet: Fleet,
    hosts: Sequence[Host],
    configuration: Configuration,
    epoch: int,
    permit: Callable[[], None],
) -> Pushed:
    """Tell all hosts at once what the first one has: one that is away holds up no other."""
    permit()
    return _tell(fleet, hosts, configuration, epoch)


def _tell(fleet: Fleet, hosts: Sequence[Host], configuration: Configuration, epoch: int) -> Pushed:
    request = {"configuration": configuration.document(), "epoch": epoch}
    told = fleet.ask(hosts, "congestion", lambda host: request, timeout=_TIMEOUT)
    problems = {name: _problem(own, configuration) for name, own in told.items()}
    done = [name for name, problem in problems.items() if not problem]
    skipped: dict[str, str] = {}
    for name in done:
        skipped.update(told[name].read(CongestionAnswer).skipped)
    return Pushed(done, {name: own for name, own in problems.items() if own}, skipped)


def _problem(answer: HostResult, wanted: Configuration) -> str:
    """Why a host does not have it, "" if it does."""
    if answer.error is not None:
        return answer.error
    own = answer.read(CongestionAnswer)
    if not wanted.prefixes:
        return "" if own.prefixes == 0 else f"{own.prefixes} prefixes are still treated"
    if (own.number, own.checksum) != (wanted.number, wanted.checksum):
        return f"has configuration {own.number} ({own.checksum}), not {wanted.number}"
    if not own.kept:
        return "nothing keeps its routes"
    if len(own.skipped) > _MOST_SKIPPED * len(wanted.prefixes):
        prefix, reason = next(iter(own.skipped.items()))
        many = f"{len(own.skipped)} of {len(wanted.prefixes)} prefixes have no route"
        return f"{many}, such as {prefix}: {reason}"
    return ""
