# SPDX-License-Identifier: Apache-2.0
"""Answers one request, or does what its command line says."""

import contextlib
import gc
import json
import os
import signal
import sys
from typing import List

from edgetune.agent.host import Host

USAGE = "usage: agent.py boot | agent.py revert TUNING | agent.py restore TUNING"


def act_unattended(host: Host, arguments: List[str]) -> List[str]:
    """What the command line says; what went wrong."""
    from edgetune.agent.change import attempt
    from edgetune.agent.unattended import boot_and_rest, late, restore_by_hand, revert

    problems: List[str] = []
    verb, given = arguments[0], arguments[1:]
    if verb in ("revert", "keep-congestion"):
        # These live long; what runs our copy has switched it off.
        gc.enable()
    if verb == "boot" and not given:
        attempt(problems, "", lambda: problems.extend(boot_and_rest(host)))
    elif verb == "late" and not given:
        attempt(problems, "", lambda: problems.extend(late(host)))
    elif verb == "keep-congestion" and not given:
        # Most of the agent is not needed for it.
        from edgetune.agent.congestion import keep_congestion

        attempt(problems, "", keep_congestion, host)
    elif verb == "revert" and len(given) == 1:
        attempt(problems, given[0], revert, host, given[0])
    elif verb == "restore" and len(given) == 1:
        attempt(problems, given[0], restore_by_hand, host, given[0])
    else:
        problems.append(USAGE)
    return problems


def main(arguments: List[str]) -> int:
    """Do what the command line says, or answer the request on standard input."""
    os.umask(0o022)
    # Go on to the end when the SSH session is gone: half a change is no state to stop in. By a
    # handler of our own and not SIG_IGN, which the services that we restart would inherit.
    signal.signal(signal.SIGHUP, lambda *_: None)
    root = os.environ.get("EDGETUNE_ROOT") or "/"
    if arguments:
        problems = act_unattended(Host(root), arguments)
        sys.stderr.writelines(f"edgetune: {problem}\n" for problem in problems)
        return 1 if problems else 0
    from edgetune.agent.dispatch import answer

    reply = json.dumps(answer(root, sys.stdin.buffer.read()), sort_keys=True) + "\n"
    # Nobody may be there to read it.
    with contextlib.suppress(BrokenPipeError), open(1, "wb", closefd=False) as output:
        output.write(reply.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
