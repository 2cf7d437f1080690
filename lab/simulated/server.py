# SPDX-License-Identifier: Apache-2.0
"""The lab's two processes, started by `control.up`: the hosts, and a guard that cleans up.

Whichever of the two is killed, the other one ends, and the last one leaves nothing behind. It
reports {"ready": state} or {"error": "one line"} on standard output, one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from lab.lifeline import is_cut
from lab.pop.files import write_state
from lab.pop.layout import LabError, Layout

from . import processes

LOST_AFTER = 0.2  # s; the guard, or the starter


def main() -> None:
    """Argument: JSON with home, what `up` was given, and descriptors: lock, and, unless
    the lab is to outlive its starter, starter (see `lab.lifeline`).
    """
    options = json.loads(sys.argv[1])
    layout = Layout(Path(options["home"]))
    if os.fork():
        os._exit(0)  # who calls `up` need not wait for its end
    guard = os.getpid()
    for name in {"lock", "starter"} & options.keys():
        os.set_inheritable(options[name], False)
    os.pwrite(options["lock"], f"{guard} {processes.start_time(guard)}\n".encode(), 0)
    hosts = os.fork()
    if hosts:
        _guard(hosts)
    else:
        asyncio.run(_be_the_hosts(layout, options, guard))
    processes.clean(layout)


def _guard(hosts: int) -> None:
    """Until the hosts end; SIGTERM ends them."""

    def stop(number: int, frame: FrameType | None) -> None:
        os.kill(hosts, signal.SIGKILL)

    signal.signal(signal.SIGTERM, stop)
    os.close(1)
    os.waitpid(hosts, 0)


async def _be_the_hosts(layout: Layout, options: dict[str, Any], guard: int) -> None:
    from .pop import PoP  # not before the fork: the guard needs none of it

    try:
        names = ("hosts", "pops", "load", "post_seconds", "freebsd", "releases")
        pop = PoP(layout, *(options[name] for name in names))
        await pop.bring_up()
    except (LabError, OSError) as error:
        _report({"error": str(error)})
        return
    state = {**pop.state(), "pid": guard, "started": processes.start_time(guard)}
    write_state(layout, state)
    _report({"ready": state})
    os.dup2(2, 1)
    running = asyncio.ensure_future(pop.run())
    starter = options.get("starter")
    while os.getppid() == guard and not running.done():
        if starter is not None and is_cut(starter):
            break
        await asyncio.wait([running], timeout=LOST_AFTER)
    if not running.done():
        # The loop would wait at its end for commands that hosts are still running.
        processes.clean(layout)
        os._exit(0)


def _report(message: dict[str, Any]) -> None:
    """Nobody left to read it: that is BrokenPipeError, and the end of the lab."""
    os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
