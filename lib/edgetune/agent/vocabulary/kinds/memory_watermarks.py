# SPDX-License-Identifier: Apache-2.0
"""How early the kernel begins to free memory."""

from edgetune.agent.vocabulary.grammar import Text, Whole
from edgetune.agent.vocabulary.kind import Field, Kind, parameter
from edgetune.agent.vocabulary.values import Target, Value

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


KIND = Kind(
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
