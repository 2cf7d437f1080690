# SPDX-License-Identifier: Apache-2.0
"""Modules of FreeBSD's kernel."""

from edgetune.agent.vocabulary.grammar import Text
from edgetune.agent.vocabulary.kind import Field, Kind

LOADED, ABSENT = "loaded", "absent"


KIND = Kind(
    name="module",
    target={
        "module": Field(
            "[a-z][a-z0-9_]{0,60}",
            "Name of a kernel module, as `kldload` takes it, such as `tcp_rack`.",
        )
    },
    value=Text(LOADED),
    disruption="live",
    order=15,
    systems=("freebsd",),
    summary="A kernel module that is loaded; one that is in use when it is taken back stays until "
    "the next boot.",
    takes="`loaded`.",
    example={"module": "tcp_rack", "value": LOADED},
)
