# SPDX-License-Identifier: Apache-2.0
"""Transparent huge pages."""

from edgetune.agent.vocabulary.grammar import Text
from edgetune.agent.vocabulary.kind import Field, Kind
from edgetune.agent.vocabulary.values import Target

DIRECTORY = "/sys/kernel/mm/transparent_hugepage"


def file_of(target: Target) -> str:
    """The kernel's file."""
    return f"{DIRECTORY}/{target['file']}"


KIND = Kind(
    name="memory.thp",
    target={"file": Field("enabled|defrag", f"`enabled` or `defrag`, in `{DIRECTORY}`.")},
    value=Text(r"[a-z][a-z+_-]{0,40}"),
    touches=lambda target: [file_of(target)],
    disruption="live",
    order=130,
    summary="When the kernel uses transparent huge pages.",
    takes="A word that the kernel offers in that file, such as `always`, `madvise` or `never`.",
    example={"file": "enabled", "value": "madvise"},
)
