# SPDX-License-Identifier: Apache-2.0
"""``reboot``: the boot that was meant, and no other one, is ended."""

import re
import time

from edgetune.agent.boot_hook import agent_command
from edgetune.agent.host import Host, room_or_not
from edgetune.agent.protocol import Json, Refused, Request
from edgetune.agent.vocabulary.grammar import LINE

REBOOT_MARK = "/run/edgetune-reboot"
REBOOT_AGAIN = 60.0


def reboot(host: Host, request: Request) -> Json:
    """Reboot, while the host is still in the boot that was meant.

    Asked again at once it does nothing; asked again later in the same boot, it sends the command
    once more: the first may have died with the agent, or have been lost. That is no second reset.
    The boot_id is compared here, on the host, and what is started then dies with this boot, as
    everything does that could still send the command: no later boot ever sees it.
    """
    epoch = request.epoch()
    drained = request.flag("drained", default=False)
    boot_id = request.text("boot_id", LINE)
    request.done()
    with host.lock():
        host.refuse_in_service(drained)
        host.fence(epoch)
        now = host.boot_id
        meant = boot_id == now
        if meant and not _sent_just_now(host):
            # The reply goes out first. Never by kexec: the BIOS must run.
            code = "import os, sys, time; time.sleep(0.3); os.execv(sys.argv[1], sys.argv[1:])"
            words = host.reboot_command
            program = host.program(words[0])
            if program is None:
                raise Refused(f"there is no program {words[0]}")
            command = [program, *words[1:]]
            host.detach([agent_command("")[0], "-I", "-S", "-c", code, *command])
            with room_or_not():
                mark = f"{now} {time.monotonic():.3f}\n"
                host.replace(REBOOT_MARK, mark.encode(), 0o600)
        return {"rebooting": meant}


def _sent_just_now(host: Host) -> bool:
    """Whether this boot's end was asked for less than ``REBOOT_AGAIN`` s ago."""
    boot_id, _, sent = host.text(REBOOT_MARK).partition(" ")
    if boot_id != host.boot_id or not re.fullmatch(r"[0-9]+\.[0-9]+", sent):
        return False
    return time.monotonic() - float(sent) < REBOOT_AGAIN
