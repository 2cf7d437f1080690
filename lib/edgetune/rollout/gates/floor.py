# SPDX-License-Identifier: Apache-2.0
"""Why a batch may not begin now: a freeze, a pause, a surge, or the floor of its PoP.

No drain leaves fewer hosts in service than ``min_in_service`` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgetune.base import clock
from edgetune.base.dataclass import dataclass
from edgetune.base.documents.batch import SETTLED_STEPS, UNTOUCHED_STEPS, Batch
from edgetune.base.errors import RefusedError
from edgetune.base.names import listed
from edgetune.net.traffic import DrainDriver, Server
from edgetune.rollout.evidence.sampling import surge_of
from edgetune.rollout.gates import pause as gate
from edgetune.rollout.gates.freeze import why_frozen
from edgetune.rollout.hosts.drain import POLL, known_servers
from edgetune.rollout.hosts.in_service import hosts_in_service, needs_room, put_back
from edgetune.rollout.hosts.silencing import keep_silenced
from edgetune.rollout.ownership.lease import Rollout
from edgetune.rollout.record.rollout import Record


def with_room(opened: Record, driver: DrainDriver, work: Batch, names: Sequence[str]) -> list[str]:
    """As many as the PoP has room for by now: it may have lost hosts since the batch was planned.

    All of them where there is no room at all and nothing else to do: they have to wait for it.
    """
    servers = driver.servers()
    room = max(0, len(hosts_in_service(opened.pop, servers)) - opened.pop.must_serve)
    serving = [name for name in names if name in needs_room(opened.pop, servers)]
    last = serving[room:]
    for number, name in enumerate(serving[1:room], 1):
        if why_too_many(opened, servers, [*serving[:number], name]):
            last = serving[number:]
            break
    go_on = room > 0 or others_go_on(work, last)
    return [name for name in names if not (go_on and name in last)]


def wait_for_room(
    opened: Rollout, driver: DrainDriver, names: Sequence[str], patient: bool
) -> Mapping[str, Server]:
    """The servers, once enough others serve; hosts that serve nothing need no room."""
    deadline = clock.monotonic() + (opened.config.health_deadline if patient else 0)
    while True:
        servers = known_servers(opened, driver, names)
        serving = hosts_in_service(opened.pop, servers)
        left = len(serving - set(names))
        if left >= opened.pop.must_serve or not needs_room(opened.pop, servers) & set(names):
            return servers
        if clock.monotonic() >= deadline:
            raise RefusedError(
                f"{opened.pop.name}: draining {', '.join(names)} would leave {left} hosts in "
                f"service, {opened.pop.must_serve} must stay"
            )
        clock.sleep(POLL)
        opened.permit()


def why_too_many(opened: Record, servers: Mapping[str, Server], names: Sequence[str]) -> str:
    """Why these hosts may not be drained at once: what fails together would be out, and another
    such group beside it; nothing where they may."""
    pop = opened.pop
    serving = hosts_in_service(pop, servers)
    out = [host.name for host in pop.hosts if host.name not in serving and host.name not in names]
    group = pop.takes_too_many(out, names)
    text = f"{pop.name}: without {listed(names)} all of {group} would be out, which fail together"
    return f"{text}, and others beside" if group else ""


def give_room_back(opened: Rollout, driver: DrainDriver, work: Batch, served: Sequence[str]) -> str:
    """Somebody else may have drained hosts at the same moment: then ours go back, and wait."""
    left = len(hosts_in_service(opened.pop, driver.servers()))
    if left >= opened.pop.must_serve or not served:
        return ""
    for host in opened.hosts(served):
        opened.permit()
        put_back(driver, host.server, work.hosts[host.name].lb_before)
        work.hosts[host.name].lb_before, work.hosts[host.name].out_at = None, 0.0
    opened.move(work, served, "planned")
    keep_silenced(opened, work)
    names = ", ".join(served)
    return f"{names} went back: {left} hosts in service, {opened.pop.must_serve} must stay"


def others_go_on(work: Batch, names: Sequence[str]) -> bool:
    """Whether a rollback can bring hosts back that are out of service, while these serve on."""
    others = [name for name in work.hosts if name not in (*names, *work.at(*SETTLED_STEPS))]
    return work.batch_type == "restore" and bool(others)


# Seconds between two tries where there is no room; a pause may last for a night, a freeze for days,
# and a person whom the plan waits for may be away as long.
_LONG = 3600
_SOON, _PAUSED, _AWAITED = (15, 60), (60, 60), (60, _LONG)


@dataclass(frozen=True)
class Held:
    """Why a batch may not begin now, and until what; tried again within these seconds."""

    why: str
    until: str = ""
    least: int = _SOON[0]
    most: int = _SOON[1]
    paused: bool = False


def held_up(opened: Record, work: Batch) -> Held | None:
    """What keeps a batch from beginning, apart from room and surges; None if nothing does.

    What was begun is finished, and what goes back goes back.
    """
    begun = len(work.at(*UNTOUCHED_STEPS)) < len(work.hosts)
    if work.batch_type == "restore" or not work.at("planned") or begun:
        return None
    gate.pause_as_planned(opened, work.number)
    frozen = why_frozen(opened.context, opened.head)
    if frozen:
        return Held(f"{frozen}; no further batch begins", "", _LONG, _LONG)
    pop = opened.head.pop
    pauses = gate.standing_pauses(gate.pauses_of(opened.context, pop))
    # An execution that asks is not paused, whatever the sweep saw of it a minute ago.
    pauses.pop(gate.EXECUTION, None)
    text = f"{gate.pause_text(pop, pauses)}; no further batch begins"
    goes_on = f"{' and '.join(gate.ways_on(pop, pauses))} lets it go on"
    span = _AWAITED if gate.PLANNED in pauses else _PAUSED
    return Held(text, goes_on, *span, paused=True) if pauses else None


def held_by_surge(opened: Record, serving: Sequence[str]) -> Held | None:
    """The same of hosts that serve, while the PoP carries far more than usual."""
    surge = surge_of(opened) if serving else ""
    calm = f"it carries at most {opened.config.surge_factor:g} times its usual load"
    return Held(surge, calm) if surge else None


def held_by_twins(opened: Record, why: str) -> Held:
    """The same where PoPs that take each other's traffic need the hosts, or change their own."""
    twins = listed(opened.pop.backs_up)
    both = f"no batch of {twins} is under way, and enough hosts serve over both"
    return Held(why, both)


def held_by_group(
    opened: Record, servers: Mapping[str, Server], names: Sequence[str]
) -> Held | None:
    """The same where hosts that fail together would be out beside others that do."""
    why = why_too_many(opened, servers, names)
    apart = "another host of these serves, or those beside do"
    return Held(why, apart) if why else None


def held_by_floor(opened: Record, why: str) -> Held:
    """The same where too few others would serve."""
    room = f"more than {opened.pop.must_serve} hosts are in service"
    return Held(why, room)
