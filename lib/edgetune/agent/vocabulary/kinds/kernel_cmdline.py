# SPDX-License-Identifier: Apache-2.0
"""One parameter of the kernel's command line."""

import re
from typing import Optional

from edgetune.agent.vocabulary.command_line import FIRST_BOOT, joined, name_of, split
from edgetune.agent.vocabulary.grammar import Text, Wrong
from edgetune.agent.vocabulary.kind import BOOT_ENTRY, Field, Kind
from edgetune.agent.vocabulary.values import Target, Value

_FOR_BOOT = (
    r"root|root(fstype|flags|wait|delay)|r[ow]|init|rdinit|initrd|BOOT_IMAGE|rd\..*|luks\..*"
)
_FIRST_BOOT = [name_of(word) for word in FIRST_BOOT]


def parameter_refusal(parameter: str) -> Optional[str]:
    """Why no tuning sets a parameter; None when one may."""
    if re.fullmatch(_FOR_BOOT, parameter):
        return f"{parameter} is needed to boot the host"
    if name_of(parameter) in _FIRST_BOOT:
        return f"{parameter} ends a first boot that goes wrong: a sysctl can set the same later"
    return None


def tidy(target: Target, value: Value) -> Value:
    """The words one space apart, each of this parameter, with quotes where they need some."""
    try:
        words = split(str(value))
    except ValueError as error:
        raise Wrong(str(error)) from None
    for word in words:
        if name_of(word) != name_of(target["parameter"]):
            raise Wrong(f"{word} is no word of {target['parameter']}")
    return joined(words)


KIND = Kind(
    name="kernel.cmdline",
    target={
        "parameter": Field(
            r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}",
            "Name of a parameter of the kernel, as it stands before the `=`.",
            parameter_refusal,
        )
    },
    # What shells and boot loaders would obey is left out.
    value=Text(r"[ !-#%&(-\[\]-_a-~]{0,1000}"),
    tidy=tidy,
    touches=lambda target: [BOOT_ENTRY],
    disruption="reboot",
    order=4,
    ordered=False,
    summary="All words of one parameter on the kernel's command line, tried by one boot first.",
    takes="The words with the parameter's name, such as `mitigations=off`, `quiet` or "
    "`console=tty0 console=ttyS0`; an empty text takes the parameter away.",
    example={"parameter": "mitigations", "value": "mitigations=off"},
)
