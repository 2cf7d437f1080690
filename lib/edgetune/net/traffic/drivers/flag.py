# SPDX-License-Identifier: Apache-2.0
"""A file on each host, read by whatever steers traffic to it."""

from __future__ import annotations

from edgetune.base.durations import read_duration
from edgetune.base.fields import Field
from edgetune.net.traffic.on_hosts import Agents, OnHosts, same_duration


class Flag(OnHosts):
    """A file on the host itself. While it is there, something on the host has to see that no
    requests come: exabgp-healthcheck, keepalived, HAProxy's agent check, a health answer.

    edgetune makes the file over SSH, removes it, and counts the host's own connections. Nothing
    tells edgetune whether anything reads the file.
    """

    by = "flag"
    fields = {
        "file": Field(
            "path of the file on each host, in a directory that only root can change and that a "
            "boot does not empty",
            example="/var/lib/edgetune-drained",
            pattern=r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._-]{1,100}){2,20}",
        ),
        "settle": Field(
            "how long it takes until all that reads the file has followed",
            example="20s",
            pattern=r"[0-9][0-9a-z.]{0,20}",
            default="20s",
            same=same_duration,
        ),
    }
    advice = "make that directory on each host, on a disk, as root's own"

    def __init__(self, agents: Agents, file: str, settle: str) -> None:
        super().__init__(agents, {"file": file, "settle": read_duration(settle)})


DRIVER = Flag
