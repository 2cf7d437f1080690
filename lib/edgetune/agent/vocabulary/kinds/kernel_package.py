# SPDX-License-Identifier: Apache-2.0
"""The kernel that a host runs, as the package that holds it."""

from edgetune.agent.vocabulary.grammar import Parts, Text, Wrong
from edgetune.agent.vocabulary.kind import BOOT_ENTRY, Kind
from edgetune.agent.vocabulary.values import Target, Value, parts


def tidy(target: Target, value: Value) -> Value:
    """Both parts."""
    for name in ("package", "version"):
        if name not in parts(value):
            raise Wrong("is missing", name)
    return value


KIND = Kind(
    name="kernel.package",
    target={},
    value=Parts(
        {
            "package": Text(r"[A-Za-z0-9][A-Za-z0-9+._-]{1,99}"),
            "version": Text(r"[0-9][A-Za-z0-9.+:~^_-]{0,99}"),
        }
    ),
    tidy=tidy,
    touches=lambda target: [BOOT_ENTRY],
    disruption="reboot",
    # What the command line is written into.
    order=2,
    summary="The kernel that the host runs, as the package that holds it; tried by one boot first.",
    takes="`package`, the one that holds the kernel itself (`linux-image-6.1.0-40-amd64`, "
    "`kernel-core`), and its exact `version`.",
    example={"value": {"package": "linux-image-6.1.0-40-amd64", "version": "6.1.153-1"}},
)
