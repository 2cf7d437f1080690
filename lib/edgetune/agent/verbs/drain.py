# SPDX-License-Identifier: Apache-2.0
"""``drain``: take this host out of traffic by itself, or tell how it stands."""

from edgetune.agent.drains import DRAINS, open_drain
from edgetune.agent.host import Host, room_or_not
from edgetune.agent.protocol import Failed, Json, Request
from edgetune.agent.verbs.sessions import sessions

WORD = "([a-z][a-z_]{0,39})?"


def run(host: Host, request: Request) -> Json:
    """``do`` is ``look``, ``withdraw``, ``isolate`` or ``restore``, by a way of DRAINS.

    The answer tells how the host stands after that. ``sessions`` counts what is open on ``ports``,
    and is null where there are none: nobody can tell then. A changed state that does not show is
    Failed; a look needs no epoch. A full disk stops no change where an epoch was seen before.
    """
    epoch = request.epoch()
    by = request.text("by", "|".join(DRAINS))
    do = request.text("do", "look|withdraw|isolate|restore")
    wanted = request.text("withdrawn", WORD)
    ports = request.wholes("ports", 1, 65535)
    drain = open_drain(host, by, request.inside("fields"))
    request.done()
    if do != "look":
        with host.lock():
            with room_or_not():
                host.fence(epoch)
            try:
                if do == "restore":
                    drain.restore(wanted)
                elif do == "isolate":
                    drain.isolate()
                else:
                    drain.withdraw()
            except OSError as error:
                raise Failed(str(error)) from None
            now = drain.look().withdrawn
            if now != wanted if do == "restore" else not now:
                raise Failed(f"this host is {now or 'in service'} after {do}")
    seen = drain.look()
    return {
        "withdrawn": seen.withdrawn,
        "up": seen.up,
        "leaving": seen.leaving,
        "refuses": seen.refuses,
        "sessions": sessions(host, ports) if ports else None,
    }
