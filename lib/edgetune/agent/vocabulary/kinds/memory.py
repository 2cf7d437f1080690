# SPDX-License-Identifier: Apache-2.0
"""How the kernel gives memory to programs."""

from edgetune.agent.vocabulary.grammar import Text, Whole
from edgetune.agent.vocabulary.kind import SERVICE, Field, Kind, parameter, properties_of
from edgetune.agent.vocabulary.values import NODE, Target, Value

DIRECTORY = "/sys/kernel/mm/transparent_hugepage"


def file_of(target: Target) -> str:
    """The kernel's file."""
    return f"{DIRECTORY}/{target['file']}"


THP = Kind(
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


LEAST = 1024
"""Kilobytes. With less the kernel is subtly broken, says its documentation, and may deadlock."""

BOUNDS = {
    "min_free_kbytes": Whole(LEAST, 2**31 - 1),
    "watermark_scale_factor": Whole(1, 3000),
    "watermark_boost_factor": Whole(0, 2**31 - 1),
}
"""Kilobytes for min_free_kbytes, hundredths of a per cent for the others."""


def key_of(target: Target) -> str:
    """The name of the kernel parameter."""
    return f"vm.{_name(target)}"


def _name(target: Target) -> str:
    return target["parameter"]


def tidy(target: Target, value: Value) -> Value:
    """A number within the bounds of its parameter."""
    return str(BOUNDS[_name(target)].of_text(str(value)))


WATERMARKS = Kind(
    name="memory.watermarks",
    target={
        "parameter": Field(
            "|".join(BOUNDS),
            "`min_free_kbytes`, `watermark_scale_factor` or `watermark_boost_factor`.",
        )
    },
    value=Text(r"[0-9]{1,10}"),
    tidy=tidy,
    touches=lambda target: [parameter(key_of(target))],
    disruption="live",
    order=140,
    ordered=True,
    summary="The free memory below which the kernel frees more; raised in steps.",
    takes="A whole number. `min_free_kbytes`: kilobytes, at least 1024, and at most 5 % of the "
    "memory and of the smallest NUMA node. `watermark_scale_factor` (1 to 3000) and "
    "`watermark_boost_factor`: hundredths of a per cent.",
    example={"parameter": "watermark_scale_factor", "value": 200},
)


# Ranges only: a comma would end the option of some versions of mount.
_NODE_RANGE = f"{NODE}(-{NODE})?"


TMPFS_POLICY = Kind(
    name="memory.tmpfs_policy",
    target={"mount": Field("/[!-~]{0,200}", "Where a tmpfs is mounted.")},
    value=Text(f"interleave(:{_NODE_RANGE})?|bind:{_NODE_RANGE}|prefer:{NODE}|local"),
    disruption="live",
    order=150,
    summary="The NUMA nodes on which a tmpfs gets the memory of what is written from now on.",
    takes="`interleave` (over all NUMA nodes with memory), `interleave:NODES`, `bind:NODES`, "
    "`prefer:NODE` or `local`. NODES is one node or one range, such as `0-1`.",
    example={"mount": "/var/cache/nginx", "value": "interleave"},
)


POLICY, MASK = "NUMAPolicy", "NUMAMask"
_NODES = f"{NODE}(-{NODE})?(,{NODE}(-{NODE})?)*"

NUMA_POLICY = Kind(
    name="memory.numa_policy",
    target={"service": SERVICE},
    value=Text(f"interleave|local|default|preferred:{NODE}|bind:{_NODES}"),
    touches=properties_of(POLICY, MASK),
    disruption="restart",
    order=190,
    summary="The NUMA nodes on which a service gets the memory that it asks for after its restart.",
    takes="`interleave` (over all NUMA nodes with memory), `preferred:NODE`, `bind:NODES`, `local` "
    "or `default`. NODES is a list of nodes and ranges, such as `0-1,3`.",
    example={"service": "nginx", "value": "preferred:0"},
)
