# SPDX-License-Identifier: Apache-2.0
"""The boot environment of ZFS that a host with FreeBSD runs."""

from edgetune.agent.vocabulary.grammar import Text
from edgetune.agent.vocabulary.kind import BOOT_ENTRY, Kind

KIND = Kind(
    name="kernel.boot_environment",
    target={},
    # bectl(8) refuses spaces; @ would name a snapshot.
    value=Text("[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}"),
    touches=lambda target: [BOOT_ENTRY],
    disruption="reboot",
    order=3,
    systems=("freebsd",),
    summary="The boot environment that the host runs, with its kernel and base system; tried by "
    "one boot first.",
    takes="The name of a boot environment that is there, as `bectl list` has it.",
    example={"value": "14.1-p6"},
)
